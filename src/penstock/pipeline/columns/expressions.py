"""Plan expressions as Spark columns: one rule for each node, with the meaning of the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    from pyspark.sql import Column

__all__ = ["compile_expression"]

_SPARK_TYPES: Final = {
    Type.BOOLEAN: "boolean",
    Type.TEXT: "string",
    Type.TIME: "bigint",
    Type.JSON: "string",
    Type.NULL: "string",
}


def compile_expression(node: Node, binding: Binding, want: Type | None = None) -> Column:
    """Give an expression as a column: boolean, string, bigint microseconds, or the decimal of a number."""
    if stopped := stops(node):
        raise UnsupportedPlan("columns", stopped)
    found = _Compiler(binding).build(node, want or type_of(node))
    return found.decimal if isinstance(found, Numeric) else found


@dataclass(frozen=True, slots=True)
class _Compiler:
    binding: Binding

    def build(self, node: Node, want: Type) -> Any:
        """Give a Column, or a Numeric for a number; `want` is the type that a NULL takes."""
        return _RULES[type(node)](self, node, want)

    def columns(self, nodes: tuple[Node, ...], want: Type) -> list[Any]:
        return [self.build(node, want) for node in nodes]


def _null(compiler: _Compiler, node: Null, want: Type) -> Any:
    return literal(None) if want is Type.NUMBER else F.lit(None).cast(_SPARK_TYPES[want])


def _raw(compiler: _Compiler, node: Raw, want: Type) -> Any:
    column = F.expr(node.sql)
    if node.type is Type.NUMBER:
        return Numeric(column.try_cast(DECIMAL))
    return F.unix_micros(column) if node.type is Type.TIME else column.cast(_SPARK_TYPES[node.type])


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


def _compare(compiler: _Compiler, node: Compare, want: Type) -> Column:
    type_ = _same_type((node.left, node.right))
    left, right = compiler.columns((node.left, node.right), type_)
    return _compared(node.operator, left, right, type_)


def _in(compiler: _Compiler, node: In, want: Type) -> Column:
    type_ = _same_type(children(node))
    operand, *elements = compiler.columns(children(node), type_)
    if all(isinstance(element, Text) for element in node.elements):
        texts = [element.value for element in node.elements if isinstance(element, Text)]
        column: Column = operand.isin(texts)
        return column
    tests = [_compared(Comparison.EQUAL, operand, element, type_) for element in elements]
    return reduce(or_, tests)


def _coalesce(compiler: _Compiler, node: Coalesce, want: Type) -> Any:
    type_ = _same_type(node.operands)
    operands = compiler.columns(node.operands, type_)
    if type_ is not Type.NUMBER:
        return F.coalesce(*operands)
    return reduce(lambda rest, first: _chosen(~first.is_null, first, rest), reversed(operands))


def _if(compiler: _Compiler, node: If, want: Type) -> Any:
    branches = (node.then, node.otherwise)
    condition = compiler.build(node.condition, Type.BOOLEAN)
    then, otherwise = compiler.columns(branches, common(tuple(map(type_of, branches))) or want)
    return _chosen(condition, then, otherwise)


def _chosen(condition: Column, then: Any, otherwise: Any) -> Any:
    if not isinstance(then, Numeric):
        return F.when(condition, then).otherwise(otherwise)
    nothing = F.lit(None).cast("double")
    doubles = [nothing if branch.double is None else branch.double for branch in (then, otherwise)]
    return Numeric(
        F.when(condition, then.decimal).otherwise(otherwise.decimal),
        F.when(condition, doubles[0]).otherwise(doubles[1]),
    )


def _arithmetic(compiler: _Compiler, node: Arithmetic, want: Type) -> Numeric:
    left, right = compiler.columns((node.left, node.right), Type.NUMBER)
    return ARITHMETIC[node.operator](left.decimal, right.decimal)


def _call(compiler: _Compiler, node: Call, want: Type) -> Any:
    signature = FUNCTIONS[node.function]
    arguments = [
        compiler.build(argument, signature.parameter(index)) for index, argument in enumerate(node.arguments)
    ]
    if node.function == "round":
        digits = node.arguments[1]
        return CALLS["round"](arguments[0], int(digits.value) if isinstance(digits, Number) else 0)
    return CALLS[node.function](*arguments)


def _is_null(compiler: _Compiler, node: IsNull, want: Type) -> Column:
    operand = compiler.build(node.operand, type_of(node.operand))
    return operand.is_null if isinstance(operand, Numeric) else operand.isNull()


_RULES: Final[dict[type, Callable[[_Compiler, Any, Type], Any]]] = {
    Null: _null,
    Boolean: lambda compiler, node, want: F.lit(node.value),
    Number: lambda compiler, node, want: literal(node.value),
    Text: lambda compiler, node, want: F.lit(node.value),
    Time: lambda compiler, node, want: F.lit(node.micros).cast("bigint"),
    Now: lambda compiler, node, want: compiler.binding.now,
    Attribute: lambda compiler, node, want: compiler.binding.attribute(node.name),
    Data: lambda compiler, node, want: compiler.binding.path(node.path),
    Compare: _compare,
    And: lambda compiler, node, want: reduce(and_, compiler.columns(node.operands, Type.BOOLEAN)),
    Or: lambda compiler, node, want: reduce(or_, compiler.columns(node.operands, Type.BOOLEAN)),
    Not: lambda compiler, node, want: ~compiler.build(node.operand, Type.BOOLEAN),
    In: _in,
    Like: lambda compiler, node, want: compiler.build(node.operand, Type.TEXT).like(node.pattern),
    IsNull: _is_null,
    Coalesce: _coalesce,
    If: _if,
    Arithmetic: _arithmetic,
    Call: _call,
    Raw: _raw,
}
