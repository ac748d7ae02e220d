"""How an object of the specification is read: a dataclass whose fields say how to read themselves.

A reader takes the state of reading and a node, and gives a value, or None after it has reported why not.
Objects are closed: a field that no dataclass names is a finding, unless it begins with `x-`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar, cast

from penstock.contract.finding import MAX_QUOTED, Report
from penstock.contract.library import Library
from penstock.contract.node import JsonValue, Node, kind_of, plain
from penstock.contract.rules import extensions, references, structure

__all__ = ["NOTHING", "NOWHERE", "Part", "Reader", "Reading", "read_part", "report_type", "spec"]

NOWHERE: Final = Node(None)
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
MAX_BUNDLED: Final = 1_000_000

T = TypeVar("T", bound="Part")
Reader = Callable[["Reading", Node], Any]


@dataclass(slots=True)
class Budget:
    """A number that only goes down."""

    left: int


@dataclass(slots=True)
class Reading:
    """The state of reading one document."""

    library: Library
    report: Report
    memo: dict[tuple[type, int, str], Part] = dataclasses.field(default_factory=dict)
    merged: dict[int, Node] = dataclasses.field(default_factory=dict)
    """Objects with their traits merged in, by the identity of the node that has the traits."""
    made: list[Node] = dataclasses.field(default_factory=list)
    """Further nodes that merging made; kept so that the memo's identities stay unique."""
    schemas: dict[tuple[int, str], Any] = dataclasses.field(default_factory=dict)
    """Every schema read, by node and format."""
    budget: Budget = dataclasses.field(default_factory=lambda: Budget(MAX_BUNDLED))
    """How many values the schemas may still expand to."""
    unplaced: dict[int, tuple[Node, tuple[str, ...], str]] = dataclasses.field(default_factory=dict)
    """References of stored objects to what is not in use here, with the stores and words of a finding."""
    avro_files: Any = None
    """Where named types of Avro are, once somebody asked."""
    binding_version: str = ""
    """The version by which a binding is read; empty outside of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An object of the document; `node` is where it stands."""

    SPEC_NAME: ClassVar[str] = "this object"
    OPEN_SINCE: ClassVar[str] = ""
    """The version of the binding that allows additional fields; empty if none does."""
    REMOVED: ClassVar[Mapping[str, str]] = NOTHING
    """Fields that earlier versions had, and what to do about each."""

    node: Node = dataclasses.field(default=NOWHERE, repr=False, compare=False)
    extensions: Mapping[str, JsonValue] = dataclasses.field(default_factory=lambda: NOTHING)
    """The `x-` fields, and the additional ones where they are allowed."""

    def at(self, name: str) -> Node:
        """The node of one field, or of this object if the field is absent."""
        return self.node.get(name) or self.node


def spec(
    read: Reader, *, name: str = "", required: bool = False, default: Any = None, since: str = ""
) -> Any:
    """Declare a field: its reader, its name in the document, and the binding version that brought it."""
    metadata = {"read": read, "name": name, "required": required, "since": since}
    if default is NOTHING:
        return dataclasses.field(default_factory=lambda: NOTHING, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


_SLOTS: Final[dict[type[Part], dict[str, _Slot]]] = {}
"""The fields of each class, found once."""


@dataclass(frozen=True, slots=True)
class _Slot:
    attribute: str
    read: Reader
    required: bool
    since: str


def _slots(cls: type[Part]) -> Mapping[str, _Slot]:
    if cls in _SLOTS:
        return _SLOTS[cls]
    found = _SLOTS[cls] = {}
    for field in dataclasses.fields(cls):
        if "read" in field.metadata:
            meta = field.metadata
            slot = _Slot(field.name, meta["read"], meta["required"], meta["since"])
            found[meta["name"] or _camel(field.name)] = slot
    return found


def _camel(name: str) -> str:
    """Give the document's spelling of an attribute.

    >>> _camel("default_content_type")
    'defaultContentType'
    """
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def read_part(cls: type[T], reading: Reading, node: Node) -> T | None:
    """Read an object that is written out at `node`; the same node gives the same object."""
    key = (cls, id(node), reading.binding_version)
    if key not in reading.memo:
        part = _read(cls, reading, node)
        if part is None:
            return None
        reading.memo[key] = part
    return cast(T, reading.memo[key])


def _read(cls: type[Part], reading: Reading, node: Node) -> Part | None:
    if not isinstance(node.value, dict):
        report_type(reading, node, "an object")
        return None
    if "$ref" in node.value:
        reading.report.add(references.NOT_ALLOWED_HERE, node, wanted=cls.SPEC_NAME)
        return None
    return cls(**_read_fields(cls, reading, node))


def _read_fields(cls: type[Part], reading: Reading, node: Node) -> dict[str, Any]:
    values: dict[str, Any] = {"node": node}
    extra: dict[str, JsonValue] = {}
    slots = _slots(cls)
    children = node.value if isinstance(node.value, dict) else {}
    for key, child in children.items():
        slot = slots.get(key)
        if slot is not None and slot.since <= reading.binding_version:
            value = slot.read(reading, child)
            if value is not None:
                values[slot.attribute] = value
        elif key.startswith("x-penstock-"):
            _report_extension(cls, reading, node, key)
        elif key.startswith("x-") or (slot is None and _open(cls, reading)):
            extra[key] = plain(child)
        else:
            _report_unknown(cls, reading, node, key)
    for name, slot in slots.items():
        if slot.required and name not in children:
            reading.report.add(structure.MISSING_FIELD, node, owner=cls.SPEC_NAME, field=name)
    if extra:
        values["extensions"] = MappingProxyType(extra)
    return values


def _report_extension(cls: type[Part], reading: Reading, node: Node, key: str) -> None:
    known = ", ".join(name for name in _slots(cls) if name.startswith("x-")) or "none"
    reading.report.add(
        extensions.UNKNOWN_EXTENSION, node, key=key, field=key, owner=cls.SPEC_NAME, known=known
    )


def _open(cls: type[Part], reading: Reading) -> bool:
    return bool(cls.OPEN_SINCE) and reading.binding_version >= cls.OPEN_SINCE


def _report_unknown(cls: type[Part], reading: Reading, node: Node, key: str) -> None:
    slot = _slots(cls).get(key)
    near = get_close_matches(key[:MAX_QUOTED], _slots(cls), n=1)
    fix = cls.REMOVED.get(key) or (f"did you mean {near[0]}?" if near else "")
    if slot is not None:
        fix = f"it came with version {slot.since} of the binding, here it is {reading.binding_version}"
    reading.report.add(structure.UNKNOWN_FIELD, node, key=key, owner=cls.SPEC_NAME, field=key, fix=fix)


def report_type(reading: Reading, node: Node, wanted: str, fix: str = "") -> None:
    """Report that a node is of the wrong type."""
    field = str(node.path[-1]) if node.path else "the document"
    reading.report.add(
        structure.WRONG_TYPE, node, field=field, wanted=wanted, found=kind_of(node.value), fix=fix
    )
