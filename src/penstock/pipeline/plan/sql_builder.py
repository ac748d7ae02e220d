"""sqlglot's syntax tree to plan nodes: one small rule for each class that the plan can carry."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from sqlglot import expressions as sql

from penstock.events.rules import is_name
from penstock.pipeline.plan.coercion import NotConvertible, compared_type, converted
from penstock.pipeline.plan.finding import ExpressionFinding
from penstock.pipeline.plan.nodes import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Attribute,
    Boolean,
    Call,
    Coalesce,
    Compare,
    Comparison,
    Data,
    If,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Now,
    Null,
    Number,
    Or,
    Step,
    Text,
    Type,
)
from penstock.pipeline.plan.numbers import fits
from penstock.pipeline.plan.patterns import from_escaped
from penstock.pipeline.plan.sql_calls import CALLS, build_call, build_cast, interval_micros
from penstock.pipeline.plan.typing import type_of

__all__ = ["ONE_EVENT", "Builder", "many_events"]

MAX_STEPS: Final = 32
MAX_INDEX: Final = 1_000_000
UNDER_SQL: Final = "the plan of a route cannot carry it; it is allowed under sql:, which Spark answers"


ONE_EVENT: Final = "ask about one event; count and compare events in a DataFrame (penstock.spark)"
_MANY: Final = (sql.AggFunc, sql.Window, sql.Query, sql.UDTF)


def many_events(tree: Any) -> str | None:
    """Say what in an expression needs more than one row; None if nothing does."""
    found = next(iter(tree.find_all(*_MANY)), None)
    return None if found is None else f"{_name(found)} looks at many events, a condition looks at one"


class Builder:
    """Builds one expression and collects what is wrong with it; a wrong part becomes NULL."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.findings: list[ExpressionFinding] = []

    def report(self, tree: Any, what: str, *, why: str = "", fix: str = "") -> Node:
        """Note a finding at the first character of a part."""
        self.findings.append(ExpressionFinding(_position(tree), what, why, fix))
        return Null()

    def refuse(self, tree: Any) -> Node:
        """Note that the plan has nothing for this part."""
        if (problem := many_events(tree)) is not None:
            return self.report(tree, problem, fix=ONE_EVENT)
        return self.report(
            tree, f"{_name(tree)} is not in the language of routes", why=UNDER_SQL, fix="write it under sql:"
        )

    def build(self, tree: Any) -> Node:
        """Give the node for a part of the tree."""
        rule = _RULES.get(type(tree))
        if rule is not None and _only(tree, _ARGUMENTS.get(type(tree), ())):
            return rule(self, tree)
        return build_call(self, tree) if type(tree) in CALLS else self.refuse(tree)

    def build_as(self, tree: Any, want: Type, *, scalar_text: bool = False) -> Node:
        """Give the node for a part, as the type its place needs."""
        return self.convert(self.build(tree), want, tree, scalar_text=scalar_text)

    def convert(self, node: Node, want: Type, tree: Any, *, scalar_text: bool = False) -> Node:
        """Convert a node, or note why it cannot be."""
        try:
            return converted(node, want, scalar_text=scalar_text)
        except NotConvertible as wrong:
            return self.report(tree, wrong.what, fix=wrong.fix)

    def together(self, trees: list[Any]) -> tuple[Node, ...]:
        """Build parts that are compared with each other, all as one type."""
        nodes = tuple(map(self.build, trees))
        want = compared_type(nodes)
        return tuple(self.convert(node, want, tree) for node, tree in zip(nodes, trees, strict=True))

    def alike(self, trees: list[Any]) -> tuple[Node, ...]:
        """Build parts of which one is taken: JSON stays JSON only if all are."""
        nodes = tuple(map(self.build, trees))
        types = {type_of(node) for node in nodes} - {Type.NULL, Type.JSON}
        want = types.pop() if len(types) == 1 else None
        if types:
            self.report(trees[0], "the parts have different types", fix="use CAST to make them one type")
            return (Null(),) * len(nodes)
        return tuple(
            node if want is None else self.convert(node, want, tree)
            for node, tree in zip(nodes, trees, strict=True)
        )


def _position(tree: Any) -> int:
    places = [part.meta["start"] for part in tree.walk() if "start" in part.meta]
    return min(places, default=0)


def _name(tree: Any) -> str:
    if isinstance(tree, sql.Anonymous):
        return f"the function {str(tree.this)[:60]}"
    return type(tree).key.upper() if isinstance(type(tree).key, str) else type(tree).__name__.upper()


def _only(tree: Any, allowed: tuple[str, ...]) -> bool:
    """Tell whether a part has no argument that we do not know: each could change its meaning."""
    known = {"this", "expression", *allowed}
    return all(value in (None, False, []) or key in known for key, value in tree.args.items())


def _literal(builder: Builder, tree: Any) -> Node:
    if tree.is_string:
        return _text(builder, tree)
    try:
        value = Decimal(tree.this)
    except InvalidOperation:
        return builder.refuse(tree)
    if not value.is_finite() or not fits(value):
        return builder.report(
            tree, f"the number {tree.this[:60]} is out of range", why="19 digits before the point, 18 after"
        )
    return Number(value)


def _text(builder: Builder, tree: Any) -> Node:
    value = str(tree.this)
    if any("\ud800" <= character <= "\udfff" for character in value):
        return builder.report(tree, "a text with half of a surrogate pair", why="no event can hold it")
    return Text(value)


def _steps(builder: Builder, tree: Any) -> list[Step] | None:
    """Give the names and indexes of a column, the first name included; None if it is something else."""
    match tree:
        case sql.Column():
            parts = [tree.args.get(key) for key in ("catalog", "db", "table", "this")]
            names = [part for part in parts if part is not None]
            return (
                [part.this for part in names] if all(isinstance(p, sql.Identifier) for p in names) else None
            )
        case sql.Dot() if isinstance(tree.expression, sql.Identifier):
            return _longer(_steps(builder, tree.this), tree.expression.this)
        case sql.Bracket() if len(tree.expressions) == 1:
            index = tree.expressions[0]
            if not isinstance(index, sql.Literal):
                return None
            if index.is_string:
                return _longer(_steps(builder, tree.this), index.this)
            small = index.this.isdigit() and len(index.this) <= len(str(MAX_INDEX))
            return _longer(_steps(builder, tree.this), int(index.this)) if small else None
        case _:
            return None


def _longer(steps: list[Step] | None, step: Step) -> list[Step] | None:
    return None if steps is None else [*steps, step]


def _column(builder: Builder, tree: Any) -> Node:
    steps = _steps(builder, tree)
    if steps is None or len(steps) > MAX_STEPS:
        return builder.report(
            tree,
            "not a path into the data",
            fix="write members and indexes as in data.items[0].`net price`",
        )
    root, *path = steps
    name = str(root).lower()  # names of columns have no case in Spark SQL, those of attributes no upper case
    if name == "data":
        return Data(tuple(path))
    if path:
        return builder.report(tree, f"{name[:60]} has no members", fix="only data has: data.customer")
    if not is_name(name):
        return builder.report(
            tree, f"{name[:60]!r} is not the name of an attribute", why="core, Naming", fix="use a-z and 0-9"
        )
    return Attribute(name)


def _flattened(tree: Any, kind: Any) -> list[Any]:
    """Give the operands of a chain of AND or OR without recursion."""
    operands: list[Any] = []
    pending = [tree]
    while pending:
        part = pending.pop()
        if isinstance(part, kind):
            pending += [part.expression, part.this]
        elif isinstance(part, sql.Paren) and isinstance(part.this, kind):
            pending.append(part.this)
        else:
            operands.append(part)
    return operands


def _and(builder: Builder, tree: Any) -> Node:
    return And(tuple(builder.build_as(part, Type.BOOLEAN) for part in _flattened(tree, sql.And)))


def _or(builder: Builder, tree: Any) -> Node:
    return Or(tuple(builder.build_as(part, Type.BOOLEAN) for part in _flattened(tree, sql.Or)))


def _comparison(builder: Builder, tree: Any) -> Node:
    for part in (tree.this, tree.expression):
        if isinstance(part, sql.Null):
            return builder.report(tree, "a comparison with NULL is never true", fix="use IS NULL")
    left, right = builder.together([tree.this, tree.expression])
    return Compare(_COMPARISONS[type(tree)], left, right)


def _between(builder: Builder, tree: Any) -> Node:
    operand, low, high = builder.together([tree.this, tree.args["low"], tree.args["high"]])
    return And(
        (
            Compare(Comparison.GREATER_OR_EQUAL, operand, low),
            Compare(Comparison.LESS_OR_EQUAL, operand, high),
        )
    )


def _in(builder: Builder, tree: Any) -> Node:
    if not tree.expressions:
        return builder.refuse(tree)
    operand, *elements = builder.together([tree.this, *tree.expressions])
    return In(operand, tuple(elements))


def _like(builder: Builder, tree: Any, escape: str = "\\") -> Node:
    pattern = tree.expression
    if not isinstance(pattern, sql.Literal) or not pattern.is_string:
        return builder.report(
            tree, "LIKE with a pattern that is not a text", why=UNDER_SQL, fix="write it in quotes"
        )
    operand = builder.build_as(tree.this, Type.TEXT, scalar_text=True)
    try:
        node: Node = Like(operand, from_escaped(pattern.this, escape))
    except ValueError as exc:
        return builder.report(pattern, f"not a LIKE pattern: {exc}", fix="write the character alone")
    return Not(node) if tree.args.get("negate") else node


def _escape(builder: Builder, tree: Any) -> Node:
    escape = tree.expression
    if not isinstance(tree.this, sql.Like) or not isinstance(escape, sql.Literal) or len(escape.this) != 1:
        return builder.refuse(tree)
    return _like(builder, tree.this, escape.this)


def _is(builder: Builder, tree: Any) -> Node:
    if isinstance(tree.expression, sql.Null):
        return IsNull(builder.build(tree.this))
    if isinstance(tree.expression, sql.Boolean):
        operand = builder.build_as(tree.this, Type.BOOLEAN)
        return Coalesce((operand if tree.expression.this else Not(operand), Boolean(False)))
    return builder.refuse(tree)


def _arithmetic(builder: Builder, tree: Any) -> Node:
    if isinstance(tree, sql.Add | sql.Sub) and isinstance(tree.expression, sql.Interval):
        micros = interval_micros(builder, tree)
        moment = builder.build_as(tree.this, Type.TIME)
        return Call("shift", (moment, Number(-micros if isinstance(tree, sql.Sub) else micros)))
    left, right = (builder.build_as(part, Type.NUMBER) for part in (tree.this, tree.expression))
    return Arithmetic(_ARITHMETIC[type(tree)], left, right)


def _negative(builder: Builder, tree: Any) -> Node:
    operand = builder.build_as(tree.this, Type.NUMBER)
    if isinstance(operand, Number):
        return Number(operand.value.copy_negate())
    return Arithmetic(ArithmeticOperator.SUBTRACT, Number(Decimal(0)), operand)


def _if(builder: Builder, tree: Any) -> Node:
    condition = builder.build_as(tree.this, Type.BOOLEAN)
    then, otherwise = builder.alike([tree.args["true"], tree.args.get("false") or sql.Null()])
    return If(condition, then, otherwise)


def _case(builder: Builder, tree: Any) -> Node:
    if tree.args.get("this") is not None:
        return builder.refuse(tree)
    branches = tree.args["ifs"]
    results = [branch.args["true"] for branch in branches] + [tree.args.get("default") or sql.Null()]
    *values, node = builder.alike(results)
    for branch, value in reversed(list(zip(branches, values, strict=True))):
        node = If(builder.build_as(branch.this, Type.BOOLEAN), value, node)
    return node


_COMPARISONS: Final[dict[type, Comparison]] = {
    sql.EQ: Comparison.EQUAL,
    sql.NEQ: Comparison.NOT_EQUAL,
    sql.LT: Comparison.LESS,
    sql.LTE: Comparison.LESS_OR_EQUAL,
    sql.GT: Comparison.GREATER,
    sql.GTE: Comparison.GREATER_OR_EQUAL,
}
_ARITHMETIC: Final[dict[type, ArithmeticOperator]] = {
    sql.Add: ArithmeticOperator.ADD,
    sql.Sub: ArithmeticOperator.SUBTRACT,
    sql.Mul: ArithmeticOperator.MULTIPLY,
    sql.Div: ArithmeticOperator.DIVIDE,
    sql.Mod: ArithmeticOperator.REMAINDER,
}
_RULES: Final[dict[type, Callable[[Builder, Any], Node]]] = {
    **dict.fromkeys(_COMPARISONS, _comparison),
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys((sql.Column, sql.Dot, sql.Bracket), _column),
    **dict.fromkeys((sql.Cast, sql.TryCast), build_cast),
    sql.Literal: _literal,
    sql.RawString: _text,
    sql.Boolean: lambda builder, tree: Boolean(bool(tree.this)),
    sql.Null: lambda builder, tree: Null(),
    sql.Paren: lambda builder, tree: builder.build(tree.this),
    sql.And: _and,
    sql.Or: _or,
    sql.Not: lambda builder, tree: Not(builder.build_as(tree.this, Type.BOOLEAN)),
    sql.Between: _between,
    sql.In: _in,
    sql.Like: _like,
    sql.Escape: _escape,
    sql.Is: _is,
    sql.Neg: _negative,
    sql.If: _if,
    sql.Case: _case,
    sql.CurrentTimestamp: lambda builder, tree: Now(),
    sql.Coalesce: lambda builder, tree: Coalesce(builder.alike([tree.this, *tree.expressions])),
}
_ARGUMENTS: Final[dict[type, tuple[str, ...]]] = {
    sql.Column: ("table", "db", "catalog"),
    sql.Bracket: ("expressions", "offset"),
    sql.Literal: ("is_string",),
    sql.Div: ("typed", "safe"),
    sql.In: ("expressions",),
    sql.Between: ("low", "high"),
    sql.Like: ("negate",),
    sql.If: ("true", "false"),
    sql.Case: ("ifs", "default"),
    sql.Coalesce: ("expressions",),
    sql.Cast: ("to", "safe", "_type"),
    sql.TryCast: ("to", "safe", "_type"),
}
