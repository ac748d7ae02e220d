"""Conditions and values of a plan as the numbers that the routing kernel reads.

`stops` decides what can be assembled; `Assembler` then writes it: instructions into `code`, constants into a
pool of bytes, paths as slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.pipeline.plan.explain import explain
from penstock.pipeline.plan.nodes import (
    And,
    Attribute,
    Boolean,
    Call,
    Coalesce,
    Compare,
    Comparison,
    Data,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Null,
    Number,
    Or,
    Step,
    Text,
    Time,
    Type,
)
from penstock.pipeline.plan.patterns import quoted
from penstock.pipeline.plan.times import time_text
from penstock.pipeline.plan.typing import type_of
from penstock.wire import routing_layout as at

__all__ = ["CORE", "Assembler", "stops_condition", "stops_value"]

CORE: Final = tuple(at.CORE_NAMES.decode().split())
MAX_DIGITS: Final = 15
"""So many digits survive a double: two such decimals compare as their doubles do."""

MAX_CHOICES: Final = 16
"""Operands of a coalesce of texts or numbers: the tests that it becomes grow with their square."""

_SIGNS: Final = {
    Comparison.EQUAL: at.EQUAL,
    Comparison.NOT_EQUAL: at.LESS | at.GREATER,
    Comparison.LESS: at.LESS,
    Comparison.LESS_OR_EQUAL: at.LESS | at.EQUAL,
    Comparison.GREATER: at.GREATER,
    Comparison.GREATER_OR_EQUAL: at.GREATER | at.EQUAL,
}
_MIRRORED: Final = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER_OR_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS_OR_EQUAL,
}
_PATTERNS: Final = {"starts_with": "{}%", "ends_with": "%{}", "contains": "%{}%"}
_OF_PATH: Final = {"string_of_json": at.P_STRING, "text_of_json": at.P_SCALAR}


# What can be done


def stops_condition(node: Node) -> Iterator[str]:
    """Name the parts of a condition that the kernel cannot do."""
    match node:
        case Boolean() | Null():
            return
        case And() | Or() | Coalesce():
            for operand in node.operands:
                yield from stops_condition(operand)
        case Not():
            yield from stops_condition(node.operand)
        case _ if not _can(node):
            yield explain(node)


def _can(node: Node) -> bool:
    if any(isinstance(part, Coalesce) and len([*_flat(part)]) > MAX_CHOICES for part, _ in _operands(node)):
        return False
    if (choice := _chosen_first(node)) is not None:
        return not [*stops_condition(choice)]
    match node:
        case Compare():
            return _can_compare(node.left, node.right)
        case In():
            return all(_can(Compare(Comparison.EQUAL, node.operand, element)) for element in node.elements)
        case Like():
            return _is_text(node.operand)
        case IsNull():
            return _can_be_null(node.operand)
        case Call(function=name) if name in _PATTERNS:
            return _is_text(node.arguments[0]) and isinstance(node.arguments[1], Text)
        case _:
            return _is_boolean(node)


def _chosen_first(node: Node) -> Node | None:
    """Give a test on a coalesce as tests on its operands, each behind those before it being null.

    None: the test has no coalesce of texts or numbers in it. The choice is exact in three-valued logic: all
    but one of its sides are false, so that one decides.
    """
    found = next(((part, put) for part, put in _operands(node) if isinstance(part, Coalesce)), None)
    if found is None:
        return None
    *firsts, last = _flat(found[0])
    put, missing = found[1], tuple(map(IsNull, firsts))
    choices: list[Node] = [
        And((*missing[:number], Not(missing[number]), put(operand))) for number, operand in enumerate(firsts)
    ]
    return Or((*choices, And((*missing, put(last)))))


def _flat(node: Node) -> Iterator[Node]:
    if isinstance(node, Coalesce):
        for operand in node.operands:
            yield from _flat(operand)
    else:
        yield node


def _operands(node: Node) -> Iterator[tuple[Node, Callable[[Node], Node]]]:
    """Give the texts and numbers that a test reads, each with the way to put another in its place."""
    match node:
        case Compare(operator=operator, left=left, right=right) if type_of(left) is not Type.BOOLEAN:
            yield left, lambda part: Compare(operator, part, right)
            yield right, lambda part: Compare(operator, left, part)
        case Like():
            yield node.operand, lambda part: replace(node, operand=part)
        case IsNull() if type_of(node.operand) is not Type.BOOLEAN:
            yield node.operand, IsNull
        case Call(function=name, arguments=(operand, pattern)) if name in _PATTERNS:
            yield operand, lambda part: Call(name, (part, pattern))


def _can_compare(left: Node, right: Node) -> bool:
    if isinstance(left, Null) or isinstance(right, Null):
        return True
    match type_of(left):
        case Type.TEXT:
            return _is_text(left) and _is_text(right)
        case Type.BOOLEAN:
            return not [*stops_condition(left), *stops_condition(right)]
        case Type.NUMBER:
            one_constant = (_is_number(left) and _is_exact(right)) or (_is_exact(left) and _is_number(right))
            return one_constant or (isinstance(left, Number) and isinstance(right, Number))
        case _:
            return False


def _can_be_null(node: Node) -> bool:
    match type_of(node):
        case Type.JSON:
            return isinstance(node, Data)
        case Type.TEXT:
            return _is_text(node)
        case Type.NUMBER:
            return _is_number(node) or isinstance(node, Number)
        case Type.BOOLEAN:
            return not [*stops_condition(node)]
        case found:
            return found is Type.NULL


def _is_text(node: Node) -> bool:
    match node:
        case Text() | Attribute():
            return True
        case Call(function=name, arguments=(Data(),)):
            return name in _OF_PATH
        case _:
            return False


def _is_number(node: Node) -> bool:
    match node:
        case Call(function="number_of_json", arguments=(Data(),)):
            return True
        case Call(function="number_of_text", arguments=(Attribute(),)):
            return True
        case _:
            return False


def _is_boolean(node: Node) -> bool:
    match node:
        case Call(function="boolean_of_json", arguments=(Data(),)):
            return True
        case Call(function="boolean_of_text", arguments=(Attribute(),)):
            return True
        case _:
            return False


def _is_exact(node: Node) -> bool:
    """Tell whether a constant has few enough digits, written without an exponent."""
    if not isinstance(node, Number):
        return False
    _, digits, exponent = node.value.as_tuple()
    assert isinstance(exponent, int)  # a literal is finite
    return len(digits) + max(exponent, 0) <= MAX_DIGITS and -exponent <= MAX_DIGITS


def stops_value(node: Node) -> Iterator[str]:
    """Name the parts of a value that the kernel cannot make."""
    for part in _parts(node):
        if not (_is_text(part) or isinstance(part, Null | Time)):
            yield explain(part)


def _parts(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Call) and node.function == "concat" and node.arguments:
        return tuple(part for argument in node.arguments for part in _parts(argument))
    return (node,)


# How it is written


@dataclass(slots=True)
class Assembler:
    """Writes expressions that nothing stops."""

    code: list[int] = field(default_factory=list)
    pool: bytearray = field(default_factory=lambda: bytearray(at.CORE_NAMES + at.CORE_HEADS))
    slots: dict[tuple[Step, ...], int] = field(default_factory=dict)

    def constant(self, raw: bytes) -> tuple[int, int]:
        """Put bytes into the pool; give place and size."""
        place = self.pool.find(raw)
        if place < 0:
            place = len(self.pool)
            self.pool += raw
        return place, len(raw)

    def head(self, name: str) -> int:
        """Put the head of an attribute into the pool; give its place, 0 for a name that is too long."""
        raw = name.encode()
        return self.constant(at.head_of(raw))[0] if len(raw) <= at.MAX_HEAD else 0

    def condition(self, conjuncts: tuple[Node, ...]) -> int:
        """Write a condition, all parts of which must be true; give where it begins, -1 for none."""
        if not conjuncts:
            return -1
        start = len(self.code)
        self._node(_positive(And(conjuncts)))
        self._do(at.I_END)
        return start

    def value(self, node: Node) -> int:
        """Write a value; give where it begins."""
        parts = [self._part(part) for part in _parts(node)]
        start = len(self.code)
        self.code += [len(parts), *(number for part in parts for number in part)]
        return start

    def attribute(self, name: str) -> tuple[int, int, int]:
        """Give an attribute as an operand."""
        if name in CORE:
            return at.P_CORE, CORE.index(name), 0
        return at.P_EXTENSION, *self.constant(name.encode())

    def _do(self, operation: int, *numbers: int) -> int:
        place = len(self.code)
        self.code += [operation, *numbers, *[0] * (at.I_INSTRUCTION - 1 - len(numbers))]
        return place

    def _part(self, node: Node) -> tuple[int, int, int]:
        match node:
            case Text():
                return at.P_CONSTANT, *self.constant(node.value.encode())
            case Time():
                return at.P_CONSTANT, *self.constant(time_text(node.micros).encode())
            case Attribute():
                return self.attribute(node.name)
            case Call(function=name, arguments=(Data(path=path),)):
                return _OF_PATH[name], self._slot(path), 0
            case _:
                return at.P_NULL, 0, 0

    def _slot(self, path: tuple[Step, ...]) -> int:
        return self.slots.setdefault(path, len(self.slots))

    def _node(self, node: Node) -> None:
        node = _chosen_first(node) or node
        _RULES[type(node)](self, node)

    def _literal(self, node: Boolean | Null) -> None:
        value = at.NULL if isinstance(node, Null) else at.TRUE if node.value else at.FALSE
        self._do(at.I_PUSH, value)

    def _joined(self, operands: tuple[Node, ...], neutral: int, join: int, jump: int) -> None:
        """Write operands one by one; as soon as one decides, the others are jumped over."""
        if not operands:
            self._do(at.I_PUSH, neutral)
            return
        jumps = []
        for number, operand in enumerate(operands):
            self._node(operand)
            if number:
                self._do(join)
            if number < len(operands) - 1:
                jumps.append(self._do(jump))
        for place in jumps:
            self.code[place + 1] = len(self.code)

    def _and(self, node: And) -> None:
        self._joined(node.operands, at.TRUE, at.I_AND, at.I_JUMP_FALSE)

    def _or(self, node: Or) -> None:
        self._joined(node.operands, at.FALSE, at.I_OR, at.I_JUMP_TRUE)

    def _coalesce(self, node: Coalesce) -> None:
        first, *rest = node.operands
        self._node(first)
        for operand in rest:
            self._node(operand)
            self._do(at.I_COALESCE)

    def _not(self, node: Not) -> None:
        self._node(node.operand)
        self._do(at.I_NOT)

    def _in(self, node: In) -> None:
        self._or(Or(tuple(Compare(Comparison.EQUAL, node.operand, each) for each in node.elements)))

    def _compare(self, node: Compare) -> None:
        if isinstance(node.left, Null) or isinstance(node.right, Null):
            self._do(at.I_PUSH, at.NULL)
            return
        _COMPARED[type_of(node.left)](self, node)

    def _compare_text(self, node: Compare) -> None:
        match node.left, node.right:
            case Attribute(name=name), Text(value=text) if name in CORE:
                constant = self.constant(text.encode())
                self._do(at.I_COMPARE_CORE, CORE.index(name), _SIGNS[node.operator], *constant)
            case _:
                self._compare_texts(node)

    def _compare_texts(self, node: Compare) -> None:
        self._do(at.I_LOAD_LEFT, *self._part(node.left))
        self._do(at.I_LOAD_RIGHT, *self._part(node.right))
        self._do(at.I_COMPARE_TEXT, _SIGNS[node.operator])

    def _compare_number(self, node: Compare) -> None:
        left, right, operator = node.left, node.right, node.operator
        if isinstance(left, Number) and isinstance(right, Number):
            self._literal(Boolean(bool(_SIGNS[operator] & _sign(left, right))))
            return
        if isinstance(left, Number):
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        assert isinstance(right, Number)  # `stops_condition` saw to that
        self._number(left)
        sign, digits, exponent = right.value.as_tuple()
        assert isinstance(exponent, int)
        whole = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
        self._do(at.I_COMPARE_NUMBER, _SIGNS[operator], whole, max(-exponent, 0))

    def _number(self, node: Node) -> None:
        match node:
            case Call(function="number_of_json", arguments=(Data(path=path),)):
                self._do(at.I_NUMBER_OF_PATH, self._slot(path))
            case Call(arguments=(argument,)):
                self._do(at.I_LOAD_LEFT, *self._part(argument))
                self._do(at.I_NUMBER_OF_TEXT)

    def _compare_boolean(self, node: Compare) -> None:
        self._node(node.left)
        self._node(node.right)
        self._do(at.I_COMPARE_BOOLEAN, _SIGNS[node.operator])

    def _like(self, node: Like) -> None:
        self._matches(node.operand, node.pattern)

    def _matches(self, operand: Node, pattern: str) -> None:
        self._do(at.I_LOAD_LEFT, *self._part(operand))
        self._do(at.I_LIKE, *self.constant(_pattern(pattern)))

    def _call(self, node: Call) -> None:
        match node:
            case Call(function=name, arguments=(operand, Text(value=text))):
                self._matches(operand, _PATTERNS[name].format(quoted(text)))
            case Call(function="boolean_of_json", arguments=(Data(path=path),)):
                self._do(at.I_BOOLEAN_OF_PATH, self._slot(path))
            case Call(arguments=(argument,)):
                self._do(at.I_LOAD_LEFT, *self._part(argument))
                self._do(at.I_BOOLEAN_OF_TEXT)

    def _is_null(self, node: IsNull) -> None:
        operand = node.operand
        match type_of(operand):
            case Type.JSON:
                assert isinstance(operand, Data)  # `stops_condition` saw to that
                self._do(at.I_PATH_IS_NULL, self._slot(operand.path))
            case Type.TEXT:
                self._do(at.I_LOAD_LEFT, *self._part(operand))
                self._do(at.I_TEXT_IS_NULL)
            case Type.NUMBER if isinstance(operand, Number):
                self._literal(Boolean(False))
            case Type.NUMBER:
                self._number(operand)
                self._do(at.I_NUMBER_IS_NULL)
            case _:
                self._node(operand)
                self._do(at.I_BOOLEAN_IS_NULL)


def _sign(left: Number, right: Number) -> int:
    return at.LESS if left.value < right.value else at.EQUAL if left.value == right.value else at.GREATER


def _positive(node: Node) -> Node:
    """Leave out that null is false, where only true counts: above AND and OR a null decides as false does."""
    match node:
        case And() | Or():
            return replace(node, operands=tuple(map(_positive, node.operands)))
        case Coalesce(operands=(operand, Boolean(value=False))):
            return _positive(operand)
        case _:
            return node


def _pattern(pattern: str) -> bytes:
    r"""Write a LIKE pattern with wildcards as bytes that no text has.

    >>> _pattern("a_%\\%")
    b'a\xff\xfe%'
    """
    wild = {"%": bytes([at.ANY]), "_": bytes([at.ONE])}
    written, characters = b"", iter(pattern)
    for character in characters:
        if character == "\\":
            written += next(characters, "\\").encode()
        else:
            written += wild.get(character) or character.encode()
    return written


_RULES: Final[dict[type, Callable[[Assembler, Any], None]]] = {
    Boolean: Assembler._literal,
    Null: Assembler._literal,
    And: Assembler._and,
    Or: Assembler._or,
    Coalesce: Assembler._coalesce,
    Not: Assembler._not,
    In: Assembler._in,
    Compare: Assembler._compare,
    Like: Assembler._like,
    IsNull: Assembler._is_null,
    Call: Assembler._call,
}
_COMPARED: Final[dict[Type, Callable[[Assembler, Compare], None]]] = {
    Type.TEXT: Assembler._compare_text,
    Type.NUMBER: Assembler._compare_number,
    Type.BOOLEAN: Assembler._compare_boolean,
}
