"""Text to nodes: YAML 1.2 and JSON, in UTF-8, with the place of every value.

YAML events come from libyaml (PyYAML's binding) if it is there, else from ruamel.yaml, which is slower
and gives the same tree; JSON has its own scanner, because YAML parsers refuse some of its escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from penstock.contract.finding import Position, Report
from penstock.contract.json_parser import feed_json
from penstock.contract.node import Node
from penstock.contract.rules import reading
from penstock.contract.scalars import NotJsonData, plain_scalar, tagged_scalar
from penstock.contract.tree import TreeBuilder, Unreadable

__all__ = ["MAX_BYTES", "parse"]

MAX_BYTES: Final = 16 * 1024 * 1024


def parse(raw: bytes, file: str, report: Report) -> Node | None:
    """Read one document; None if it cannot be read, and then the report says why."""
    if len(raw) > MAX_BYTES:
        report.add_at(reading.TOO_LARGE, Position(file, 1, 1), problem=f"it has more than {MAX_BYTES} bytes")
        return None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        report.add_at(reading.SYNTAX, Position(file, line, 1), problem="it is not UTF-8")
        return None
    builder = TreeBuilder(file, report)
    try:
        feed = feed_json if file.endswith((".json", ".avsc")) else _feed_yaml
        feed(text, builder)
    except Unreadable:
        return None
    # YAML: a stream without a document stands for null.
    return builder.root if builder.root is not None else Node(None, file)


def _feed_yaml(text: str, builder: TreeBuilder) -> None:
    events, failure = _engine()
    try:
        for event in events(text):
            _HANDLERS[type(event).__name__](builder, event)
    except failure as exc:
        mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
        line, column = (
            (mark.line + 1, mark.column + 1) if mark else _offset(text, getattr(exc, "position", 0))
        )
        problem = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "it cannot be parsed"
        builder.stop(reading.SYNTAX, line, column, str(problem))


def _engine() -> tuple[Callable[[str], Iterable[Any]], type[Exception]]:
    """Choose the parser; its events and its errors have the same fields in both libraries."""
    try:
        from yaml import CSafeLoader, YAMLError  # type: ignore[import-untyped]
        from yaml import parse as events
    except ImportError:
        return _ruamel()
    return lambda text: events(text, Loader=CSafeLoader), YAMLError


def _ruamel() -> tuple[Callable[[str], Iterable[Any]], type[Exception]]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    return YAML(typ="safe", pure=True).parse, YAMLError


def _offset(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _document_start(builder: TreeBuilder, event: Any) -> None:
    if builder.root is not None:
        mark = event.start_mark
        builder.stop(reading.SYNTAX, mark.line + 1, mark.column + 1, "it holds more than one YAML document")


def _scalar(builder: TreeBuilder, event: Any) -> None:
    mark = event.start_mark
    line, column = mark.line + 1, mark.column + 1
    if builder.wants_key():
        builder.key(event.value, line, column)
        return
    builder.value(_scalar_value(builder, event, line, column), line, column, event.anchor)


def _scalar_value(
    builder: TreeBuilder, event: Any, line: int, column: int
) -> str | int | float | bool | None:
    text: str = event.value
    try:
        if event.tag is not None:
            return tagged_scalar(str(event.tag), text)
        return plain_scalar(text) if event.implicit[0] else text
    except NotJsonData as exc:
        builder.report.add_at(reading.NOT_JSON_DATA, Position(builder.file, line, column), problem=str(exc))
        return text


def _opener(make: Callable[[], Any], tag: str) -> Callable[[TreeBuilder, Any], None]:
    def handle(builder: TreeBuilder, event: Any) -> None:
        mark = event.start_mark
        line, column = mark.line + 1, mark.column + 1
        if event.tag is not None and str(event.tag) not in ("!", tag):
            problem = f"the tag {event.tag} has no meaning in AsyncAPI"
            builder.report.add_at(
                reading.NOT_JSON_DATA,
                Position(builder.file, line, column),
                problem=problem,
                fix="remove the tag",
            )
        builder.begin(make(), line, column, event.anchor)

    return handle


def _alias(builder: TreeBuilder, event: Any) -> None:
    builder.alias(event.anchor, event.start_mark.line + 1, event.start_mark.column + 1)


def _end(builder: TreeBuilder, _event: Any) -> None:
    builder.end()


def _nothing(_builder: TreeBuilder, _event: Any) -> None:
    return


_HANDLERS: Final[Mapping[str, Callable[[TreeBuilder, Any], None]]] = {
    "StreamStartEvent": _nothing,
    "StreamEndEvent": _nothing,
    "DocumentStartEvent": _document_start,
    "DocumentEndEvent": _nothing,
    "ScalarEvent": _scalar,
    "AliasEvent": _alias,
    "MappingStartEvent": _opener(dict, "tag:yaml.org,2002:map"),
    "MappingEndEvent": _end,
    "SequenceStartEvent": _opener(list, "tag:yaml.org,2002:seq"),
    "SequenceEndEvent": _end,
}
