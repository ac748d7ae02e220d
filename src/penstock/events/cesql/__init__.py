"""The CloudEvents SQL expression language 1.0.0: text to a tree, and a tree to (value, errors)."""

from penstock.events.cesql.attributes import attributes_of
from penstock.events.cesql.builtins import BUILTINS
from penstock.events.cesql.evaluation import evaluate, returns
from penstock.events.cesql.functions import Failed, Function, Functions
from penstock.events.cesql.like import like
from penstock.events.cesql.parser import parse
from penstock.events.cesql.render import render
from penstock.events.cesql.result import ErrorKind, EvaluationError, Result, Type, Value
from penstock.events.cesql.syntax import (
    Binary,
    BooleanLiteral,
    Call,
    Exists,
    Expression,
    Identifier,
    In,
    IntegerLiteral,
    Like,
    Operator,
    StringLiteral,
    Unary,
    UnaryOperator,
    children,
    identifiers,
    walk,
)

__all__ = [
    "BUILTINS",
    "Binary",
    "BooleanLiteral",
    "Call",
    "ErrorKind",
    "EvaluationError",
    "Exists",
    "Expression",
    "Failed",
    "Function",
    "Functions",
    "Identifier",
    "In",
    "IntegerLiteral",
    "Like",
    "Operator",
    "Result",
    "StringLiteral",
    "Type",
    "Unary",
    "UnaryOperator",
    "Value",
    "attributes_of",
    "children",
    "evaluate",
    "identifiers",
    "like",
    "parse",
    "render",
    "returns",
    "walk",
]
