"""SQL's function names, casts and intervals as calls of the plan's function table."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from sqlglot import expressions as sql

from penstock.pipeline.plan.functions import FUNCTIONS
from penstock.pipeline.plan.nodes import (
    Call,
    Coalesce,
    Compare,
    Comparison,
    If,
    IsNull,
    Node,
    Not,
    Now,
    Null,
    Number,
    Text,
    Type,
)
from penstock.pipeline.plan.numbers import EXACT, MAX_FRACTION, MAX_WHOLE
from penstock.pipeline.plan.typing import type_of

if TYPE_CHECKING:
    from penstock.pipeline.plan.sql_builder import Builder

__all__ = ["CALLS", "build_call", "build_cast", "interval_micros"]

_LONGEST: Final = 10**9
"""A length that no text reaches."""


def build_call(builder: Builder, tree: Any) -> Node:
    """Give the call for a SQL function."""
    return CALLS[type(tree)](builder, tree)


def _plain(function: str, *names: str, defaults: tuple[Node, ...] = ()) -> Callable[[Builder, Any], Node]:
    """Make the rule for a SQL function: which of its arguments go where, and what the last ones may be."""
    names = names or ("this",)

    def build(builder: Builder, tree: Any) -> Node:
        extra = {key for key, value in tree.args.items() if value not in (None, False, [])}
        if extra - {*names, "safe", "coalesce"}:
            return builder.refuse(tree)
        given = [tree.args[name] for name in names if tree.args.get(name) is not None]
        missing = len(names) - len(given)
        return _called(builder, function, given, defaults[len(defaults) - missing :], tree)

    return build


def _called(builder: Builder, function: str, parts: list[Any], defaults: tuple[Node, ...], tree: Any) -> Node:
    signature = FUNCTIONS[function]
    if not signature.takes(len(parts) + len(defaults)):
        return builder.report(tree, f"{function} does not take {len(parts)} arguments")
    arguments = tuple(
        builder.build_as(_undated(part), signature.parameter(index), scalar_text=True)
        for index, part in enumerate(parts)
    )
    return Call(function, arguments + defaults)


def _undated(tree: Any) -> Any:
    """Take away the cast to a date that the parser puts around arguments of year(), month(), day()."""
    return tree.this if isinstance(tree, sql.TsOrDsToDate) else tree


def _concat(builder: Builder, tree: Any) -> Node:
    return _called(builder, "concat", list(tree.expressions), (), tree)


def _pipe(builder: Builder, tree: Any) -> Node:
    parts, left = [tree.expression], tree.this
    while isinstance(left, sql.DPipe):
        parts.append(left.expression)
        left = left.this
    return _called(builder, "concat", [left, *reversed(parts)], (), tree)


_TRIMS: Final = {None: "trim", "": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def _trim(builder: Builder, tree: Any) -> Node:
    function = _TRIMS.get(tree.args.get("position") and str(tree.args["position"]).upper())
    if function is None or tree.args.get("collation"):
        return builder.refuse(tree)
    if tree.expression is None:
        return _called(builder, function, [tree.this], (Text(" "),), tree)
    return _called(builder, function, [tree.this, tree.expression], (), tree)


def _round(builder: Builder, tree: Any) -> Node:
    digits = tree.args.get("decimals") or sql.Literal.number(0)
    if tree.args.get("truncate") or not isinstance(digits, sql.Literal) or not digits.this.isdigit():
        return builder.report(tree, "round needs a number of digits from 0 to 18")
    return _rounded(builder.build_as(tree.this, Type.NUMBER), int(digits.this[:3]))


def _rounded(node: Node, digits: int) -> Node:
    return Call("round", (node, Number(Decimal(min(digits, MAX_FRACTION)))))


def _nullif(builder: Builder, tree: Any) -> Node:
    left, right = builder.together([tree.this, tree.expression])
    return If(Compare(Comparison.EQUAL, left, right), Null(), left)


def _quotient(builder: Builder, tree: Any) -> Node:
    return _called(builder, "quotient", [tree.this, tree.expression], (), tree)


# Functions that sqlglot does not know by name: the plan function and its arguments are in the same order.
_NAMED: Final[dict[str, tuple[str, tuple[Node, ...]]]] = {
    "btrim": ("trim", (Text(" "),)),
    "unix_micros": ("unix_micros", ()),
}


def _anonymous(builder: Builder, tree: Any) -> Node:
    name, arguments = str(tree.this).lower(), list(tree.expressions)
    if name == "now" and not arguments:
        return Now()
    if name in ("isnull", "isnotnull") and len(arguments) == 1:
        test = IsNull(builder.build(arguments[0]))
        return test if name == "isnull" else Not(test)
    if name == "try_to_timestamp" and len(arguments) == 1:
        return _to_time(builder, arguments[0])
    function, defaults = _NAMED.get(name, ("", ()))
    if not function:
        return builder.refuse(tree)
    missing = len(FUNCTIONS[function].parameters) - len(arguments)
    return _called(builder, function, arguments, defaults[:missing] if missing > 0 else (), tree)


def _to_time(builder: Builder, tree: Any) -> Node:
    return builder.build_as(tree, Type.TIME)


def _day(builder: Builder, tree: Any) -> Node:
    return _called(builder, "day", [tree.this], (), tree)


CALLS: Final[dict[type, Callable[[Builder, Any], Node]]] = {
    sql.Lower: _plain("lower"),
    sql.Upper: _plain("upper"),
    sql.Length: _plain("length"),
    sql.Substring: _plain("substring", "this", "start", "length", defaults=(Number(Decimal(_LONGEST)),)),
    sql.Left: _plain("left", "this", "expression"),
    sql.Right: _plain("right", "this", "expression"),
    sql.Replace: _plain("replace", "this", "expression", "replacement", defaults=(Text(""),)),
    sql.StartsWith: _plain("starts_with", "this", "expression"),
    sql.EndsWith: _plain("ends_with", "this", "expression"),
    sql.Contains: _plain("contains", "this", "expression"),
    sql.StrPosition: _plain("position", "this", "substr"),
    sql.Abs: _plain("abs"),
    sql.Floor: _plain("floor"),
    sql.Ceil: _plain("ceil"),
    sql.Year: _plain("year"),
    sql.Month: _plain("month"),
    sql.Day: _day,
    sql.DayOfMonth: _day,
    sql.Hour: _plain("hour"),
    sql.Minute: _plain("minute"),
    sql.Second: _plain("second"),
    sql.UnixSeconds: _plain("unix_seconds"),
    sql.UnixMillis: _plain("unix_millis"),
    sql.UnixMicros: _plain("unix_micros"),
    sql.Concat: _concat,
    sql.DPipe: _pipe,
    sql.Trim: _trim,
    sql.Round: _round,
    sql.Nullif: _nullif,
    sql.IntDiv: _quotient,
    sql.Anonymous: _anonymous,
}
"""Every class of sqlglot that becomes a call."""

_INTEGERS: Final = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
_DECIMAL: Final = (10, 0)
_TO_NUMBER: Final = {Type.TEXT: "number_of_text", Type.JSON: "number_of_json"}


def build_cast(builder: Builder, tree: Any) -> Node:
    """Give the conversion that a CAST asks for; what cannot be converted is null, as in TRY_CAST."""
    name = tree.args["to"].this.name
    if name in ("TEXT", "VARCHAR"):
        return builder.build_as(tree.this, Type.TEXT, scalar_text=True)
    if name in ("TIMESTAMP", "TIMESTAMPTZ", "DATE"):
        return _cast_time(builder, tree, name)
    if name == "BOOLEAN":
        return _cast_boolean(builder, tree)
    if name in _INTEGERS or name == "DECIMAL":
        return _cast_number(builder, tree, name)
    return builder.refuse(tree)


def _cast_time(builder: Builder, tree: Any, name: str) -> Node:
    literal = isinstance(tree.this, sql.Literal)
    return builder.refuse(tree) if name == "DATE" and not literal else builder.build_as(tree.this, Type.TIME)


def _cast_boolean(builder: Builder, tree: Any) -> Node:
    node = builder.build(tree.this)
    if type_of(node) is Type.TEXT:
        return Call("boolean_of_text", (node,))
    return builder.convert(node, Type.BOOLEAN, tree.this)


def _cast_number(builder: Builder, tree: Any, name: str) -> Node:
    node = builder.build(tree.this)
    function = _TO_NUMBER.get(type_of(node))
    if function is not None:
        node = Call(function, (node,))
        if function == "number_of_json":
            text = Call("number_of_text", (Call("string_of_json", node.arguments),))
            node = Coalesce((node, text))  # a cast is asked for: the text of a JSON string counts as well
    number = builder.convert(node, Type.NUMBER, tree.this)
    if name != "DECIMAL":
        return _within(Call("truncate", (number,)), -_INTEGERS[name], _INTEGERS[name] - 1)
    given = [int(part.this.this) for part in tree.args["to"].expressions]
    # Spark: DECIMAL is DECIMAL(10,0), and DECIMAL(p) is DECIMAL(p,0).
    precision, scale = (*given, *_DECIMAL[len(given) :])[:2]
    if not 0 <= scale <= min(precision, MAX_FRACTION) or precision - scale > MAX_WHOLE:
        return builder.report(tree, f"DECIMAL({precision},{scale}) is too wide", fix="use DECIMAL(37,18)")
    largest = EXACT.scaleb(Decimal(10**precision - 1), -scale)
    return _within(_rounded(number, scale), largest.copy_negate(), largest)


def _within(node: Node, low: int | Decimal, high: int | Decimal) -> Node:
    """Give a number, or null where the type that it is cast to does not hold it."""
    return Call("within", (node, Number(EXACT.create_decimal(low)), Number(EXACT.create_decimal(high))))


_UNITS: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}
_MAX_INTERVAL: Final = 10**17


def interval_micros(builder: Builder, tree: Any) -> Decimal:
    """Give the length of the interval on the right in microseconds; months and years have none."""
    interval = tree.expression
    unit = _UNITS.get(str(interval.args.get("unit") or "").upper().removesuffix("S"))
    try:
        count = Decimal(str(interval.this.this if interval.this is not None else ""))
    except InvalidOperation:
        count = Decimal("NaN")
    micros = count * unit if unit and count.is_finite() and abs(count) < _MAX_INTERVAL else None
    if micros is None or abs(micros) > _MAX_INTERVAL:
        builder.report(
            tree, "not an interval of a fixed length", fix="write INTERVAL 90 MINUTES, up to WEEKS"
        )
        return Decimal(0)
    return micros.to_integral_value()
