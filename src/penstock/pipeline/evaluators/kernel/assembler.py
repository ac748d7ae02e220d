"""Conditions and values of a plan as the numbers that the routing kernel reads.

Instructions go into `code`, constants into a pool of bytes, paths become slots. What most routes ask, an
attribute or a number of the data against a constant, has short instructions of its own; everything else goes
over the stack of values. `expressible` decides what can be assembled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from penstock.pipeline.evaluators.kernel.expressible import (
    ARITHMETIC,
    FUNCTIONS,
    MAX_JOINED,
    OF_PATH,
    TESTS,
    bound_of,
    compared_type,
    digits_of,
)
from penstock.pipeline.evaluators.kernel.simplify import where_only_true_counts
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
    Step,
    Text,
    Time,
    Type,
)
from penstock.pipeline.plan.numbers import decimal_text
from penstock.pipeline.plan.patterns import quoted
from penstock.pipeline.plan.times import time_text
from penstock.pipeline.plan.typing import type_of
from penstock.wire import routing_layout as at

__all__ = ["CORE", "Assembler", "computed_parts"]

CORE: Final = tuple(at.CORE_NAMES.decode().split())
MAX_DIGITS: Final = 15
"""So many digits survive a double: two such decimals compare as their doubles do."""

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
_COMPARISONS: Final = {
    Type.TEXT: at.Q_COMPARE_TEXT,
    Type.NUMBER: at.Q_COMPARE_NUMBER,
    Type.TIME: at.Q_COMPARE_TIME,
}
_PATTERNS: Final = {"starts_with": "{}%", "ends_with": "%{}", "contains": "%{}%"}


def _is_loaded(node: Node) -> bool:
    """Tell whether a text is there as it is: a constant, an attribute, or what is at a path."""
    match node:
        case Text() | Attribute():
            return True
        case Call(function=name, arguments=(Data(),)):
            return name in OF_PATH
        case _:
            return False


def _is_plain(node: Node) -> bool:
    return _is_loaded(node) or isinstance(node, Null | Time)


def _is_read(node: Node) -> bool:
    """Tell whether a number stands in an attribute or at a path."""
    match node:
        case Call(function="number_of_json", arguments=(Data(),)):
            return True
        case Call(function="number_of_text", arguments=(Attribute(),)):
            return True
        case _:
            return False


def _is_short(node: Node) -> bool:
    """Tell whether a constant has so few digits that it compares as its double does."""
    found = digits_of(node) if isinstance(node, Number) else None
    return found is not None and abs(found[0]) < 10**MAX_DIGITS and found[1] <= MAX_DIGITS


def _is_read_against_short(node: Compare) -> bool:
    return (_is_read(node.left) and _is_short(node.right)) or (_is_short(node.left) and _is_read(node.right))


def _parts(node: Node) -> tuple[Node, ...]:
    """Give the texts that a value joins."""
    match node:
        case Call(function="concat", arguments=()):
            return (Text(""),)
        case Call(function="concat"):
            return tuple(chain.from_iterable(map(_parts, node.arguments)))
        case _:
            return (_folded(node),)


def _folded(node: Node) -> Node:
    """Give the text of a constant as a constant."""
    match node:
        case Call(function="text_of_number", arguments=(Number(value=value),)):
            return Text(decimal_text(value))
        case _:
            return node


def computed_parts(node: Node) -> int:
    """Count the parts of a value that need instructions."""
    return sum(not _is_plain(part) for part in _parts(node))


@dataclass(slots=True)
class Assembler:
    """Writes expressions that nothing stops."""

    code: list[int] = field(default_factory=list)
    pool: bytearray = field(default_factory=lambda: bytearray(at.CORE_NAMES + at.CORE_HEADS))
    slots: dict[tuple[Step, ...], int] = field(default_factory=dict)
    _programs: list[int] = field(default_factory=list)
    """Where the instructions of values begin."""

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
        self._node(where_only_true_counts(And(conjuncts)))
        self._do(at.I_END)
        return start

    def value(self, node: Node) -> int:
        """Write a value; give where it begins."""
        parts = [self._part(part) if _is_plain(part) else self._computed(part) for part in _parts(node)]
        start = len(self.code)
        self.code += [len(parts), *chain.from_iterable(parts)]
        return start

    def attribute(self, name: str) -> tuple[int, int, int]:
        """Give an attribute as an operand."""
        if name in CORE:
            return at.P_CORE, CORE.index(name), 0
        return at.P_EXTENSION, *self.constant(name.encode())

    def computed(self) -> tuple[int, int]:
        """Write where the values since the last call of this are computed; give place and count."""
        start = len(self.code)
        self.code += self._programs
        found, self._programs = len(self._programs), []
        return start, found

    def _computed(self, node: Node) -> tuple[int, int, int]:
        self._programs.append(len(self.code))
        self._value(Call("text_of_time", (node,)) if type_of(node) is Type.TIME else node)
        self._do(at.I_END)
        return at.P_COMPUTED, len(self._programs) - 1, 0

    def _do(self, operation: int, *numbers: int) -> int:
        place = len(self.code)
        self.code += [operation, *numbers, *[0] * (at.I_INSTRUCTION - 1 - len(numbers))]
        return place

    def _land(self, *jumps: int) -> None:
        """Let jumps lead to here."""
        for place in jumps:
            self.code[place + 1] = len(self.code)

    def _part(self, node: Node) -> tuple[int, int, int]:
        match node:
            case Text():
                return at.P_CONSTANT, *self.constant(node.value.encode())
            case Time():
                return at.P_CONSTANT, *self.constant(time_text(node.micros).encode())
            case Attribute():
                return self.attribute(node.name)
            case Call(function=name, arguments=(Data(path=path),)):
                return OF_PATH[name], self._slot(path), 0
            case _:
                return at.P_NULL, 0, 0

    def _slot(self, path: tuple[Step, ...]) -> int:
        return self.slots.setdefault(path, len(self.slots))

    # Booleans

    def _node(self, node: Node) -> None:
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
        self._land(*jumps)

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

    def _if(self, node: If) -> None:
        self._choose(node, self._node)

    def _choose(self, node: If, write: Callable[[Node], None]) -> None:
        self._node(node.condition)
        otherwise = self._do(at.I_JUMP_NOT_TRUE)
        write(node.then)
        end = self._do(at.I_JUMP)
        self._land(otherwise)
        write(node.otherwise)
        self._land(end)

    def _in(self, node: In) -> None:
        equal = [Compare(Comparison.EQUAL, node.operand, each) for each in node.elements]
        kind = _COMPARISONS.get(compared_type(node))
        is_short = _is_loaded(node.operand) or all(map(_is_read_against_short, equal))
        if kind is None or is_short or not equal:
            self._or(Or(tuple(equal)))
            return
        self._value(node.operand)
        jumps = []
        for number, element in enumerate(node.elements):
            self._do(at.I_COPY_VALUE)
            self._value(element)
            self._do(at.I_TEST, kind, 2, at.EQUAL)
            if number:
                self._do(at.I_OR)
            jumps.append(self._do(at.I_JUMP_TRUE))
        self._land(*jumps)
        self._do(at.I_DROP_VALUE)

    def _compare(self, node: Compare) -> None:
        node = replace(node, left=_folded(node.left), right=_folded(node.right))
        left, right = node.left, node.right
        kind = compared_type(node)
        if isinstance(left, Null) or isinstance(right, Null) or kind is Type.NULL:
            self._do(at.I_PUSH, at.NULL)
        elif kind is Type.BOOLEAN:
            self._node(left)
            self._node(right)
            self._do(at.I_COMPARE_BOOLEAN, _SIGNS[node.operator])
        elif _is_loaded(left) and _is_loaded(right):
            self._compare_loaded(node)
        elif _is_read_against_short(node):
            self._compare_read(node)
        else:
            self._value(left)
            self._value(right)
            self._do(at.I_TEST, _COMPARISONS[kind], 2, _SIGNS[node.operator])

    def _compare_loaded(self, node: Compare) -> None:
        match node.left, node.right:
            case Attribute(name=name), Text(value=text) if name in CORE:
                constant = self.constant(text.encode())
                self._do(at.I_COMPARE_CORE, CORE.index(name), _SIGNS[node.operator], *constant)
            case left, right:
                self._do(at.I_LOAD_LEFT, *self._part(left))
                self._do(at.I_LOAD_RIGHT, *self._part(right))
                self._do(at.I_COMPARE_TEXT, _SIGNS[node.operator])

    def _compare_read(self, node: Compare) -> None:
        left, right, operator = node.left, node.right, node.operator
        if isinstance(left, Number):
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        assert isinstance(right, Number)
        self._number(left)
        self._do(at.I_COMPARE_NUMBER, _SIGNS[operator], *(digits_of(right) or ()))

    def _number(self, node: Node) -> None:
        match node:
            case Call(function="number_of_json", arguments=(Data(path=path),)):
                self._do(at.I_NUMBER_OF_PATH, self._slot(path))
            case Call(arguments=(argument,)):
                self._do(at.I_LOAD_LEFT, *self._part(argument))
                self._do(at.I_NUMBER_OF_TEXT)

    def _like(self, node: Like) -> None:
        self._matches(node.operand, node.pattern)

    def _matches(self, operand: Node, pattern: str) -> None:
        place = self.constant(_pattern(pattern))
        if _is_loaded(operand):
            self._do(at.I_LOAD_LEFT, *self._part(operand))
            self._do(at.I_LIKE, *place)
        else:
            self._value(operand)
            self._do(at.I_TEST, at.Q_LIKE, 1, *place)

    def _call(self, node: Call) -> None:
        match node:
            case Call(function=name, arguments=(operand, Text(value=text))) if name in _PATTERNS:
                self._matches(operand, _PATTERNS[name].format(quoted(text)))
            case Call(function="boolean_of_json", arguments=(Data(path=path),)):
                self._do(at.I_BOOLEAN_OF_PATH, self._slot(path))
            case Call(function="boolean_of_text", arguments=(Attribute() as attribute,)):
                self._do(at.I_LOAD_LEFT, *self._part(attribute))
                self._do(at.I_BOOLEAN_OF_TEXT)
            case _:
                for argument in node.arguments:
                    self._value(argument)
                self._do(at.I_TEST, TESTS[node.function], len(node.arguments))

    def _is_null(self, node: IsNull) -> None:
        operand = node.operand
        kind = type_of(operand)
        if isinstance(operand, Coalesce) and kind is Type.JSON:
            self._and(And(tuple(map(IsNull, operand.operands))))
        elif isinstance(operand, Data):
            self._do(at.I_PATH_IS_NULL, self._slot(operand.path))
        elif kind in (Type.BOOLEAN, Type.NULL):
            self._node(operand)
            self._do(at.I_BOOLEAN_IS_NULL)
        elif _is_loaded(operand):
            self._do(at.I_LOAD_LEFT, *self._part(operand))
            self._do(at.I_TEXT_IS_NULL)
        elif _is_read(operand):
            self._number(operand)
            self._do(at.I_NUMBER_IS_NULL)
        else:
            self._value(operand)
            self._do(at.I_VALUE_IS_NULL)

    # Values

    def _value(self, node: Node) -> None:
        """Write a text, a number or a moment: its instructions leave it on the stack of values."""
        _VALUES.get(type(node), Assembler._loaded)(self, node)

    def _loaded(self, node: Node) -> None:
        self._do(at.I_VALUE, *self._part(node))

    def _fixed(self, node: Null | Number | Time) -> None:
        match node:
            case Number():
                self._do(at.I_CONSTANT, *(bound_of(node) or ()))
            case Time():
                self._do(at.I_CONSTANT, node.micros, 0)
            case _:
                self._do(at.I_CONSTANT, 0, -1)

    def _now(self, node: Now) -> None:
        self._do(at.I_NOW)

    def _chosen(self, node: If) -> None:
        self._choose(node, self._value)

    def _arithmetic(self, node: Arithmetic) -> None:
        self._called(ARITHMETIC[node.operator], (node.left, node.right))

    def _function(self, node: Call) -> None:
        match _folded(node):
            case Call(function="number_of_json", arguments=(Data(path=path),)):
                self._do(at.I_VALUE_OF_PATH, self._slot(path))
            case Call(function="text_of_boolean", arguments=(operand,)):
                self._node(operand)
                self._do(at.I_VALUE_OF_BOOLEAN, self.constant(b"true")[0], self.constant(b"false")[0])
            case Call(function="concat"):
                self._concatenated(_parts(node))
            case Call(function=name, arguments=arguments) if name in FUNCTIONS:
                self._called(FUNCTIONS[name], arguments)
            case text:
                self._loaded(text)

    def _first_of(self, node: Coalesce) -> None:
        *firsts, last = node.operands
        jumps = []
        for operand in firsts:
            self._value(operand)
            jumps.append(self._do(at.I_JUMP_NOT_NULL))
        self._value(last)
        self._land(*jumps)

    def _called(self, function: int, arguments: tuple[Node, ...]) -> None:
        for argument in arguments:
            self._value(argument)
        self._do(at.I_CALL, function, len(arguments))

    def _concatenated(self, parts: tuple[Node, ...]) -> None:
        held = 0
        for part in parts:
            self._value(part)
            held += 1
            if held == MAX_JOINED:
                self._do(at.I_CALL, at.F_CONCAT, held)
                held = 1
        if held > 1:
            self._do(at.I_CALL, at.F_CONCAT, held)


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
    If: Assembler._if,
    In: Assembler._in,
    Compare: Assembler._compare,
    Like: Assembler._like,
    IsNull: Assembler._is_null,
    Call: Assembler._call,
}
_VALUES: Final[dict[type, Callable[[Assembler, Any], None]]] = {
    **dict.fromkeys((Null, Number, Time), Assembler._fixed),
    Now: Assembler._now,
    Coalesce: Assembler._first_of,
    If: Assembler._chosen,
    Arithmetic: Assembler._arithmetic,
    Call: Assembler._function,
}
