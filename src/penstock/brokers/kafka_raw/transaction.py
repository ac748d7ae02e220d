"""A transactional producer (KIP-98): output and offsets of a group become visible together, or not at all.

Making one takes the transactional id over: whoever had it before is fenced. A transaction that fails is
aborted, and the next one begins with a new epoch, because sequences of lost batches are gaps.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
)
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.coordinator import Coordinator, CoordinatorKind
from penstock.brokers.kafka_raw.group_offsets import (
    GroupOffset,
    TopicPartition,
    by_topic,
    check_partitions,
    offset_rows,
)
from penstock.brokers.kafka_raw.identity import Identity, renewed, take_over
from penstock.brokers.kafka_raw.producer import BatchRefusal, Producer
from penstock.brokers.kafka_raw.refusal import check, refusal
from penstock.errors import InternalError, ProducerFenced
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.primitives import CLASSIC

__all__ = ["TransactionalProducer"]


class TransactionalProducer:
    """The only producer of a transactional id, until another one takes it over.

    producer.begin()
    producer.send("orders", 0, body)
    producer.commit(group="shop", offsets={("carts", 3): GroupOffset(17)})
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, *, timeout: float = 60.0, **options: Any
    ) -> None:
        """Take the id over; the broker aborts a transaction that lasts longer than `timeout`.

        `options` are those of `Producer`.
        """
        if not cluster.transactional:
            raise refusal(ErrorCode.UNSUPPORTED_VERSION, "the cluster has no transactions")
        self._cluster = cluster
        self._id = transactional_id
        self._timeout = timeout
        self._options = options
        self._coordinator = Coordinator(cluster, CoordinatorKind.TRANSACTION, transactional_id)
        self._groups: dict[str, Coordinator] = {}
        self._added: set[TopicPartition] = set()
        self._new: set[TopicPartition] = set()
        """Partitions with batches that wait until the coordinator knows of them."""
        self._has_offsets = False
        self._open = False
        self._fenced: ProducerFenced | None = None
        self._told_at: float | None = None
        """When the coordinator was first told of the transaction that is open."""
        self.expired = False
        """Whether it was fenced in a transaction that lasted longer than `timeout`: perhaps by the broker."""
        self._become(take_over(self._coordinator, self._id, timeout))

    def begin(self) -> None:
        """Begin a transaction; the broker hears of it with the first batch."""
        if self._open:
            raise InternalError(f"transaction {self._id} was begun twice")
        if self._fenced is not None:
            # To take the id back would fence whoever works with it now.
            raise self._fenced
        if not self._usable:
            self._become(renewed(self._coordinator, self._identity, self._timeout))
        self._open = True

    def send(self, topic: str, partition: int, body: BatchBody) -> None:
        """Write a batch inside the transaction; the body may be used again at once."""
        with self._inside():
            self._producer.enqueue(topic, partition, body)
            if (topic, partition) not in self._added:
                self._new.add((topic, partition))
            # Partitions are added in one request if they come soon after each other.
            if not self._new or not self._producer.is_filling:
                self._add_new()
                self._producer.drain()

    def offer(self, topic: str, partition: int, body: BatchBody) -> BatchRefusal | None:
        """Write a batch inside the transaction and wait; give why it was refused, see `Producer.offer`.

        After a refusal the transaction is to be aborted.
        """
        with self._inside():
            if (topic, partition) not in self._added:
                self._new.add((topic, partition))
            self._add_new()
            return self._producer.offer(topic, partition, body)

    @property
    def was_refused(self) -> bool:
        """Whether the transaction failed because of a batch that was refused for the sake of its records."""
        return self._producer.was_refused

    def flush(self) -> None:
        """Wait until everything is in the log, where it counts for nothing before `commit`."""
        with self._inside():
            self._add_new()
            self._producer.flush()

    def commit(
        self, *, group: str | None = None, offsets: Mapping[TopicPartition, GroupOffset] | None = None
    ) -> None:
        """Wait until all is written, commit the offsets of a group with it, and end the transaction.

        After an error it is unknown to this producer whether it was committed; `abort` or a new producer of
        the same id make it certain, and the committed offsets tell.
        """
        with self._inside():
            self._add_new()
            self._producer.drain()
            # The offsets travel while the last batches do: neither counts before the end.
            if group is not None and offsets:
                self._add_offsets(group, offsets)
            self._producer.flush()
            self._end(committed=True)

    def abort(self) -> None:
        """Make everything since `begin` invisible for readers of committed records.

        Raises ProducerFenced if that is learnt only now; it is invisible then, too.
        """
        if not self._open:
            return
        self._usable = False
        # What is still under way must not come after the end: it would belong to the next transaction.
        self._producer.settle()
        was_fenced = self._fenced is not None
        try:
            with self._inside():
                self._end(committed=False)
        except ProducerFenced:
            # Who fenced us has aborted it already.
            self._open = False
            if not was_fenced:
                raise

    def close(self) -> None:
        """Close the connections; an open transaction is aborted by its time-out, or by the next producer."""
        self._producer.close()

    # What the coordinators are told

    def _become(self, identity: Identity) -> None:
        self._identity = identity
        self._who = CLASSIC.string(self._id) + struct.pack(">qh", identity.producer_id, identity.epoch)
        self._ids = struct.pack(">qh", identity.producer_id, identity.epoch)
        self._producer = Producer(self._cluster, identity=identity, **self._options)
        self._usable = True

    def _add_new(self) -> None:
        if not self._new:
            return
        self._tell()
        what = f"partitions cannot be written in transaction {self._id}"
        topics = by_topic(sorted(self._new))
        rows = [
            CLASSIC.string(topic) + CLASSIC.length(len(numbers)) + struct.pack(f">{len(numbers)}i", *numbers)
            for topic, numbers in topics.items()
        ]
        self._coordinator.ask(
            ADD_PARTITIONS_TO_TXN,
            (self._who, CLASSIC.length(len(rows)), *rows),
            lambda answer: check_partitions(answer, what),
        )
        self._added |= self._new
        self._new.clear()

    def _add_offsets(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        self._tell()
        what = f"the offsets of group {group} cannot be committed in transaction {self._id}"
        self._coordinator.ask(
            ADD_OFFSETS_TO_TXN, (self._who, CLASSIC.string(group)), lambda answer: _check(answer, what)
        )
        self._has_offsets = True
        coordinator = self._groups.get(group) or self._groups.setdefault(
            group, Coordinator(self._cluster, CoordinatorKind.GROUP, group)
        )
        who = CLASSIC.string(self._id) + CLASSIC.string(group) + self._ids
        body = (who, *offset_rows(offsets))
        coordinator.ask(TXN_OFFSET_COMMIT, body, lambda answer: check_partitions(answer, what))

    def _tell(self) -> None:
        """Note that the time of the transaction runs."""
        self._told_at = _seconds() if self._told_at is None else self._told_at

    def _end(self, *, committed: bool) -> None:
        """End it, if the broker has ever heard of it."""
        if self._added or self._has_offsets:
            what = f"transaction {self._id} cannot be {'committed' if committed else 'aborted'}"
            body = (self._who, bytes((committed,)))
            self._coordinator.ask(END_TXN, body, lambda answer: _check(answer, what))
        self._open = self._has_offsets = False
        self._told_at = None
        self._added.clear()
        self._new.clear()

    @contextmanager
    def _inside(self) -> Iterator[None]:
        if not self._open:
            raise InternalError(f"transaction {self._id} was not begun")
        try:
            yield
        except ProducerFenced as exc:
            self._fenced = exc
            since = self._told_at
            self.expired = since is not None and _seconds() - since >= self._timeout
            raise


def _seconds() -> float:
    """Return the time of a clock that goes on while the machine is suspended, as that of the broker does."""
    # Not every system has it; `time.monotonic` of Linux stands still meanwhile.
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _check(answer: Answer, what: str) -> None:
    check(answer.int16(), what)
