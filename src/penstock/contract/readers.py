"""Readers of single values: texts, numbers, lists, maps, references; each reports what it cannot read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NewType
from urllib.parse import urlsplit

from penstock.contract.node import JsonValue, Node, plain
from penstock.contract.pointer import parse_reference, write_pointer
from penstock.contract.rules import references, structure
from penstock.contract.shape import Part, Reader, Reading, read_part, report_type

__all__ = [
    "ChannelId",
    "any_value",
    "boolean",
    "channel_reference",
    "expression",
    "follow",
    "integer",
    "list_of",
    "map_of",
    "message_reference",
    "nullable_text",
    "one_of",
    "part",
    "report_unplaced",
    "server_reference",
    "text",
    "texts",
    "url",
]

ChannelId = NewType("ChannelId", str)

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+\Z")
_EXPRESSION: Final = re.compile(r"\$message\.(?:header|payload)(?:#(?:/(?:[^~/]|~[01])*)*)?\Z")

# The stores of components, and what each holds (AsyncAPI 3, Components Object).
STORES: Final[Mapping[str, str]] = {
    "schemas": "a Schema Object",
    "servers": "a Server Object",
    "serverVariables": "a Server Variable Object",
    "channels": "a Channel Object",
    "operations": "an Operation Object",
    "messages": "a Message Object",
    "securitySchemes": "a Security Scheme Object",
    "parameters": "a Parameter Object",
    "correlationIds": "a Correlation ID Object",
    "operationTraits": "an Operation Trait Object",
    "messageTraits": "a Message Trait Object",
    "replies": "an Operation Reply Object",
    "replyAddresses": "an Operation Reply Address Object",
    "externalDocs": "an External Documentation Object",
    "tags": "a Tag Object",
    "serverBindings": "a Server Bindings Object",
    "channelBindings": "a Channel Bindings Object",
    "operationBindings": "an Operation Bindings Object",
    "messageBindings": "a Message Bindings Object",
}
_ROOT_STORES: Final = frozenset({"servers", "channels", "operations"})


def text(reading: Reading, node: Node) -> str | None:
    """Read a text."""
    if isinstance(node.value, str):
        return node.value
    is_scalar = not isinstance(node.value, dict | list) and node.value is not None
    report_type(reading, node, "a text", f"put it in quotes: '{plain(node)}'" if is_scalar else "")
    return None


def nullable_text(reading: Reading, node: Node) -> str | None:
    """Read a text, or null."""
    return None if node.value is None else text(reading, node)


def boolean(reading: Reading, node: Node) -> bool | None:
    """Read true or false."""
    if isinstance(node.value, bool):
        return node.value
    report_type(reading, node, "true or false", "write true or false without quotes")
    return None


def any_value(_reading: Reading, node: Node) -> JsonValue:
    """Take any value as it is."""
    return plain(node)


def integer(minimum: int, maximum: int, *, hint: str = "", unit: str = "") -> Reader:
    """Make a reader of whole numbers in a range; 1.0 is a whole number too (JSON Schema draft 07).

    `hint` is the advice for a number out of range, `unit` that for something that is no number.
    """

    def read(reading: Reading, node: Node) -> int | None:
        value = node.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            quoted = isinstance(value, str) and value.lstrip("-").isdecimal()
            advice = f"write a number of {unit}" if unit else ""
            report_type(reading, node, "an integer", "write it without quotes" if quoted else advice)
            return None
        if minimum <= value <= maximum:
            return value
        wanted = f"at least {minimum}" if value < minimum else f"at most {maximum}"
        reading.report.add(
            structure.OUT_OF_RANGE, node, field=node.path[-1], found=value, wanted=wanted, fix=hint
        )
        return None

    return read


def one_of(*allowed: str) -> Reader:
    """Make a reader of a word from a closed set."""

    def read(reading: Reading, node: Node) -> str | None:
        word = text(reading, node)
        if word is None or word in allowed:
            return word
        field = next((step for step in reversed(node.path) if isinstance(step, str)), "")
        reading.report.add(structure.NOT_IN_SET, node, field=field, found=word, wanted=", ".join(allowed))
        return None

    return read


def url(reading: Reading, node: Node) -> str | None:
    """Read an absolute address."""
    value = text(reading, node)
    if value is None or _is_url(value):
        return value
    reading.report.add(structure.BAD_URL, node, field=node.path[-1], found=value)
    return None


def _is_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return bool(parts.scheme and parts.netloc and parts.hostname) and not re.search(r"\s", value)
    except ValueError:
        return False


def expression(reading: Reading, node: Node) -> str | None:
    """Read a runtime expression."""
    value = text(reading, node)
    # AsyncAPI 3, Runtime Expression: the ABNF makes the fragment optional, and has header and payload only.
    if value is None or _EXPRESSION.match(value):
        return value
    reading.report.add(structure.BAD_EXPRESSION, node, field=node.path[-1], found=value)
    return None


def list_of(read: Reader) -> Reader:
    """Make a reader of lists; what cannot be read is left out."""

    def read_list(reading: Reading, node: Node) -> tuple[Any, ...] | None:
        if not isinstance(node.value, list):
            report_type(reading, node, "a list")
            return None
        values = (read(reading, child) for child in node.value)
        return tuple(value for value in values if value is not None)

    return read_list


texts = list_of(text)


def map_of(read: Reader, *, named: str = "") -> Reader:
    """Make a reader of maps from names to values; `named` says what the names must fit, if anything."""

    def read_map(reading: Reading, node: Node) -> Mapping[str, Any] | None:
        if not isinstance(node.value, dict):
            report_type(reading, node, "an object")
            return None
        values = {}
        for key, child in node.value.items():
            if named and not _NAME.match(key):
                reading.report.add(structure.BAD_NAME, node, key=key, found=key, owner=named)
            value = read(reading, child)
            if value is not None:
                values[key] = value
        return MappingProxyType(values)

    return read_map


def part(cls: type[Part], store: str = "") -> Reader:
    """Make a reader of objects; with a store of components they may be references."""

    def read(reading: Reading, node: Node) -> Part | None:
        target = follow(reading, node, store) if store else node
        return None if target is None else read_part(cls, reading, target)

    return read


def follow(reading: Reading, node: Node, store: str) -> Node | None:
    """Follow references to an object of the kind that a store of components holds."""
    if not isinstance(node.value, dict) or "$ref" not in node.value:
        return node
    target = reading.library.resolve(node)
    if target is None:
        return None
    found = _kind_at(reading, target)
    if found and found != STORES[store]:
        reading.report.add(references.WRONG_KIND, node, found=found, wanted=STORES[store], store=store)
        return None
    return target


def _kind_at(reading: Reading, node: Node) -> str:
    """Say what stands at a place of the document whose kind the path tells; empty if it does not."""
    path = node.path
    if node.file != reading.library.root_file or not path:
        return ""
    if path[0] == "components" and len(path) == 3:
        return STORES.get(str(path[1]), "")
    if len(path) == 2 and path[0] in _ROOT_STORES:
        return STORES[str(path[0])]
    return f"the {path[0]} of the document" if len(path) == 1 else ""


def channel_reference(reading: Reading, node: Node) -> ChannelId | None:
    """Read a reference to a channel of this document."""
    # AsyncAPI 3, Operation Object: channel MUST point to a channel in the root Channels Object.
    names = _names(reading, node, ("channels",), "a channel of this document")
    return ChannelId(names[0]) if names else None


def server_reference(reading: Reading, node: Node) -> str | None:
    """Read a reference to a server of this document."""
    # AsyncAPI 3, Channel Object: servers MUST point to definitions in the root Servers Object.
    names = _names(reading, node, ("servers",), "a server of this document")
    return names[0] if names else None


def message_reference(reading: Reading, node: Node) -> tuple[ChannelId, str] | None:
    """Read a reference to a message through its channel: the channel's and the message's name."""
    # AsyncAPI 3, Operation Object: messages MUST point to the channel's messages, not to components.
    names = _names(reading, node, ("channels", "messages"), "a message of the operation's channel")
    return (ChannelId(names[0]), names[1]) if names else None


def _names(reading: Reading, node: Node, stores: tuple[str, ...], wanted: str) -> tuple[str, ...]:
    """The names in a reference of the form `#/store/name/store/name`; empty after a finding.

    What components store may point anywhere (AsyncAPI 3, Channel and Operation Object): there a reference
    has the name that its object has in this document, and none if it is not in use.
    """
    text = node.reference
    if text is None:
        _wrong_place(reading, node, stores, wanted)
        return ()
    if reading.library.hop(node) is None:
        return ()
    tokens = parse_reference(text).tokens
    in_root = text.startswith("#") and node.file == reading.library.root_file
    if in_root and tokens[::2] == stores and len(tokens) == 2 * len(stores):
        return tokens[1::2]
    if not _is_stored(reading, node):
        _wrong_place(reading, node, stores, wanted)
        return ()
    names = _names_in_use(reading, node, text, stores)
    if not names:
        reading.unplaced[id(node)] = (node, stores, wanted)
    return names


def _is_stored(reading: Reading, node: Node) -> bool:
    """Say whether a node is part of components, here or in another file."""
    return node.file != reading.library.root_file or node.path[:1] == ("components",)


def _names_in_use(reading: Reading, node: Node, text: str, stores: tuple[str, ...]) -> tuple[str, ...]:
    """Find the names that an object has below the root of this document; empty if it is not there."""
    rest: tuple[str, ...] = ()
    if len(stores) > 1:
        owner, _, last = text.rpartition("/")
        outer, _, inner = owner.rpartition("/")
        if inner != stores[1]:
            return ()
        rest = (parse_reference(f"#/{last}").tokens[0],)
        node = _reference_to(reading, outer, node)
    target = reading.library.resolve(node)
    entries = reading.library.root.get(stores[0]) if reading.library.root is not None else None
    children = entries.value if entries is not None and isinstance(entries.value, dict) else {}
    for name, child in children.items() if target is not None else ():
        if reading.library.resolve(child) is target:
            return (name, *rest)
    return ()


def _reference_to(reading: Reading, text: str, beside: Node) -> Node:
    """Make a reference that stands where another one stands."""
    made = Node({"$ref": Node(text)}, beside.file, beside.line, beside.column, beside.path)
    reading.made.append(made)
    return made


def report_unplaced(reading: Reading, used: Iterable[Node]) -> None:
    """Report the references of objects in use that lead to nothing of this document."""
    for node in used:
        if id(node) in reading.unplaced:
            _wrong_place(reading, *reading.unplaced[id(node)])


def _wrong_place(reading: Reading, node: Node, stores: tuple[str, ...], wanted: str) -> None:
    field = next((step for step in reversed(node.path) if isinstance(step, str)), "")
    example = write_pointer(*(token for store in stores for token in (store, f"<{store[:-1]}>")))
    reading.report.add(references.WRONG_PLACE, node, field=field, wanted=wanted, example=example)
