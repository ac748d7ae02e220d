"""How spec 002 spells 0.1 attributes as Pulsar properties: names (3.1.2.1) and values (3.1.2.2).

Readings of the points the specification leaves open, by their number: the first letter is
capitalised (A1) and lower-cased again for extensions, core names go by table (A2); names are exact,
`lenient` ignores case (A3). Values (A4): `auto` writes text bare and numbers, booleans and maps as
JSON, and quotes a text only where it would read as something else; `json` quotes every text;
`raw` takes and gives text as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from penstock.events.draft import Draft
from penstock.events.jsontext import dumps, loads
from penstock.events.types import AttributeType, read_integer
from penstock.events.v01 import CORE_01, Attributes01, extension, json_value
from penstock.record import Properties

__all__ = ["Values", "read_properties", "write_properties"]

PREFIX = "CE-"
EXTENSION_PREFIX = "CE-X-"
_STRING = AttributeType.STRING


class Values(Enum):
    """How the text of a property stands for the value of an attribute (A4)."""

    AUTO = "auto"
    JSON = "json"
    RAW = "raw"


def _capitalised(name: str) -> str:
    return name[:1].upper() + name[1:]


_CORE = {PREFIX + _capitalised(name): name for name in (*CORE_01.values(), "schemaURI")}
_CORE_ANY_CASE = {name.lower(): old for name, old in _CORE.items()}


def write_properties(
    core: Mapping[str, str], undefined: Attributes01, extensions: Attributes01, values: Values
) -> Properties:
    """Write 0.1 attributes, those that 0.1 does not define, and extensions as properties."""
    write = _WRITERS[values]
    ours = [(PREFIX + _capitalised(name), write(text, _STRING, True)) for name, text in core.items()]
    for prefix, found in ((PREFIX, undefined), (EXTENSION_PREFIX, extensions)):
        ours += [
            (prefix + _capitalised(name), write(text, kind, False)) for name, (text, kind) in found.items()
        ]
    return tuple(ours)


def read_properties(
    properties: Properties, values: Values, draft: Draft, *, lenient: bool
) -> tuple[dict[str, str], Attributes01, Attributes01]:
    """Read 0.1 attributes, those that 0.1 does not define, and extensions.

    What is wrong is noted in the draft.
    """
    core: Attributes01 = {}
    undefined: Attributes01 = {}
    extensions: Attributes01 = {}
    targets = {_Kind.CORE: core, _Kind.UNDEFINED: undefined, _Kind.EXTENSION: extensions}
    read = _READERS[values]
    for name, raw in properties:
        kind_of, attribute = _attribute(name, draft, lenient)
        if kind_of is None:
            continue
        target = targets[kind_of]
        if attribute in target:
            # A15: last wins, strict minds.
            draft.report(f"property {name} is repeated", attribute, "core, Context Attributes")
        try:
            target[attribute] = read(raw, kind_of is _Kind.CORE)
        except ValueError:
            draft.report(f"property {name} is not a JSON value", attribute, "spec 002 3.1.2.2")
            target[attribute] = raw, _STRING
    return {name: text for name, (text, _) in core.items()}, undefined, extensions


class _Kind(Enum):
    """What a property of profile 0.1 stands for."""

    CORE = "core"
    UNDEFINED = "undefined"
    EXTENSION = "extension"


def _attribute(name: str, draft: Draft, lenient: bool) -> tuple[_Kind | None, str]:
    """Say what a property stands for, and the name of the attribute; None: it is not ours."""
    if name in _CORE:
        return _Kind.CORE, _CORE[name]
    if name.startswith(EXTENSION_PREFIX):
        rest = name[len(EXTENSION_PREFIX) :]
        return _Kind.EXTENSION, rest[:1].lower() + rest[1:]
    if lenient and name.lower() in _CORE_ANY_CASE:
        draft.report(f"property {name} is spelled in another case", None, "spec 002 3.1.2.1")
        return _Kind.CORE, _CORE_ANY_CASE[name.lower()]
    if name.startswith(PREFIX):
        # spec 002 2: "robust against changes, including the addition ... of event attributes".
        rest = name[len(PREFIX) :]
        return _Kind.UNDEFINED, rest[:1].lower() + rest[1:]
    return None, ""


def _read_auto(raw: str, core: bool) -> tuple[str, AttributeType]:
    if raw.startswith('"'):
        try:
            value = loads(raw.encode("utf-8", "surrogatepass"))
        except ValueError:
            return raw, _STRING
        return (value, _STRING) if isinstance(value, str) else (raw, _STRING)
    return (raw, _STRING) if core else (raw, _bare_kind(raw))


def _bare_kind(raw: str) -> AttributeType:
    if raw in ("true", "false"):
        return AttributeType.BOOLEAN
    try:
        read_integer(raw)
    except ValueError:
        return _STRING
    return AttributeType.INTEGER


def _read_json(raw: str, core: bool) -> tuple[str, AttributeType]:
    value: Any = loads(raw.encode("utf-8", "surrogatepass"))
    if core and not isinstance(value, str):
        raise ValueError("not a JSON string")
    return extension(value)


def _write_auto(text: str, kind: AttributeType, core: bool) -> str:
    if kind in (AttributeType.INTEGER, AttributeType.BOOLEAN):
        return text
    return text if _read_auto(text, core) == (text, _STRING) else dumps(text).decode()


def _write_json(text: str, kind: AttributeType, core: bool) -> str:
    return dumps(text if core else json_value(text, kind)).decode()


_READERS: Mapping[Values, Callable[[str, bool], tuple[str, AttributeType]]] = {
    Values.AUTO: _read_auto,
    Values.JSON: _read_json,
    Values.RAW: lambda raw, core: (raw, _STRING),
}
_WRITERS: Mapping[Values, Callable[[str, AttributeType, bool], str]] = {
    Values.AUTO: _write_auto,
    Values.JSON: _write_json,
    Values.RAW: lambda text, kind, core: text,
}
