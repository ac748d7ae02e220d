"""The verdict on a Pulsar entry that cannot become Kafka records; what to do with it is a policy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

__all__ = ["OnUndecodable", "Reason", "Undecodable"]


class Reason(Enum):
    """Why an entry cannot be decoded."""

    MARKER = "marker"
    CHUNK = "chunked"
    ENCRYPTED = "encrypted"
    CORRUPT = "corrupt"
    UNNUMBERED = "unnumbered"


class OnUndecodable(StrEnum):
    """What becomes of an entry that cannot be decoded."""

    FAIL = "fail"
    """The fetch is answered with an error that names the offset to seek past."""
    PLACEHOLDER = "placeholder"
    """Each message is a record with the reason in a header."""
    SKIP = "skip"
    """Chunked and encrypted messages leave a hole; anything else fails, as it may be data that is lost."""

    def skips(self, reason: Reason) -> bool:
        """Return whether a message is left out that Pulsar's own consumers can read and Kafka's cannot.

        >>> OnUndecodable.SKIP.skips(Reason.CHUNK), OnUndecodable.SKIP.skips(Reason.CORRUPT)
        (True, False)
        """
        return self is OnUndecodable.SKIP and reason in (Reason.CHUNK, Reason.ENCRYPTED)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An entry that cannot become records.

    >>> str(Undecodable(Reason.ENCRYPTED, "encrypted by its producer", 3))
    'encrypted: encrypted by its producer'
    """

    reason: Reason
    detail: str
    num_messages: int = 1
    """How many offsets the entry takes."""
    last_piece: bool = True
    """Whether a chunked message ends with this entry."""

    @property
    def may_leave_hole(self) -> bool:
        """Say whether its offsets hold no message of anybody: a marker, or a chunk before the last."""
        return self.reason is Reason.MARKER or not self.last_piece

    def __str__(self) -> str:
        """Give reason and detail, as a placeholder's header has them."""
        return f"{self.reason.value}: {self.detail}"
