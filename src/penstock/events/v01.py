"""CloudEvents 0.1 and its way to 1.0 and back (the names of spec 002; the table of attributes in 1.6).

What 1.0 has no place for becomes an extension (`eventtypeversion`, a relative `schemaurl`), and what
0.1 has no place for too (`subject`). Names of extensions are lower-cased on the way up; with
`keep_case` the original spellings travel in the extension `extensionnames` and come back. An attribute
that 0.1 does not define is carried as an extension (spec 002 section 2: robust against the addition of
attributes); `attributenames` names such attributes, so that they come back as attributes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Data, Json, absent
from penstock.events.draft import Draft
from penstock.events.formats.text import decode_text, encode_text
from penstock.events.jsontext import dumps, loads
from penstock.events.media import is_json, is_text
from penstock.events.rules import CORE, is_uri
from penstock.events.types import AttributeType, native, read_base64, write_base64

__all__ = ["CORE_01", "Attributes01", "decode_json", "downgrade", "encode_json", "upgrade"]

VERSION = "0.1"
NAMES = "extensionnames"
UNDEFINED_NAMES = "attributenames"
"""The extension that names, in their spelling of 0.1, the attributes that 0.1 does not define."""
# 1.0 name to 0.1 name. schemaURL is the name in 0.1; schemaURI stands only in spec 002 and is read too (A10).
CORE_01: Mapping[str, str] = {
    "specversion": "cloudEventsVersion",
    "type": "eventType",
    "eventtypeversion": "eventTypeVersion",
    "source": "source",
    "id": "eventID",
    "time": "eventTime",
    "dataschema": "schemaURL",
    "datacontenttype": "contentType",
}
_TO_10 = {old: new for new, old in CORE_01.items()} | {"schemaURI": "dataschema"}
_STRING = AttributeType.STRING
_TAKEN = frozenset(
    name.lower() for name in (*CORE_01, *_TO_10, *(c for c in CORE if c != "subject"), "data", "extensions")
) | {NAMES, UNDEFINED_NAMES}
"""Names that mean something else, in lower case: as attributes of 0.1 or of 1.0, or to this module."""

Attributes01 = dict[str, tuple[str, AttributeType]]
"""Name to canonical text and type, as 0.1 spells names; extensions apart."""


def downgrade(event: CloudEvent) -> tuple[dict[str, str], Attributes01, Attributes01]:
    """Give the 0.1 attributes, the attributes that 0.1 does not define, and the extensions of a 1.0 event."""
    spelled = {name.lower(): name for name in (event.get(NAMES) or "").split() if _can_come_back(name)}
    named = {name.lower(): name for name in (event.get(UNDEFINED_NAMES) or "").split() if _is_free(name)}
    core: dict[str, str] = {}
    undefined: Attributes01 = {}
    extensions: Attributes01 = {}
    for name, text in event.attributes.items():
        if name in CORE_01:
            core[CORE_01[name]] = text
        elif name == "schemaurl" and event.dataschema is None and not is_uri(text):
            core["schemaURL"] = text
        elif name in named:
            undefined[named[name]] = text, event.types.get(name, _STRING)
        elif name not in (NAMES, UNDEFINED_NAMES):
            extensions[spelled.get(name, name)] = text, event.types.get(name, _STRING)
    core["cloudEventsVersion"] = VERSION  # 1.6: the value is rewritten, never copied
    return core, undefined, extensions


def _is_free(name: str) -> bool:
    """Tell whether an attribute of this name would be taken for nothing else in 0.1."""
    return name.isascii() and name.isalnum() and name.lower() not in _TAKEN


def _can_come_back(name: str) -> bool:
    # A2: a first letter in upper case would be lower-cased by every reader of properties.
    return name.isascii() and name.isalnum() and not name[0].isupper()


def upgrade(
    core: Mapping[str, str],
    extensions: Attributes01,
    draft: Draft,
    *,
    keep_case: bool,
    undefined: Attributes01 | None = None,
) -> None:
    """Fill a draft with the 1.0 form of 0.1 attributes, of `undefined` ones and of extensions."""
    if core.get("cloudEventsVersion", VERSION) != VERSION:
        draft.fatal("cloudEventsVersion is not 0.1", "cloudEventsVersion", "CloudEvents 0.1")
    if "schemaURI" in core and "schemaURL" in core:
        draft.report("schemaURI and schemaURL are both there", "dataschema", "spec 002 3.1.2.1 (A10)")
    for old, text in core.items():
        new = _TO_10[old]
        # dataschema is an absolute URI in 1.0; a relative one keeps its place as an extension.
        new = "schemaurl" if new == "dataschema" and not is_uri(text) else new
        draft.attributes[new] = text
    draft.attributes.pop("specversion", None)
    draft.attributes = {"specversion": "1.0", **draft.attributes}
    _carry(extensions, draft, "extension")
    changed = [name for name in extensions if name != name.lower()]
    if keep_case and changed:
        draft.attributes[NAMES] = " ".join(changed)
    carried = _carry(undefined or {}, draft, "attribute")
    if carried:
        draft.attributes[UNDEFINED_NAMES] = " ".join(carried)


def _carry(found: Attributes01, draft: Draft, what: str) -> list[str]:
    """Take attributes over under their names in lower case; give the names that were free."""
    carried = []
    for name, (text, kind) in found.items():
        lower = name.lower()
        # What means something in 1.0, and is not said so in 0.1, must not come to mean it; subject may.
        if lower in draft.attributes or (what == "attribute" and lower in _TAKEN):
            draft.report(f"{what} {name[:60]!r} clashes with {lower}", lower, "core, Naming (1.6)")
            continue
        draft.attributes[lower] = text
        if kind is not _STRING:
            draft.types[lower] = kind
        carried.append(name)
    return carried


def encode_json(event: CloudEvent) -> bytes:
    """Write the JSON format of 0.1: extensions in a map, binary data as a base64 string in `data`."""
    core, undefined, extensions = downgrade(event)
    members: dict[str, Any] = dict(core)
    members |= {name: json_value(text, kind) for name, (text, kind) in undefined.items()}
    if isinstance(event.data, Json):
        members.setdefault("contentType", "application/json")
    if extensions:  # 0.1: extensions has at least one entry, or is not there
        members["extensions"] = {name: json_value(text, kind) for name, (text, kind) in extensions.items()}
    head = dumps(members)
    if event.data is absent:
        return head
    return head[:-1] + b',"data":' + _json_data(event, members.get("contentType")) + b"}"


def json_value(text: str, kind: AttributeType) -> Any:
    """Give the value of an extension as 0.1's JSON has it: numbers and booleans native, maps as maps."""
    if kind in (AttributeType.INTEGER, AttributeType.BOOLEAN):
        return native("extension", text, kind)
    if text.startswith(("{", "[")):
        try:
            value = loads(text.encode())
        except ValueError:
            return text
        return value if dumps(value).decode() == text else text
    return text


def _json_data(event: CloudEvent, media_type: str | None) -> bytes:
    body = event.data_bytes or b""
    if isinstance(event.data, Json):
        return body
    if media_type is None:
        # 0.1 tells binary data only by its contentType; without one a reader would take it as JSON.
        raise CannotEncode(
            "bytes without datacontenttype have no form in JSON 0.1", why="v0.1 json-format 3.1"
        )
    if is_json(media_type):
        try:
            loads(body)
        except ValueError as exc:
            raise CannotEncode(
                f"data is not the JSON that contentType says: {exc}", why="v0.1 json-format 3.1"
            ) from exc
        return body
    text = decode_text(body, media_type)
    if text is None and is_text(media_type):
        raise CannotEncode("data is not text in its charset", why="v0.1 json-format 3.1")
    return dumps(write_base64(body) if text is None else text)


def decode_json(
    members: Mapping[str, Any], json_data: Callable[[Any], Json], draft: Draft, *, keep_case: bool
) -> None:
    """Read the members of a JSON 0.1 event into a draft."""
    core: dict[str, str] = {}
    undefined: Attributes01 = {}
    for name, value in members.items():
        if name in ("data", "extensions") or value is None:
            continue
        if name not in _TO_10:
            undefined[name] = extension(value)
        elif not isinstance(value, str):
            draft.report(f"member {name[:60]!r} is not a string", name, "v0.1 spec")
        else:
            core[name] = value
    extensions = _json_extensions(members.get("extensions"), draft)
    upgrade(core, extensions, draft, keep_case=keep_case, undefined=undefined)
    if "data" in members:
        draft.data = _read_data(members["data"], json_data, draft)


def _json_extensions(value: Any, draft: Draft) -> Attributes01:
    if value is None:
        return {}
    if not isinstance(value, dict) or not value:
        # v0.1 spec, extensions: "if present, MUST contain at least one entry".
        draft.report("extensions is not a map with entries", "extensions", "v0.1 spec, extensions")
        return {}
    return {name: extension(item) for name, item in value.items() if item is not None}


def extension(value: Any) -> tuple[str, AttributeType]:
    """Give a JSON value of an extension as canonical text and type; a map becomes its JSON text."""
    if isinstance(value, bool):
        return ("true" if value else "false"), AttributeType.BOOLEAN
    if isinstance(value, int) and -(2**31) <= value < 2**31:
        return str(value), AttributeType.INTEGER
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text, _STRING


def _read_data(value: Any, json_data: Callable[[Any], Json], draft: Draft) -> Data:
    media_type = draft.attributes.get("datacontenttype")
    if media_type is None or is_json(media_type) or not isinstance(value, str):
        return json_data(value)
    try:
        # v0.1 json-format 3.1: text as a string, anything else that is not JSON as base64.
        return encode_text(value, media_type) if is_text(media_type) else read_base64(value)
    except ValueError as exc:
        raise InvalidEvent(f"data: {exc}", attribute="data", clause="v0.1 json-format 3.1") from exc
