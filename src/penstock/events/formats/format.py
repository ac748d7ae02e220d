"""What an event format is, and the table of formats by media type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

from penstock.errors import CannotEncode, EventError, InternalError, UnsupportedFormat
from penstock.events.cloudevent import CloudEvent
from penstock.events.draft import Draft, conclude, failed
from penstock.events.media import BATCH, CLOUDEVENTS, LONGEST_KEPT, essence
from penstock.events.reading import Level, Mode, Reading

__all__ = ["Format", "Formats"]

_MEMORY = 64
"""Spellings of media types that are remembered."""


class Format(ABC):
    """One event format; a new one says its name and how to encode and to read into a Draft."""

    name: ClassVar[str]
    """The suffix of its media type, and its name on the command line."""
    charset: ClassVar[str] = ""

    @property
    def media_type(self) -> str:
        """The media type of one event."""
        return f"{CLOUDEVENTS}+{self.name}{self.charset}"

    @cached_property
    def marker(self) -> bytes:
        """The media type of one event, as a header has it."""
        return self.media_type.encode()

    @property
    def batch_media_type(self) -> str:
        """The media type of a batch."""
        return f"{BATCH}+{self.name}{self.charset}"

    @abstractmethod
    def encode(self, event: CloudEvent) -> bytes:
        """Write one event; CannotEncode if the format cannot carry it."""

    @abstractmethod
    def draft(self, raw: bytes) -> Draft:
        """Read one event as far as it goes; broken rules become findings or InvalidEvent."""

    def encode_batch(self, events: Sequence[CloudEvent]) -> bytes:
        """Write a batch of events."""
        raise CannotEncode(f"the {self.name} format has no batch", next="use the json format")

    def drafts(self, raw: bytes) -> list[Draft]:
        """Read a batch into drafts."""
        raise UnsupportedFormat(self.batch_media_type)

    def decode(self, raw: bytes) -> CloudEvent:
        """Read one event at the level `strict`."""
        event = conclude(self.draft(raw), Level.STRICT).event
        if event is None:
            raise InternalError("a strict reading ended without an event")
        return event

    def read(self, raw: bytes, level: Level = Level.STRICT) -> Reading:
        """Read one event at any level."""
        try:
            draft = self.draft(raw)
        except EventError as error:
            return failed(error, level, Mode.STRUCTURED)
        draft.mode = Mode.STRUCTURED
        return conclude(draft, level)


class Formats:
    """The formats of a binding by media type; `register` adds one."""

    def __init__(self, *formats: Format) -> None:
        self._by_name = {each.name: each for each in formats}
        self._by_media_type: dict[str, Format] = {}
        self.by_marker: dict[bytes, Format] = {}
        """Headers that said `structured` before, and their formats; bounded."""

    def register(self, each: Format) -> None:
        """Add a format, or replace the one of its name."""
        self._by_name[each.name] = each
        self._by_media_type.clear()
        self.by_marker.clear()

    def get(self, media_type: str, record: object = None) -> Format:
        """Give the format of a media type; UnsupportedFormat, with the record in it, if there is none."""
        found = self._by_media_type.get(media_type)
        return found if found is not None else self._find(media_type, record)

    def marked(self, media_type: str, record: object) -> Format:
        """Give the format of a media type that is not a batch, and remember its bytes."""
        found = self.get(media_type, record)
        if len(media_type) <= LONGEST_KEPT and len(self.by_marker) < _MEMORY:
            self.by_marker[media_type.encode()] = found
        return found

    def _find(self, media_type: str, record: object) -> Format:
        prefix, _, name = essence(media_type).partition("+")
        found = self._by_name.get(name) if prefix in (CLOUDEVENTS, BATCH) else None
        if found is None:
            # Kafka 3: a format that the receiver cannot handle may be forwarded as-is.
            raise UnsupportedFormat(media_type[:100], record=record)
        if len(media_type) <= LONGEST_KEPT and len(self._by_media_type) < _MEMORY:
            self._by_media_type[media_type] = found
        return found

    def named(self, name: str) -> Format:
        """Give the format of a short name such as `json`."""
        found = self._by_name.get(name)
        return found if found is not None else self.get(f"{CLOUDEVENTS}+{name}")

    def __iter__(self) -> Iterator[Format]:
        return iter(self._by_name.values())
