"""Plan expressions as Spark columns: one rule for each node, with the meaning of the reference.

A rule may use its operands many times over, and an expression written out that way would grow with a power of
its depth. So the operands become columns of their own, in one projection for each level; Spark joins
projections again where a column is used once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from penstock.errors import UnsupportedPlan
from penstock.pipeline.columns.binding import Binding
from penstock.pipeline.columns.calls import CALLS, is_number, is_string
from penstock.pipeline.columns.limits import stops
from penstock.pipeline.columns.numbers import (
    ARITHMETIC,
    COMPARISONS,
    DECIMAL,
    Numeric,
    compared_numbers,
    literal,
    number_of,
)
from penstock.pipeline.plan.functions import FUNCTIONS
from penstock.pipeline.plan.nodes import (
    And,
    Arithmetic,
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
    Raw,
    Text,
    Time,
    Type,
    children,
)
from penstock.pipeline.plan.typing import common, type_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Program"]

_SPARK_TYPES: Final = {
    Type.BOOLEAN: "boolean",
    Type.TEXT: "string",
    Type.TIME: "bigint",
    Type.JSON: "string",
    Type.NULL: "string",
}


Built = tuple[Any, int]
"""A Column, or a Numeric for a number, and the level of projections that it needs."""
# Nodes whose columns cost nothing: there is no use in giving them another name.
_CHEAP: Final = (Null, Boolean, Number, Text, Time, Now, Data)


class Program:
    """Expressions over one frame; their columns are valid on the frame that `apply` gives."""

    def __init__(self, binding: Binding, prefix: str = "_step") -> None:
        self.binding = binding
        self._prefix = prefix
        self._levels: list[dict[str, Column]] = []
        self._bound: dict[Node, Built] = {}
        self._count = 0

    def add(self, node: Node, want: Type | None = None) -> Column:
        """Give an expression as a column: boolean, string, bigint microseconds, or a number's decimal."""
        if stopped := stops(node):
            raise UnsupportedPlan("columns", stopped)
        found, _ = self.operand(node, want or type_of(node))
        column: Column = found.decimal if isinstance(found, Numeric) else found
        return column

    def apply(self, frame: DataFrame) -> DataFrame:
        """Add the columns that the expressions stand on, level by level."""
        return reduce(lambda below, level: below.withColumns(level), self._levels, frame)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that `apply` adds."""
        return tuple(name for level in self._levels for name in level)

    def build(self, node: Node, want: Type) -> Built:
        """Give the columns of a node; `want` is the type that a NULL takes."""
        return _RULES[type(node)](self, node, want)

    def operand(self, node: Node, want: Type) -> Built:
        """Give a node as columns that may be used many times."""
        if isinstance(node, _CHEAP):
            return self.build(node, want)
        if node not in self._bound:
            self._bound[node] = self._named(*self.build(node, want))
        return self._bound[node]

    def operands(self, nodes: tuple[Node, ...], want: Type) -> tuple[list[Any], int]:
        """Give several nodes, and the highest of their levels."""
        found = [self.operand(node, want) for node in nodes]
        return [value for value, _ in found], max((level for _, level in found), default=0)

    def _named(self, value: Any, level: int) -> Built:
        if isinstance(value, Numeric):
            double = None if value.double is None else self._column(value.double, level)
            return Numeric(self._column(value.decimal, level), double), level + 1
        return self._column(value, level), level + 1

    def _column(self, column: Column, level: int) -> Column:
        self._levels += [{} for _ in range(level + 1 - len(self._levels))]
        name = f"{self._prefix}{self._count}"
        self._count += 1
        self._levels[level][name] = column
        return F.col(name)


def _null(program: Program, node: Null, want: Type) -> Built:
    return literal(None) if want is Type.NUMBER else F.lit(None).cast(_SPARK_TYPES[want]), 0


def _raw(program: Program, node: Raw, want: Type) -> Built:
    column = F.expr(node.sql)
    if node.type is Type.NUMBER:
        return Numeric(column.try_cast(DECIMAL)), 0
    return F.unix_micros(column) if node.type is Type.TIME else column.cast(_SPARK_TYPES[node.type]), 0


def _same_type(nodes: tuple[Node, ...]) -> Type:
    return common(tuple(map(type_of, nodes))) or Type.NULL


def _compared(operator: Comparison, left: Any, right: Any, type_: Type) -> Column:
    if type_ is Type.NUMBER:
        return compared_numbers(operator, left, right)
    if type_ is Type.JSON:
        return _compared_json(operator, left, right)
    return COMPARISONS[operator](left, right)


def _compared_json(operator: Comparison, left: Column, right: Column) -> Column:
    """Compare tagged text: strings with strings, numbers with numbers, booleans with booleans."""
    texts = COMPARISONS[operator](left, right)  # the tag is the same, and false comes before true
    numbers = compared_numbers(operator, number_of(left), number_of(right))
    words = left.isin("true", "false") & right.isin("true", "false")
    return F.when((is_string(left) & is_string(right)) | words, texts).when(
        is_number(left) & is_number(right), numbers
    )


def _compare(program: Program, node: Compare, want: Type) -> Built:
    type_ = _same_type((node.left, node.right))
    (left, right), level = program.operands((node.left, node.right), type_)
    return _compared(node.operator, left, right, type_), level


def _logic(combine: Callable[[Any, Any], Any]) -> Callable[[Program, Any, Type], Built]:
    """Make a rule for AND or OR: each operand is used once, so none needs a name."""

    def rule(program: Program, node: And | Or, want: Type) -> Built:
        found = [program.build(operand, Type.BOOLEAN) for operand in node.operands]
        return reduce(combine, (column for column, _ in found)), max(level for _, level in found)

    return rule


def _not(program: Program, node: Not, want: Type) -> Built:
    column, level = program.build(node.operand, Type.BOOLEAN)
    return ~column, level


def _in(program: Program, node: In, want: Type) -> Built:
    type_ = _same_type(children(node))
    (operand, *elements), level = program.operands(children(node), type_)
    if all(isinstance(element, Text) for element in node.elements):
        return operand.isin([element.value for element in node.elements if isinstance(element, Text)]), level
    return reduce(or_, (_compared(Comparison.EQUAL, operand, element, type_) for element in elements)), level


def _like(program: Program, node: Like, want: Type) -> Built:
    column, level = program.build(node.operand, Type.TEXT)
    return column.like(node.pattern), level


def _coalesce(program: Program, node: Coalesce, want: Type) -> Built:
    type_ = common(tuple(map(type_of, node.operands))) or want
    operands, level = program.operands(node.operands, want if type_ is Type.NULL else type_)
    if not isinstance(operands[0], Numeric):
        return F.coalesce(*operands), level
    return reduce(lambda rest, first: _chosen(~first.is_null, first, rest), reversed(operands)), level


def _if(program: Program, node: If, want: Type) -> Built:
    branches = (node.then, node.otherwise)
    type_ = common(tuple(map(type_of, branches))) or want
    condition, level = program.operand(node.condition, Type.BOOLEAN)
    (then, otherwise), below = program.operands(branches, want if type_ is Type.NULL else type_)
    return _chosen(condition, then, otherwise), max(level, below)


def _chosen(condition: Column, then: Any, otherwise: Any) -> Any:
    if not isinstance(then, Numeric):
        return F.when(condition, then).otherwise(otherwise)
    nothing = F.lit(None).cast("double")
    doubles = [nothing if branch.double is None else branch.double for branch in (then, otherwise)]
    return Numeric(
        F.when(condition, then.decimal).otherwise(otherwise.decimal),
        F.when(condition, doubles[0]).otherwise(doubles[1]),
    )


def _arithmetic(program: Program, node: Arithmetic, want: Type) -> Built:
    (left, right), level = program.operands((node.left, node.right), Type.NUMBER)
    return ARITHMETIC[node.operator](left.decimal, right.decimal), level


def _call(program: Program, node: Call, want: Type) -> Built:
    if node.function == "text_of_json":
        return program.build(_scalar_text(node.arguments), Type.TEXT)
    signature = FUNCTIONS[node.function]
    found = [
        program.operand(argument, signature.parameter(index)) for index, argument in enumerate(node.arguments)
    ]
    arguments = [value for value, _ in found]
    if node.function == "round":
        digits = node.arguments[1]
        arguments[1] = int(digits.value) if isinstance(digits, Number) else 0
    return CALLS[node.function](*arguments), max((level for _, level in found), default=0)


def _scalar_text(arguments: tuple[Node, ...]) -> Node:
    """Write the text of a JSON scalar as what it is for each type."""
    return Coalesce(
        (
            Call("string_of_json", arguments),
            Call("text_of_number", (Call("number_of_json", arguments),)),
            Call("text_of_boolean", (Call("boolean_of_json", arguments),)),
        )
    )


def _is_null(program: Program, node: IsNull, want: Type) -> Built:
    operand, level = program.build(node.operand, type_of(node.operand))
    return operand.is_null if isinstance(operand, Numeric) else operand.isNull(), level


_RULES: Final[dict[type, Callable[[Program, Any, Type], Built]]] = {
    Null: _null,
    Boolean: lambda program, node, want: (F.lit(node.value), 0),
    Number: lambda program, node, want: (literal(node.value), 0),
    Text: lambda program, node, want: (F.lit(node.value), 0),
    Time: lambda program, node, want: (F.lit(node.micros).cast("bigint"), 0),
    Now: lambda program, node, want: (program.binding.now, 0),
    Attribute: lambda program, node, want: (program.binding.attribute(node.name), 0),
    Data: lambda program, node, want: (program.binding.path(node.path), 0),
    Compare: _compare,
    And: _logic(and_),
    Or: _logic(or_),
    Not: _not,
    In: _in,
    Like: _like,
    IsNull: _is_null,
    Coalesce: _coalesce,
    If: _if,
    Arithmetic: _arithmetic,
    Call: _call,
    Raw: _raw,
}
