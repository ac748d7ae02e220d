"""`penstock validate`: the rules of the contract, each finding with id, place, why and fix."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.settings import configuration, current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.contract import Validation
    from penstock.pipeline.compile import Pipeline

__all__ = ["command"]

EXIT_FINDINGS = 1
_HEAD = 65_536
_SHOWN = 10
"""Routes that are named in the summary."""


class Form(StrEnum):
    """The forms in which findings are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    SARIF = "sarif"


File = Annotated[
    Path | None,
    typer.Argument(
        show_default=False, help="An AsyncAPI document or a pipeline; asyncapi.yaml, found upwards."
    ),
]
Output = Annotated[
    Form | None, typer.Option("-o", "--output", help="Form of the findings; sarif is for code reviews.")
]
Rules = Annotated[bool, typer.Option("--rules", help="List the rules instead of checking a document.")]
Strict = Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")]
Remote = Annotated[bool, typer.Option("--allow-remote", help="Follow a $ref to http and https addresses.")]
Outside = Annotated[
    bool, typer.Option("--allow-outside", help="Follow a $ref to files outside the contract's root folder.")
]


def command(
    file: File = None,
    form: Output = None,
    rules: Rules = False,
    strict: Strict = False,
    allow_remote: Remote = False,
    allow_outside: Outside = False,
) -> None:
    """Check a contract or a pipeline; exit code 0 if it is fine, 1 if a rule is broken."""
    chosen = form or Form(current().output)
    if rules:
        _list_rules(chosen)
        return
    from penstock.contract.loading import find_contract, validate

    configured = configuration().get("contract")
    routes = ""
    path = file or (Path(str(configured)) if configured else Path(os.path.relpath(find_contract(Path.cwd()))))
    if _is_pipeline(path):
        _allow(allow_remote, allow_outside)
        result, routes = _check_pipeline(path)
    else:
        result = validate(path, allow_remote=allow_remote, allow_outside=allow_outside)
    _print(result, chosen)
    if routes:
        output.talk(f"{path}: {routes}")
    failing = [f for f in result.findings if f.severity == "error" or (strict and f.severity == "warning")]
    if failing:
        raise typer.Exit(EXIT_FINDINGS)


def _allow(remote: bool, outside: bool) -> None:
    """Let the contract of a pipeline read more, until this invocation ends."""
    from penstock.contract.files import REMOTE_VARIABLE, ROOT_VARIABLE

    if remote:
        os.environ[REMOTE_VARIABLE] = "true"
    if outside:
        os.environ[ROOT_VARIABLE] = os.path.abspath(os.sep)


def _is_pipeline(path: Path) -> bool:
    """Tell a pipeline file from a contract by its keys; one that cannot be read is left to the reader."""
    try:
        head = path.read_bytes()[:_HEAD]
    except OSError:
        return False
    # In JSON, which may stand on one line, a key can be anywhere; in YAML it begins its line.
    key = rb"[\"']?%s[\"']?\s*:"
    routes = key if head.lstrip().startswith(b"{") else b"^" + key
    found = re.search(routes % b"routes", head, re.MULTILINE)
    return found is not None and re.search(key % b"asyncapi", head) is None


def _check_pipeline(path: Path) -> tuple[Validation, str]:
    """Check routes and contract; give what was found, and in words what was checked of the routes."""
    from penstock.contract import Validation
    from penstock.pipeline.compile import check_pipeline

    checked = check_pipeline(path, context=configuration().context())
    pipeline = checked.pipeline
    result = Validation(contract=pipeline.contract if pipeline else None, findings=checked.findings)
    if pipeline is None:
        return result, ""
    names = [route.name for route in pipeline.routes]
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    counted = f"{len(names)} route{'' if len(names) == 1 else 's'}"
    what = "conditions, attributes, keys, functions, targets and dead letters fit the contract"
    return result, "\n".join((f"{counted} ({shown}): {what}", *_route_lines(pipeline)))


def _route_lines(pipeline: Pipeline) -> Iterator[str]:
    """Say of each route what it connects, who would run it and what its delivery is worth."""
    from penstock.pipeline.engines import explanations

    explained = explanations(pipeline)
    for route in pipeline.routes[:_SHOWN]:
        how = explained[route.name]
        targets = ", ".join(operation.id for operation in route.send)
        yield f"  {route.name}: {route.receive.id} -> {targets}; engine {how.chosen}, {how.guarantee}"


def _print(result: Validation, form: Form) -> None:
    from penstock import __version__
    from penstock.contract import render
    from penstock.contract.rules.table import RULES
    from penstock.pipeline.rules import RULES as PIPELINE_RULES

    if form is Form.TABLE:
        for finding in result.findings:
            output.data(f"{render.finding_text(finding)}\n")
    elif form is Form.SARIF:
        output.document(
            render.as_sarif(result, version=__version__, rules=(*RULES.values(), *PIPELINE_RULES)), Form.JSON
        )
    else:
        output.document(render.as_data(result), form)
    output.talk(render.summary(result))


def _list_rules(form: Form) -> None:
    from penstock.contract.render import rule_message
    from penstock.contract.rules.table import RULES
    from penstock.pipeline.rules import RULES as PIPELINE_RULES

    every = (*RULES.values(), *PIPELINE_RULES)
    rows = [(rule.id, str(rule.severity), rule_message(rule), rule.clause) for rule in every]
    fmt = Form.JSON if form is Form.SARIF else form
    output.rows(("rule", "severity", "message", "source"), rows, fmt)
