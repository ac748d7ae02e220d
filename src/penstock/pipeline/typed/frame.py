"""The frame of a payload: where its schema id stands, as the Kafka binding of its message says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from penstock.contract.schema_ids import (
    CONFLUENT_HEADERS,
    IdKind,
    Part,
    SchemaId,
    decode_header,
    decode_payload,
    encode_apicurio_header,
    encode_confluent_header,
    encode_payload,
)
from penstock.errors import InvalidEvent
from penstock.record import Headers

if TYPE_CHECKING:
    from penstock.contract import ResolvedMessage

__all__ = ["Frame", "frame_of", "id_headers", "without_ids"]

_NARROW, _WIDE = 4, 8
_NO_ID: Final = bytes(_NARROW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where schema ids are; without a location a header is taken if there is one, and nothing is written."""

    location: str | None = None
    """`payload` or `header`."""
    width: int | None = None
    """Bytes of an id that is written to the payload; None is 4."""
    any_width: bool = False
    """Whether ids of either width are read: of 8 bytes where the first four are zero, which no id is."""
    vendor: str = ""

    def read(
        self, payload: bytes, headers: Headers, part: Part = Part.VALUE
    ) -> tuple[SchemaId | None, bytes]:
        """Take the id off; InvalidEvent if there should be one and is none."""
        if self.location == "payload":
            sure = None if self.any_width else self.width
            return decode_payload(payload, width=sure or _optimistic(payload))
        found = decode_header(headers, part)
        if found is None and self.location == "header":
            raise InvalidEvent(f"no header holds the id of the {part}'s schema", attribute=part)
        return found, payload

    def write(
        self, schema_id: SchemaId | None, payload: bytes, part: Part = Part.VALUE
    ) -> tuple[bytes, Headers]:
        """Put the id where it belongs."""
        if schema_id is None or self.location is None:
            return payload, ()
        if self.location == "payload":
            return encode_payload(schema_id, payload, width=self.width or _NARROW), ()
        if self.vendor == "apicurio":
            return payload, (encode_apicurio_header(schema_id, part),)
        return payload, (encode_confluent_header(schema_id, part),)


def _optimistic(payload: bytes) -> int:
    """Apicurio's two words changed their widths between its versions; ids begin at one in both."""
    return _WIDE if payload[1 : 1 + _NARROW] == _NO_ID else _NARROW


def frame_of(message: ResolvedMessage) -> Frame | None:
    """Give the frame of a message; None without a registry."""
    registry = message.registry
    if registry is None:
        return None
    return Frame(
        location=registry.id_location,
        width=registry.id_width,
        any_width=registry.any_width,
        vendor=(registry.vendor or "").lower(),
    )


@cache
def id_headers(part: Part = Part.VALUE) -> frozenset[str]:
    """Name the headers that name a schema."""
    return frozenset({CONFLUENT_HEADERS[part], *(f"apicurio.{part}.{kind}" for kind in IdKind)})


def without_ids(headers: Headers, part: Part = Part.VALUE) -> Headers:
    """Leave out the headers that name a schema: they are not true of a payload that is written anew."""
    own = id_headers(part)
    return tuple(header for header in headers if header[0] not in own)
