"""One reader of a partition: entries become Kafka batches as they come, and are held until they are taken.

The reader holds what it has read ahead, within its share of the gateway's budget. What was given to a client
is held, and counted, until the client asks for what is behind it, so that it may ask again.

Offsets may be missing between two entries: Pulsar numbers what readers are never given, too (markers, aborted
transactions), and compaction removes. Kafka clients accept that. Only the start of the log tells whether
something was removed that a client should have read; it is asked where a ledger ends, for ledgers are removed
whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from typing import Final, Protocol

from penstock.brokers.pulsar import PulsarClient, Reader
from penstock.brokers.pulsar.tasks import watched
from penstock.errors import ApiError, ClusterError, InternalError, PenstockError, PulsarRefused, WireError
from penstock.gateway.client_log import log as client_log
from penstock.gateway.pulsar.entry_conversion import Converter, Gap, Item, Unsure, size_of
from penstock.gateway.pulsar.numbering import BY_INDEX, Numbering
from penstock.gateway.pulsar.offset_index import OffsetIndex
from penstock.mapping import KafkaBatch, OnUndecodable, Reason, hole
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar import MessageId

__all__ = ["Facts", "Stuck", "Tail"]

_TOPIC_TERMINATED: Final = 15
"""Pulsar's ServerError.TopicTerminatedError: nothing will come any more."""
_UNLIMITED: Final = 1 << 62


class Stuck(ApiError):
    """An entry that cannot be read stands in the way; the message names the offset to seek past."""


class Facts(Protocol):
    """What only the broker knows of a log, asked when a tail cannot tell."""

    async def fresh_start(self) -> int:
        """Give the first offset of the log as it is now."""

    async def index_before(self, place: MessageId) -> int | None:
        """Give the last index of the entry before one, whoever may read it; None if it is not known."""


class Tail:
    """Batches of a partition from an offset on, in order."""

    def __init__(
        self,
        *,
        offset: int,
        limit: int,
        on_undecodable: OnUndecodable,
        compacted: bool = False,
        undecodable: Counter[str] | None = None,
        numbering: Numbering = BY_INDEX,
        index: OffsetIndex | None = None,
        facts: Facts | None = None,
    ) -> None:
        self.start = offset
        """The first offset that can be asked for."""
        self.end = offset
        """The offset behind the last entry that was taken from the reader."""
        self.used = time.monotonic()
        """When it was last asked."""
        self.looked = 0.0
        """When it was last looked whether the log has more offsets than records to give."""
        self.waiting = 0
        """How many wait for something to come."""
        self._on_undecodable = on_undecodable
        self._compacted = compacted
        self._numbering = numbering
        self._facts = facts
        self._undecodable: Counter[str] = Counter() if undecodable is None else undecodable
        self._converter = Converter(
            offset=offset,
            limit=limit,
            on_undecodable=on_undecodable,
            undecodable=self._undecodable,
            numbering=numbering,
            index=index,
        )
        self._held: deque[tuple[KafkaBatch, int]] = deque()
        """Batches, each with the bytes that the reader counts for it."""
        self._size = 0
        self._counted = 0
        self._share = _UNLIMITED
        self._error: PenstockError | None = None
        self._ended = False
        self._reader: Reader[Item] | None = None
        self._topic = ""
        self._ledger = -1
        """Of the entry that was taken last, at first of the one at which reading begins."""
        self._doubt: asyncio.Task[None] | None = None
        """Asks about the entry that was taken last; nothing behind it is taken before."""

    async def open(
        self, client: PulsarClient, topic: str, place: MessageId, *, read_bytes: int | None = None
    ) -> None:
        """Begin to read at the entry that holds our offset, or before it."""
        self._topic = topic
        self._ledger = place.ledger_id
        self._share = read_bytes or self._share
        self._reader = await client.reader(
            topic,
            start=place,
            read_compacted=self._compacted,
            convert=self._converter.convert,
            size_of=size_of,
            read_bytes=read_bytes,
        )

    async def close(self) -> None:
        """Stop reading; who waits hears of it."""
        if self._error is None:
            self._error = ClusterError("this reader was closed", next="ask again")
        self._held.clear()
        self._size = self._counted = 0
        if self._doubt is not None:
            self._doubt.cancel()
        if self._reader is not None:
            await self._reader.close()

    # Asking

    @property
    def arrived(self) -> int:
        """The offset behind the last entry that came, or that was passed by."""
        return max(self._converter.arrived, self.end)

    @property
    def quiet_seconds(self) -> float:
        """How long nothing has come."""
        return time.monotonic() - self._converter.came

    @property
    def held_bytes(self) -> int:
        """What was read and not yet let go."""
        return 0 if self._reader is None else self._reader.held_bytes

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be read from it any more."""
        return self._error is not None and not self._held

    @property
    def is_full(self) -> bool:
        """Whether it holds as much as it gives at once: more comes only when this is let go.

        That is half of its share, so that it reads ahead what is asked for next.
        """
        return self._counted >= self._share // 2

    @property
    def is_settled(self) -> bool:
        """Whether it is known which offsets everything has that was taken from the reader."""
        return self._doubt is None

    def limit(self, size: int) -> None:
        """Hold no more than this from now on."""
        self._share = size
        if self._reader is not None:
            self._reader.limit(size)

    def covers(self, offset: int) -> bool:
        """Say whether what is at an offset was held or will come next."""
        return self.start <= offset <= self.arrived

    def has(self, offset: int) -> bool:
        """Say whether `read` would give something, or raise."""
        while not self._reaches_past(offset) and self._take_one():
            pass
        return self._error is not None or self._reaches_past(offset)

    def _reaches_past(self, offset: int) -> bool:
        return bool(self._held) and self._held[-1][0].next_offset > offset

    def read(self, offset: int, max_bytes: int) -> list[KafkaBatch]:
        """Give batches from an offset on, at least one if any has come, about `max_bytes` of them."""
        self.used = time.monotonic()
        self._let_go(offset)
        while self._size < max_bytes and not self.is_full and self._take_one():
            self._let_go(offset)
        if not self._held and self._error is not None:
            raise self._error
        taken: list[KafkaBatch] = []
        size = 0
        for batch, _ in self._held:
            size += len(batch.data)
            if taken and size > max_bytes:
                break
            taken.append(batch)
        return taken

    async def arrival(self, offset: int) -> None:
        """Wait until there is something behind an offset, or reading has failed."""
        self.waiting += 1
        try:
            while not self.has(offset):
                await self._news()
        finally:
            self.waiting -= 1

    async def _news(self) -> None:
        if self._doubt is not None:
            await asyncio.wait([self._doubt])
        elif self._reader is None or self._ended:
            # Nothing will come any more; the one who asks waits as long as he wants.
            await asyncio.get_running_loop().create_future()
        else:
            with contextlib.suppress(PenstockError):
                await self._reader.arrival()

    async def last_message_id(self) -> MessageId:
        """Ask the broker for the last message that readers are given."""
        assert self._reader is not None
        return await self._reader.last_message_id()

    def has_received(self, last: MessageId) -> bool:
        """Say whether everything up to an entry has come and is taken in."""
        assert self._reader is not None
        received = self._reader.received
        return self.is_settled and (last.entry_id < 0 or (received is not None and last[:2] <= received[:2]))

    @property
    def is_attached(self) -> bool:
        """Whether its reader can be asked: one that waits for room comes back when something is let go."""
        return self._reader is not None and self._reader.is_attached

    async def is_at_end(self) -> bool:
        """Ask the broker whether everything that is in the topic has come."""
        return self.is_attached and self.has_received(await self.last_message_id())

    def pass_by(self, end: int) -> None:
        """Go on behind offsets of which nothing is left; a batch without records tells clients so."""
        if end > self.end:
            self._hold(hole(self.end, end), 0)
            self.end = end

    def _let_go(self, offset: int) -> None:
        released = 0
        while self._held and self._held[0][0].next_offset <= offset:
            batch, counted = self._held.popleft()
            self._size -= len(batch.data)
            self._counted -= counted
            released += counted
            self.start = max(self.start, batch.next_offset)
        self._release(released)

    def _release(self, size: int) -> None:
        if size and self._reader is not None:
            self._reader.release(size)

    def _take_one(self) -> bool:
        """Take the next entry from the reader; False if there is none now."""
        if self._reader is None or self._error is not None or self._ended or self._doubt is not None:
            return False
        try:
            taken = self._reader.take_nowait()
            if taken is None:
                return False
            item, size = taken
            if self._is_doubtful(item):
                self._doubt = watched(asyncio.create_task(self._settle(item, size)))
                return False
            self._add(item, size)
        except PulsarRefused as exc:
            self._ended = exc.server_error == _TOPIC_TERMINATED
            self._error = None if self._ended else exc
            return False
        except (ApiError, ClusterError, WireError, InternalError) as exc:
            self._error = exc
            return False
        return True

    # Doubt

    def _is_doubtful(self, item: Item) -> bool:
        """Say whether the broker must be asked about an entry before it is taken in."""
        return self._facts is not None and (
            isinstance(item.content, Unsure) or self._may_be_behind_removed(item.place, item.content)
        )

    def _may_be_behind_removed(self, place: MessageId, content: KafkaBatch | Gap) -> bool:
        # The broker begins silently with what is left, if what was asked for has been removed. With packed
        # offsets the next ledger is far away from the last.
        return (
            content.base_offset > self.end
            and place.ledger_id != self._ledger
            and not self._compacted
            and self._numbering.continuous
        )

    async def _settle(self, item: Item, size: int) -> None:
        """Ask the broker what an entry is, and take it in."""
        assert self._facts is not None
        try:
            content = item.content
            if isinstance(content, Unsure):
                content = await self._certain(item.place, content)
            if self._may_be_behind_removed(item.place, content):
                start = await self._facts.fresh_start()
                if self.end < start:
                    raise ApiError(
                        f"offset {self.end} was removed, the log begins at {start}",
                        error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
                    )
            self._add(Item(item.place, content), size)
        except PenstockError as exc:
            self._error = self._error or exc
        except Exception as exc:  # noqa: BLE001  an entry must not be lost by a bug: the tail ends with it
            self._error = self._error or InternalError("an entry could not be judged", why=repr(exc))
        finally:
            self._doubt = None

    async def _certain(self, place: MessageId, unsure: Unsure) -> KafkaBatch | Gap:
        assert self._facts is not None
        before = await self._facts.index_before(place)
        if before is not None and before <= unsure.index_if_counted:
            return unsure.counted
        self._undecodable[Reason.UNNUMBERED.value] += 1
        return unsure.as_one

    # Taking in

    def _add(self, item: Item, size: int) -> None:
        self._ledger = item.place.ledger_id
        content = item.content
        if isinstance(content, Unsure):
            # Nobody can be asked: offsets must not be given twice.
            content = content.as_one
        if isinstance(content, Gap):
            self._skip(content)
        elif content.next_offset > self.end:
            self.end = content.next_offset
            return self._hold(content, size)
        self._release(size)

    def _hold(self, batch: KafkaBatch, counted: int) -> None:
        self._held.append((batch, counted))
        self._size += len(batch.data)
        self._counted += counted

    def _skip(self, gap: Gap) -> None:
        """Pass by what is not ours, is to be skipped or lies before our offset; else raise Stuck."""
        verdict = gap.verdict
        if not verdict.may_leave_hole and (gap.next_offset < 0 or gap.next_offset > self.end):
            self._undecodable[verdict.reason.value] += 1
            if not self._on_undecodable.skips(verdict.reason):
                raise Stuck(
                    f"offset {self.end} cannot be read ({verdict}); seek {_past(gap)}",
                    error_code=ErrorCode.CORRUPT_MESSAGE,
                )
            client_log.warning("topic=%s offset=%d skipped (%s)", self._topic, gap.base_offset, verdict)
        self.pass_by(gap.next_offset)


def _past(gap: Gap) -> str:
    return "past it" if gap.next_offset < 0 else f"to {gap.next_offset}"
