"""One route as a frozen value: what it keeps, what it changes, how it is keyed, and its policies.

All expressions see the event as it came in. The result is the event without the dropped and renamed
attributes, then with the renamed ones under their new names, then with those that are set; null removes. An
event is *transformed* if its data or an attribute other than partitionkey is another after that: then it has
a new id (`identity.py`) and `causationid` names the one that it came from. Otherwise it keeps its id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.errors import PipelineError
from penstock.events.rules import CORE, REQUIRED, is_name
from penstock.pipeline.plan.attributes import is_legal
from penstock.pipeline.plan.explain import explain, path_text
from penstock.pipeline.plan.nodes import (
    And,
    Boolean,
    Node,
    Now,
    Step,
    Text,
    Type,
    attributes_read,
    paths_read,
    reads_data,
    walk,
)
from penstock.pipeline.plan.typing import check

__all__ = [
    "Assignment",
    "Expiry",
    "ExpressionKey",
    "FunctionKey",
    "KeyRule",
    "Mode",
    "RoutePlan",
    "SimpleKey",
    "Tombstones",
]


class Mode(StrEnum):
    """How the output is written; `keep` is the mode in which the event came."""

    KEEP = "keep"
    BINARY = "binary"
    STRUCTURED = "structured"


class Tombstones(StrEnum):
    """What happens to null values.

    A null value that is no event is passed on, dropped or rejected. An event that came with a null value
    leaves with one, also on a structured route; with `event` a structured route writes it as an event. A
    structured event without data is no null value, and none is made of it.
    """

    PASS = "pass"
    DROP = "drop"
    REJECT = "reject"
    EVENT = "event"


class Expiry(StrEnum):
    """What happens to an event whose expirytime has passed; it is counted either way."""

    KEEP = "keep"
    DISCARD = "discard"


class SimpleKey(StrEnum):
    """Keys that need no expression: the record's own, the attribute partitionkey of the output, or none."""

    KEEP = "keep"
    PARTITIONKEY = "partitionkey"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ExpressionKey:
    """The text of an expression over the event as it came in, as UTF-8; null gives no key."""

    expression: Node


@dataclass(frozen=True, slots=True)
class FunctionKey:
    """A function of the user, `module:function`, from the output event to the key."""

    name: str


KeyRule = SimpleKey | ExpressionKey | FunctionKey


@dataclass(frozen=True, slots=True)
class Assignment:
    """One attribute and the expression that gives its text."""

    attribute: str
    value: Node


_KEPT: Final = frozenset({"specversion", "id", "causationid", "datacontenttype", "recordedtime"})
"""Attributes that a route does not touch: ids follow their own rule, and recordedtime.md forbids a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePlan:
    """A route, ready for an engine; PipelineError if its parts contradict each other.

    >>> from penstock.pipeline.plan.sql import parse_sql
    >>> plan = RoutePlan(name="large-orders", where=parse_sql("type = 'placed' AND data.total >= 100"))
    >>> [explain(part) for part in plan.guard], [explain(part) for part in plan.body]
    (["type = 'placed'"], ['number_of_json(data.total) >= 100'])
    """

    name: str
    where: Node = Boolean(True)
    set: tuple[Assignment, ...] = ()
    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    key: KeyRule = SimpleKey.KEEP
    mode: Mode = Mode.KEEP
    tombstones: Tombstones = Tombstones.PASS
    expiry: Expiry = Expiry.KEEP

    def __post_init__(self) -> None:
        check(self.where, Type.BOOLEAN)
        if isinstance(self.key, ExpressionKey):
            check(self.key.expression, Type.TEXT)
        for assignment in self.set:
            check(assignment.value, Type.TIME if assignment.attribute == "time" else Type.TEXT)
        for what in self._contradictions():
            raise PipelineError(what, where=f"route {self.name}")

    def _contradictions(self) -> Iterator[str]:
        targets = [assignment.attribute for assignment in self.set]
        targets += [new for _, new in self.rename]
        gone = [*self.drop, *(old for old, _ in self.rename)]
        for name in (*targets, *gone):
            if not is_name(name):
                yield f"{name[:60]!r} is not the name of an attribute"
            if name in _KEPT:
                yield f"a route cannot change {name}"
        # expirytime.md: it "MUST NOT be removed" on the way.
        yield from (f"every event needs {name}" for name in gone if name in (*REQUIRED, "expirytime"))
        for names in (targets, gone):
            if len(set(names)) < len(names):
                yield "an attribute is set, dropped or renamed twice"
        yield from self._illegal_values()

    def _illegal_values(self) -> Iterator[str]:
        for _, new in self.rename:
            if new in CORE:
                yield f"{new} has a type of its own: set it instead of renaming to it"
        for assignment in self.set:
            value = assignment.value
            if isinstance(value, Text) and not is_legal(assignment.attribute, value.value):
                yield f"{assignment.attribute} cannot be {value.value[:60]!r}"

    @property
    def conjuncts(self) -> tuple[Node, ...]:
        """The parts of the condition, all of which must be true."""
        return self.where.operands if isinstance(self.where, And) else (self.where,)

    @property
    def guard(self) -> tuple[Node, ...]:
        """The parts that do not read data: tested first, so that other events are not even parsed."""
        return tuple(part for part in self.conjuncts if not reads_data(part))

    @property
    def body(self) -> tuple[Node, ...]:
        """The parts that read data."""
        return tuple(part for part in self.conjuncts if reads_data(part))

    @property
    def writes_no_data_as_event(self) -> bool:
        """Whether an event that came with a null value is written as an event, not as a null value."""
        return self.tombstones is Tombstones.EVENT and self.mode is Mode.STRUCTURED

    @property
    def expressions(self) -> tuple[Node, ...]:
        """Every expression of the route."""
        key = (self.key.expression,) if isinstance(self.key, ExpressionKey) else ()
        return (self.where, *(assignment.value for assignment in self.set), *key)

    @property
    def reads_data(self) -> bool:
        """Whether an event that passes the guard has to be parsed."""
        return any(map(reads_data, self.expressions))

    @property
    def reads_now(self) -> bool:
        """Whether the moment at which an event is routed matters."""
        expires = self.expiry is Expiry.DISCARD
        return expires or any(isinstance(node, Now) for each in self.expressions for node in walk(each))

    @property
    def paths(self) -> frozenset[tuple[Step, ...]]:
        """The paths into the data that the route reads."""
        return frozenset().union(*map(paths_read, self.expressions))

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that the route reads."""
        read = frozenset().union(*map(attributes_read, self.expressions), {old for old, _ in self.rename})
        read |= {"partitionkey"} if self.key is SimpleKey.PARTITIONKEY else set()
        return read | ({"expirytime"} if self.expiry is Expiry.DISCARD else set())

    def explain(self) -> str:
        """Write the route as a person reads it, one line for each thing that it does."""
        lines = [f"route {self.name}", f"  where {explain(self.where)}"]
        lines += [f"  rename {old} to {new}" for old, new in self.rename]
        lines += [f"  drop {name}" for name in self.drop]
        lines += [f"  set {part.attribute} = {explain(part.value)}" for part in self.set]
        key = f"({explain(self.key.expression)})" if isinstance(self.key, ExpressionKey) else self.key
        lines.append(f"  key {key.name if isinstance(key, FunctionKey) else key}, mode {self.mode}")
        lines.append(f"  tombstones {self.tombstones}, expired events {self.expiry}")
        if self.paths:
            lines.append(f"  reads {', '.join(sorted(map(path_text, self.paths)))}")
        return "\n".join(lines)
