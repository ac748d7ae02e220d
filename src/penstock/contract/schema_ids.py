"""Schema ids on the wire: before the payload, or in a header; as Confluent and Apicurio write them.

Payload: magic byte 0 and an id of 4 or 8 bytes, big-endian; or magic byte 1 and a GUID of 16 bytes.
Headers: Confluent puts the payload's form (magic byte and id or GUID) into `__value_schema_id`; Apicurio
puts an 8-byte number without magic byte into `apicurio.value.globalId` or `.contentId`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import UUID

from penstock.errors import CannotEncode, InvalidEvent
from penstock.record import Header, Headers

__all__ = [
    "IdKind",
    "Part",
    "SchemaId",
    "decode_header",
    "decode_payload",
    "encode_apicurio_header",
    "encode_confluent_header",
    "encode_payload",
]

MAGIC_ID: Final = 0
MAGIC_GUID: Final = 1
GUID_BYTES: Final = 16
_FORMS: Final[Mapping[int, struct.Struct]] = {4: struct.Struct(">I"), 8: struct.Struct(">Q")}


class Part(StrEnum):
    """The part of a record that a schema describes."""

    KEY = "key"
    VALUE = "value"


class IdKind(StrEnum):
    """What a number means: Confluent's id, or one of Apicurio's two."""

    ID = "id"
    GLOBAL_ID = "globalId"
    CONTENT_ID = "contentId"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaId:
    """The name of a schema in a registry: a number, or a GUID."""

    number: int | None = None
    guid: UUID | None = None
    kind: IdKind = IdKind.ID


CONFLUENT_HEADERS: Final[Mapping[Part, str]] = {Part.KEY: "__key_schema_id", Part.VALUE: "__value_schema_id"}
_APICURIO_KINDS: Final = (IdKind.GLOBAL_ID, IdKind.CONTENT_ID)


def encode_payload(schema_id: SchemaId, body: bytes, *, width: int = 4) -> bytes:
    """Put an id before a payload; a GUID has its own form and no width.

    >>> encode_payload(SchemaId(number=1), b"\\x0e").hex(" ")
    '00 00 00 00 01 0e'
    >>> encode_payload(SchemaId(number=1), b"", width=8).hex()
    '000000000000000001'
    """
    return _prefix(schema_id, width) + body


def decode_payload(payload: bytes, *, width: int = 4) -> tuple[SchemaId, bytes]:
    """Take the id off a payload.

    >>> decode_payload(bytes.fromhex("00000000010e"))
    (SchemaId(number=1, guid=None, kind=<IdKind.ID: 'id'>), b'\\x0e')
    """
    schema_id, length = _read(payload, width, "payload")
    return schema_id, payload[length:]


def encode_confluent_header(schema_id: SchemaId, part: Part = Part.VALUE) -> Header:
    """Make Confluent's header.

    >>> encode_confluent_header(SchemaId(number=5))
    ('__value_schema_id', b'\\x00\\x00\\x00\\x00\\x05')
    """
    return CONFLUENT_HEADERS[part], _prefix(schema_id, 4)


def encode_apicurio_header(schema_id: SchemaId, part: Part = Part.VALUE) -> Header:
    """Make Apicurio's header; a number that does not say its kind is a contentId, as Apicurio 3 writes.

    >>> encode_apicurio_header(SchemaId(number=5, kind=IdKind.GLOBAL_ID), Part.KEY)
    ('apicurio.key.globalId', b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x05')
    """
    if schema_id.number is None:
        raise CannotEncode("Apicurio has no header for a GUID", next="use the number of the schema")
    kind = IdKind.CONTENT_ID if schema_id.kind is IdKind.ID else schema_id.kind
    return _apicurio_name(part, kind), _number(schema_id.number, 8)


def decode_header(headers: Headers, part: Part = Part.VALUE) -> SchemaId | None:
    """Find the id in the headers of a record; None if there is none. The last header of a name counts."""
    found = {name: value for name, value in headers if value is not None}
    confluent = found.get(CONFLUENT_HEADERS[part])
    if confluent is not None:
        return _exactly(confluent, CONFLUENT_HEADERS[part])
    for kind in _APICURIO_KINDS:
        name = _apicurio_name(part, kind)
        if name in found:
            return SchemaId(number=_long(found[name], name), kind=kind)
    return None


def _apicurio_name(part: Part, kind: IdKind) -> str:
    return f"apicurio.{part}.{kind}"


def _prefix(schema_id: SchemaId, width: int) -> bytes:
    if schema_id.guid is not None:
        return bytes([MAGIC_GUID]) + schema_id.guid.bytes
    if schema_id.number is None:
        raise CannotEncode("a schema id is neither a number nor a GUID")
    return bytes([MAGIC_ID]) + _number(schema_id.number, width)


def _number(number: int, width: int) -> bytes:
    form = _FORMS.get(width)
    if form is None:
        raise CannotEncode(f"a schema id has 4 or 8 bytes, not {width}")
    # Java reads the bytes as a signed number, so the highest bit stays free.
    if not 0 <= number < 1 << (8 * width - 1):
        raise CannotEncode(f"schema id {number} does not fit {width} bytes")
    return form.pack(number)


def _read(raw: bytes, width: int, where: str) -> tuple[SchemaId, int]:
    """Read magic byte and id; give the id and how many bytes it took."""
    magic = raw[0] if raw else None
    if magic == MAGIC_GUID:
        end = 1 + GUID_BYTES
        return SchemaId(guid=UUID(bytes=_slice(raw, end, where))), end
    if magic != MAGIC_ID:
        raise InvalidEvent(
            f"no schema id before the {where}: the magic byte is {magic}",
            attribute=where,
            fix="write it with a serializer of the registry, or remove schemaIdLocation from the contract",
        )
    form = _FORMS.get(width)
    if form is None:
        raise InvalidEvent(f"a schema id has 4 or 8 bytes, not {width}", attribute=where)
    return SchemaId(number=form.unpack(_slice(raw, 1 + width, where))[0]), 1 + width


def _slice(raw: bytes, end: int, where: str) -> bytes:
    if len(raw) < end:
        raise InvalidEvent(f"the schema id in the {where} is cut off after {len(raw)} bytes", attribute=where)
    return raw[1:end]


def _exactly(raw: bytes, name: str) -> SchemaId:
    schema_id, length = _read(raw, 4, name)
    if len(raw) != length:
        raise InvalidEvent(f"header {name} has {len(raw)} bytes, a schema id has {length}", attribute=name)
    return schema_id


def _long(raw: bytes, name: str) -> int:
    if len(raw) != 8:
        raise InvalidEvent(f"header {name} has {len(raw)} bytes, a schema id has 8", attribute=name)
    number: int = _FORMS[8].unpack(raw)[0]
    return number
