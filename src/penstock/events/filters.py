"""The filter dialects of the CloudEvents Subscriptions API, 3.2.4: exact, prefix, suffix, all, any, not, sql.

A filter is plain frozen data, read from the JSON shape `{dialect: value}` with its validity rules, and asked
with `matches`. An invalid one raises InvalidExpression with the path of the wrong part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from penstock.errors import InvalidExpression
from penstock.events.cesql import BUILTINS, Call, Expression, Functions, Type, attributes_of, evaluate
from penstock.events.cesql import parse as parse_sql
from penstock.events.cesql.casts import as_value, cast
from penstock.events.cesql.evaluation import returns
from penstock.events.cesql.syntax import walk
from penstock.events.cloudevent import CloudEvent
from penstock.events.rules import is_name

__all__ = [
    "AllOf",
    "AnyOf",
    "Exact",
    "Filter",
    "Not",
    "Prefix",
    "Sql",
    "Suffix",
    "matches",
    "parse_filter",
    "parse_filters",
    "to_json",
]

MAX_DEPTH = 32
MAX_CHILDREN = 1000
CLAUSE = "subscriptions API, 3.2.4.1"

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Exact:
    """Every attribute named equals its text."""

    attributes: Pairs


@dataclass(frozen=True, slots=True)
class Prefix:
    """Every attribute named starts with its text."""

    attributes: Pairs


@dataclass(frozen=True, slots=True)
class Suffix:
    """Every attribute named ends with its text."""

    attributes: Pairs


@dataclass(frozen=True, slots=True)
class AllOf:
    """The dialect `all`: every filter matches."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The dialect `any`: at least one filter matches."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The dialect `not`: the filter does not match."""

    filter: Filter


@dataclass(frozen=True, slots=True)
class Sql:
    """The dialect `sql`: a CESQL expression gives true without an error."""

    text: str
    expression: Expression = field(compare=False)


Filter = Exact | Prefix | Suffix | AllOf | AnyOf | Not | Sql


def parse_filters(
    value: object, *, path: str = "filters", functions: Functions = BUILTINS
) -> tuple[Filter, ...]:
    """Read the `filters` of a subscription, all of which must match; none at all matches everything.

    >>> parse_filters([{"prefix": {"type": "shop."}}])
    (Prefix(attributes=(('type', 'shop.'),)),)
    """
    if not isinstance(value, list):
        raise _invalid("filters are not an array", path)
    return tuple(_Reader(functions).read(item, f"{path}[{n}]") for n, item in enumerate(value))


def parse_filter(value: object, *, path: str = "filter", functions: Functions = BUILTINS) -> Filter:
    """Read one filter from its JSON shape.

    >>> parse_filter({"any": []})
    Traceback (most recent call last):
    penstock.errors.InvalidExpression: any is empty; at filter.any; ...
    """
    return _Reader(functions).read(value, path)


def _invalid(what: str, path: str, *, next: str | None = None) -> InvalidExpression:
    return InvalidExpression(what, path=path, why=CLAUSE, next=next)


class _Reader:
    """Reads one filter and those inside it."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._depth = 0
        self._count = 0

    def read(self, value: object, path: str) -> Filter:
        if not isinstance(value, dict) or len(value) != 1:
            raise _invalid("a filter is an object with one member, the dialect", path)
        ((dialect, content),) = value.items()
        read = _DIALECTS.get(dialect) if isinstance(dialect, str) else None
        if read is None:
            # 3.2.4: an unsupported dialect MUST be rejected with an error.
            raise _invalid(
                f"no filter dialect {dialect!r:.60}", path, next=f"use one of {', '.join(_DIALECTS)}"
            )
        self._bound(path)
        result = read(self, content, f"{path}.{dialect}")
        self._depth -= 1
        return result

    def _bound(self, path: str) -> None:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH:
            raise _invalid(f"more than {MAX_DEPTH} levels of filters", path)
        if self._count > MAX_CHILDREN:
            raise _invalid(f"more than {MAX_CHILDREN} filters in one", path)

    def pairs(self, content: object, path: str) -> Pairs:
        if not isinstance(content, dict) or not content:
            raise _invalid("not an object of attribute names and texts", path)
        return tuple(self._pair(name, text, f"{path}.{name!s:.60}") for name, text in content.items())

    def _pair(self, name: object, text: object, path: str) -> tuple[str, str]:
        # 3.2.4.1.1: the attribute name and value MUST NOT be empty strings.
        if not isinstance(name, str) or not is_name(name):
            raise _invalid(f"{name!r:.60} is not the name of an attribute", path, next="use a-z and 0-9")
        if not isinstance(text, str) or not text:
            raise _invalid(f"the text for {name} is empty or not a string", path)
        return name, text

    def children(self, content: object, path: str) -> tuple[Filter, ...]:
        if not isinstance(content, list):
            raise _invalid("not an array of filters", path)
        if not content:
            # 3.2.4.1.1: there MUST be at least one filter expression in the array.
            raise _invalid(f"{path.rpartition('.')[2]} is empty", path, next="give at least one filter")
        return tuple(self.read(item, f"{path}[{n}]") for n, item in enumerate(content))

    def sql(self, content: object, path: str) -> Sql:
        if not isinstance(content, str):
            raise _invalid("not a CESQL expression in a string", path)
        try:
            expression = parse_sql(content)
        except InvalidExpression as error:
            raise InvalidExpression(
                error.what, path=path, position=error.position, why=error.why, next=error.next
            ) from error
        self._check(expression, path)
        return Sql(content, expression)

    def _check(self, expression: Expression, path: str) -> None:
        """3.2.4.1.2: invalid expressions SHOULD be rejected; so are those that can never pass (CESQL 1.2)."""
        for node in walk(expression):
            if isinstance(node, Call) and self._functions.find(node.name, len(node.arguments)) is None:
                raise _invalid(f"no function {node.name} takes {len(node.arguments)} arguments", path)
        if (type_ := returns(expression, self._functions)) is not Type.BOOLEAN:
            raise _invalid(
                f"the expression gives {type_.value}: no event would pass", path, next="compare it"
            )


_DIALECTS: dict[str, Callable[[_Reader, object, str], Filter]] = {
    "exact": lambda reader, content, path: Exact(reader.pairs(content, path)),
    "prefix": lambda reader, content, path: Prefix(reader.pairs(content, path)),
    "suffix": lambda reader, content, path: Suffix(reader.pairs(content, path)),
    "all": lambda reader, content, path: AllOf(reader.children(content, path)),
    "any": lambda reader, content, path: AnyOf(reader.children(content, path)),
    "not": lambda reader, content, path: Not(reader.read(content, path)),
    "sql": _Reader.sql,
    "cesql": _Reader.sql,  # Knative's name for it
}


def matches(
    filter: Filter, event: CloudEvent | Mapping[str, object], *, functions: Functions = BUILTINS
) -> bool:
    """Tell whether an event, or a mapping of attribute names to values, passes the filter; never raises.

    >>> order = {"type": "shop.order.placed", "subject": "17"}
    >>> matches(parse_filter({"not": {"exact": {"subject": "18"}}}), order)
    True
    """
    attributes = attributes_of(event) if isinstance(event, CloudEvent) else event
    return _matches(filter, attributes, functions)


def _matches(filter: Filter, attributes: Mapping[str, object], functions: Functions) -> bool:
    match filter:
        case Exact(pairs):
            return all(_text(attributes, name) == text for name, text in pairs)
        case Prefix(pairs):
            return all((_text(attributes, name) or "").startswith(text) for name, text in pairs)
        case Suffix(pairs):
            return all((_text(attributes, name) or "").endswith(text) for name, text in pairs)
        case AllOf(filters):
            return all(_matches(child, attributes, functions) for child in filters)
        case AnyOf(filters):
            return any(_matches(child, attributes, functions) for child in filters)
        case Not(child):
            return not _matches(child, attributes, functions)
        case Sql():
            # CESQL 1.2: in a filter the engine SHOULD follow the fail fast mode.
            return evaluate(filter.expression, attributes, functions=functions, fail_fast=True).passes
        case _:
            assert_never(filter)


def _text(attributes: Mapping[str, object], name: str) -> str | None:
    """Give an attribute as text; Integers and Booleans have one spelling (core, Type System)."""
    value = attributes.get(name)
    return None if value is None else str(cast(as_value(value), Type.STRING))


def to_json(filter: Filter) -> dict[str, Any]:
    """Give the JSON shape of a filter; `parse_filter` reads it back as an equal one."""
    match filter:
        case Exact(pairs) | Prefix(pairs) | Suffix(pairs):
            return {type(filter).__name__.lower(): dict(pairs)}
        case AllOf(filters):
            return {"all": [to_json(child) for child in filters]}
        case AnyOf(filters):
            return {"any": [to_json(child) for child in filters]}
        case Not(child):
            return {"not": to_json(child)}
        case Sql():
            return {"sql": filter.text}
        case _:
            assert_never(filter)
