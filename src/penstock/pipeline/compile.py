"""From pipeline.yaml and its contract to route plans, or to everything that is wrong with them; no Spark."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from penstock.config import Context
from penstock.contract import Contract, ResolvedOperation, resolve, validate
from penstock.contract.files import CannotRead, read_file
from penstock.contract.finding import Report, Severity
from penstock.contract.node import Node as DocumentNode
from penstock.errors import InvalidExpression, PenstockError, PipelineError
from penstock.events.filters import parse_filter, parse_filters
from penstock.pipeline import rules
from penstock.pipeline.compiled import CompiledRoute, Pipeline, PipelineCheck
from penstock.pipeline.conflicts import refuse_disagreement, refuse_loops
from penstock.pipeline.document import FORMER_ENGINES, PipelineDocument, Route, read_pipeline
from penstock.pipeline.functions.location import locate
from penstock.pipeline.plan.cesql import parse_cesql
from penstock.pipeline.plan.dialects import compile_filters
from penstock.pipeline.plan.nodes import Boolean, Node, Type
from penstock.pipeline.plan.route import (
    Assignment,
    Expiry,
    ExpressionKey,
    FunctionKey,
    KeyRule,
    Mode,
    RoutePlan,
    SimpleKey,
    Tombstones,
)
from penstock.pipeline.plan.sql import many_events_problem, parse_sql, syntax_problem
from penstock.pipeline.pulsar import PULSAR, is_served
from penstock.pipeline.refusals import refuse_unserved, warn_of_refusals
from penstock.pipeline.typed.form import unwritable

__all__ = ["CompiledRoute", "Pipeline", "PipelineCheck", "check_pipeline", "load_pipeline"]

_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")
_DURATION: Final = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?\Z")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_LOCAL_URL: Final = re.compile(r"(?i:file):(?://)?(/(?!/).*)\Z", re.DOTALL)
_NO_FILE_SYSTEMS: Final = frozenset({"file", "ftp", "http", "https", "jdbc", "kafka", "pulsar", "sftp"})
"""Schemes of what cannot hold a checkpoint; `file` is here for a folder of another host."""
_CONDITIONS: Final = ("where", "filter", "cesql", "sql")


def load_pipeline(path: str | Path, *, context: Context | None = None) -> Pipeline:
    """Give the pipeline of a file without errors; raise the first error otherwise."""
    result = check_pipeline(path, context=context)
    if result.pipeline is not None:
        return result.pipeline
    first = result.errors[0]
    raise PipelineError(
        f"{path} breaks {len(result.errors)} rules" if len(result.errors) > 1 else f"{path} breaks a rule",
        where=str(first.position),
        why=f"{first.rule.id}: {first.message}",
        next=f"penstock validate {path}",
    )


def check_pipeline(
    path: str | Path,
    *,
    context: Context | None = None,
    raw: bytes | None = None,
    contract: bytes | None = None,
    known: Contract | None = None,
) -> PipelineCheck:
    """Read a pipeline and its contract and check every rule, without Spark and without a broker.

    `raw` and `contract` are the contents of the two files if they are not those on disk. With `known` that is
    the contract, whatever the pipeline names.
    """
    report, pipeline = Report(), None
    raw = _content(Path(path)) if raw is None else raw
    document = read_pipeline(Path(path), report, raw)
    if document is not None:
        if known is None and contract is None:
            contract = _content(Path(path).parent / document.contract)
        found = known or _contract(document, Path(path), report, contract)
        if found is not None:
            made = _Compiler(document, found, Path(path), context, report).compile()
            pipeline = replace(made, raw=raw or b"", contract_raw=contract or b"")
    findings = tuple(report)
    broken = any(finding.severity is Severity.ERROR for finding in findings)
    return PipelineCheck(pipeline=None if broken else pipeline, findings=findings)


def _content(path: Path) -> bytes | None:
    """Read a file once, so that what is kept of it is what was compiled. None: who needs it says why."""
    try:
        return read_file(path)
    except CannotRead:
        return None


def _contract(document: PipelineDocument, path: Path, report: Report, raw: bytes | None) -> Contract | None:
    where = path.parent / document.contract
    try:
        result = validate(where, raw=raw)
    except PenstockError as exc:
        node, name = document.at("contract"), document.contract
        report.add(rules.NO_CONTRACT, node, path=name, problem=exc.what, fix=exc.next or "")
        return None
    if result.contract is None or result.errors:
        first = result.errors[0]
        report.add(
            rules.NO_CONTRACT,
            document.at("contract"),
            path=document.contract,
            problem=f"{first.rule.id} {first.message}",
            fix=f"penstock validate {where}; {first.position}",
        )
        return None
    return result.contract


def seconds_of(duration: str) -> float | None:
    """Read a duration of ISO 8601; None if it is none.

    >>> seconds_of("PT0.2S"), seconds_of("PT1M"), seconds_of("5s")
    (0.2, 60.0, None)
    """
    found = _DURATION.match(duration)
    if found is None or duration == "PT":
        return None
    hours, minutes, seconds = (float(group or 0) for group in found.groups())
    return hours * 3600 + minutes * 60 + seconds


class _Compiler:
    """Compiles the routes of one document; what is wrong goes to the report."""

    def __init__(
        self,
        document: PipelineDocument,
        contract: Contract,
        path: Path,
        context: Context | None,
        report: Report,
    ) -> None:
        self.document = document
        self.contract = contract
        self.path = path
        self.context = context
        self.report = report

    def compile(self) -> Pipeline:
        """Compile every route."""
        if not self.document.routes:
            self.report.add(rules.NO_ROUTES, self.document.at("routes"))
        routes = [self._route(name, route) for name, route in self.document.routes.items()]
        whole = tuple(route for route in routes if route is not None)
        pipeline = Pipeline(
            path=self.path,
            checkpoint=self._checkpoint(),
            checkpoint_text=self.document.checkpoint,
            engine=self._engine(),
            engine_text=self.document.engine,
            contract=self.contract,
            routes=whole,
            context=self.context,
            name=self._name(),
            on_data_loss=self.document.on_data_loss,
            requires_exactly_once=self.document.exactly_once is not None,
            trigger=self._trigger(),
        )
        refuse_loops(pipeline, self.report)
        refuse_disagreement(whole, self.report)
        refuse_unserved(pipeline, self.report)
        warn_of_refusals(pipeline, self.report)
        return pipeline

    def _engine(self) -> str:
        said = self.document.engine
        if said in FORMER_ENGINES:
            self.report.add(rules.FORMER_ENGINE, self.document.at("engine"), found=said)
            return "spark"
        return said

    def _trigger(self) -> float:
        text = self.document.trigger
        seconds = 0.0 if text is None else seconds_of(text)
        if seconds is None:
            self.report.add(rules.BAD_DURATION, self.document.at("trigger"), found=text)
        return seconds or 0.0

    def _checkpoint(self) -> str:
        """Return where the checkpoint is: a local folder, relative to the file, or a URL as it is written.

        Whether Spark has a file system for a scheme is known when it has started, with its packages.
        """
        text = self.document.checkpoint
        local = _LOCAL_URL.match(text)
        if local is not None:
            return unquote(local[1])
        scheme = _SCHEME.match(text)
        if scheme is None:
            return str(self.path.parent / text)
        if scheme[1].lower() in _NO_FILE_SYSTEMS:
            self.report.add(rules.NO_FILE_SYSTEM, self.document.at("checkpoint"), found=text[:200])
        return text

    def _name(self) -> str | None:
        name = self.document.name
        if name is not None and not _NAME.fullmatch(name):
            self.report.add(rules.BAD_NAME, self.document.at("name"), found=name[:60])
        return name

    def _route(self, name: str, route: Route) -> CompiledRoute | None:
        receive = self._operation(route, "receive", route.receive, "receive")
        send = [self._operation(route, "send", operation, "send") for operation in route.send]
        plan = self._plan(name, route)
        dead = self._dead_letters(route, receive)
        delay = self._seconds(route)
        self._check_functions(route)
        self._check_pulsar(name, route, receive, send)
        if receive is None or plan is None or dead is None or None in send:
            return None
        return CompiledRoute(
            name=name,
            plan=plan,
            receive=receive,
            send=tuple(operation for operation in send if operation is not None),
            document=route,
            dead_letter_channel=dead,
            backoff_seconds=delay,
            sql=route.sql,
            unknown_channel=self._unknown_channel(route),
        )

    # Operations and channels

    def _check_pulsar(
        self,
        name: str,
        route: Route,
        receive: ResolvedOperation | None,
        send: Sequence[ResolvedOperation | None],
    ) -> None:
        """Refuse what is said of Pulsar where there is none, and topics that are not persistent."""
        targets = [operation for operation in send if operation is not None]
        rows: tuple[tuple[str, bool, str], ...] = (
            (
                "dialects",
                bool(route.dialects) and receive is not None and receive.protocol != PULSAR,
                "dialects are those of Pulsar, and it receives from elsewhere",
            ),
            *_reading_rows(route, receive, targets),
            (
                "profile",
                route.profile is not None and all(target.protocol != PULSAR for target in targets),
                "a profile is for targets on Pulsar, and there is none",
            ),
            *(
                (
                    operation.action,
                    operation.protocol == PULSAR and not is_served(str(operation.topic)),
                    f"{operation.topic} keeps nothing: routes carry persistent topics",
                )
                for operation in (receive, *targets)
                if operation is not None
            ),
        )
        for field_name, wrong, problem in rows:
            if wrong:
                self.report.add(rules.CONTRADICTION, route.at(field_name), route=name, problem=problem)

    def _operation(self, route: Route, field: str, name: str, action: str) -> ResolvedOperation | None:
        known = [key for key, each in self.contract.operations.items() if each.action == action]
        words = {"operation": name, "known": ", ".join(known) or "none"}
        operation = self.contract.operations.get(name)
        if operation is None:
            self.report.add(rules.UNKNOWN_OPERATION, route.at(field), **words)
            return None
        if operation.action != action:
            found = operation.action or "none"
            self.report.add(rules.WRONG_ACTION, route.at(field), found=found, wanted=action, **words)
            return None
        try:
            resolved = resolve(self.contract, name, context=self.context)
            problem = unwritable(resolved) if action == "send" else None
            if problem is not None:
                self.report.add(rules.NO_TARGET_FORMAT, route.at(field), operation=name, problem=problem)
            return resolved
        except PenstockError as exc:
            self.report.add(rules.CONTRADICTION, route.at(field), route=name, problem=str(exc))
            return None

    def _dead_letters(self, route: Route, receive: ResolvedOperation | None) -> str | None:
        sink = route.delivery.dead_letter_sink
        if sink is None:
            if receive is not None and receive.dead_letter_channel is None:
                self.report.add(rules.NO_DEAD_LETTERS, route.at("delivery"), channel=receive.channel)
            return receive.dead_letter_channel if receive is not None else None
        return self._channel(sink, route.delivery.at("deadLetterSink"))

    def _unknown_channel(self, route: Route) -> str | None:
        block = route.unknown_format
        if block is None or block.forward is None:
            return None
        return self._channel(block.forward, block.at("forward"))

    def _channel(self, name: str, node: DocumentNode) -> str | None:
        """Give the channel that is named by itself or by an operation that sends to it."""
        operation = self.contract.operations.get(name)
        if operation is not None and operation.action == "send":
            return operation.channel
        if name not in self.contract.channels:
            self.report.add(
                rules.UNKNOWN_CHANNEL, node, channel=name, known=", ".join(self.contract.channels)
            )
            return None
        return name

    # The plan

    def _plan(self, name: str, route: Route) -> RoutePlan | None:
        where = self._condition(route)
        assignments = tuple(self._assignments(route))
        key = self._key(route)
        if where is None or key is None or len(assignments) < len(route.set):
            return None
        try:
            return RoutePlan(
                name=name,
                where=where,
                set=assignments,
                drop=route.drop,
                rename=tuple(route.rename.items()),
                key=key,
                mode=Mode(route.mode),
                tombstones=Tombstones(route.tombstones),
                expiry=Expiry(route.expired),
            )
        except PenstockError as exc:
            self.report.add(rules.CONTRADICTION, route.node, route=name, problem=exc.what)
            return None

    def _condition(self, route: Route) -> Node | None:
        given = [field for field in _CONDITIONS if getattr(route, field) is not None]
        if len(given) > 1:
            self.report.add(rules.TWO_CONDITIONS, route.node, key=given[1], found=" and ".join(given))
            return None
        try:
            if route.where is not None:
                return parse_sql(route.where)
            if route.cesql is not None:
                return parse_cesql(route.cesql)
            if route.filter is not None:
                many = isinstance(route.filter, list)
                filters = parse_filters(route.filter) if many else (parse_filter(route.filter),)
                return compile_filters(tuple(filters))
        except InvalidExpression as exc:
            self._bad_expression(route, given[0], exc)
            return None
        if route.sql is not None:
            self._check_sql(route, route.sql)
        return Boolean(True)

    def _check_sql(self, route: Route, text: str) -> None:
        if (problem := syntax_problem(text)) is not None:
            self.report.add(rules.DOUBTFUL_SQL, route.at("sql"), problem=problem)
        elif (wrong := many_events_problem(text)) is not None:
            self.report.add(
                rules.BAD_EXPRESSION, route.at("sql"), field="sql", problem=wrong.what, fix=wrong.fix
            )

    def _assignments(self, route: Route) -> Iterator[Assignment]:
        for attribute, expression in route.set.items():
            want = Type.TIME if attribute == "time" else Type.TEXT
            try:
                yield Assignment(attribute, parse_sql(expression, want))
            except InvalidExpression as exc:
                self._bad_expression(route, "set", exc, attribute)

    def _key(self, route: Route) -> KeyRule | None:
        if route.key in _SIMPLE_KEYS:
            return _SIMPLE_KEYS[route.key]
        if _FUNCTION.match(route.key):
            return FunctionKey(route.key)
        try:
            return ExpressionKey(parse_sql(route.key, Type.TEXT))
        except InvalidExpression as exc:
            self._bad_expression(route, "key", exc)
            return None

    def _bad_expression(
        self, route: Route, field: str, exc: InvalidExpression, attribute: str | None = None
    ) -> None:
        node = route.at(field)
        node = (node.get(attribute) or node) if attribute is not None else node
        place = f" (column {exc.position + 1})" if exc.position is not None else ""
        self.report.add(
            rules.BAD_EXPRESSION, node, field=attribute or field, problem=exc.what + place, fix=exc.next or ""
        )

    # Delivery and functions

    def _seconds(self, route: Route) -> float:
        delay = seconds_of(route.delivery.backoff_delay)
        if delay is None:
            node = route.delivery.at("backoffDelay")
            self.report.add(rules.BAD_DURATION, node, found=route.delivery.backoff_delay)
        return delay or 0.0

    def _check_functions(self, route: Route) -> None:
        if route.apply is not None and not _FUNCTION.match(route.apply.function):
            self.report.add(rules.BAD_FUNCTION, route.apply.node, name=route.apply.function)
        elif route.apply is not None:
            self._check_defined(route.apply.function, route.apply.node)
        if route.key not in _SIMPLE_KEYS and _FUNCTION.match(route.key):
            self._check_defined(route.key, route.at("key"))

    def _check_defined(self, name: str, node: DocumentNode) -> None:
        found = locate(name, [str(self.path.absolute().parent), *sys.path])
        if found.problem is not None:
            self.report.add(rules.NO_FUNCTION, node, name=name, problem=found.problem)


def _reading_rows(
    route: Route, receive: ResolvedOperation | None, targets: Sequence[ResolvedOperation]
) -> Iterator[tuple[str, bool, str]]:
    """Say what asks for a way of reading or writing that its topics do not have."""
    from_pulsar = receive is not None and receive.protocol == PULSAR
    to_pulsar = any(target.protocol == PULSAR for target in targets)
    yield "dash", bool(route.dash) and from_pulsar, "dash is about headers of Kafka"
    yield (
        "keepCase",
        bool(route.keep_case) and receive is not None and not from_pulsar,
        "keepCase is about what is received from Pulsar",
    )
    yield (
        "values",
        route.values is not None and receive is not None and not (from_pulsar or to_pulsar),
        "values are those of Pulsar's profile 0.1, and no topic is on Pulsar",
    )
    yield (
        "repeatHeaders",
        route.repeat_headers and route.mode == Mode.BINARY,
        "repeatHeaders is about structured events, and the mode is binary",
    )
    for name, said in (("reading", route.reading), ("sniff", route.sniff)):
        yield name, bool(said) and route.events == "plain", f"{name} is about CloudEvents, not plain records"


_SIMPLE_KEYS: Final[Mapping[str, SimpleKey]] = {key.value: key for key in SimpleKey}
