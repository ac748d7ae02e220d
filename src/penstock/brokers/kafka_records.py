"""The records of Kafka topics for tools: what a topic holds now, once, and a send that was acknowledged.

Not a hot path: one object a record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic, sleep
from typing import Any, Final, TypeVar

from penstock.brokers.kafka_contact import START, Contact
from penstock.brokers.outage import OutageLog
from penstock.brokers.start import Start, StartKind
from penstock.errors import PenstockError, RecordRefused, Unreachable
from penstock.record import KafkaRecord

__all__ = ["follow", "publish", "scan", "scan_messages"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_CHUNK: Final = 1000
_BETWEEN_LOOKS: Final = 0.1
_BETWEEN_PROBES: Final = 2.0
_BETWEEN_RECORDS: Final = 0.02
"""Seconds to wait for a record that is not there yet."""
_GROUP: Final = "penstock-scan"
"""librdkafka wants a name; nothing is committed under it."""


def scan(
    options: Mapping[str, str],
    topic: str,
    *,
    patience: float = 30.0,
    on_size: Callable[[int], None] | None = None,
) -> Iterator[KafkaRecord]:
    """Give the records that the topic holds now, partition by partition in order, and end.

    `patience` is how long a broker may be silent, in seconds; `on_size` learns how many records there are
    at most.
    """
    return scan_messages(options, topic, _record, patience=patience, on_size=on_size)


def scan_messages(
    options: Mapping[str, str],
    topic: str,
    take: Callable[[Any], _T],
    *,
    patience: float = 30.0,
    on_size: Callable[[int], None] | None = None,
) -> Iterator[_T]:
    """Give what `take` makes of the messages of librdkafka, as `scan` gives records.

    For who needs little of many: most of the time of a scan goes into the values of the records.
    """
    contact = _consumer(options)
    consumer = contact.client
    try:
        ends = _ends(contact, topic, patience)
        if on_size is not None:
            on_size(sum(end - start for start, end in ends.values()))
        yield from _read(contact, topic, ends, patience, take)
    finally:
        consumer.close()


def follow(
    options: Mapping[str, str],
    topic: str,
    start: Start,
    *,
    until_end: bool = False,
    patience: float = 30.0,
) -> Iterator[KafkaRecord]:
    """Give the records of a topic from a place on, as they come; with `until_end` only what is there now."""
    contact = _consumer(options)
    consumer = contact.client
    try:
        marks = _watermarks(contact, topic, patience)
        begin = _begin(consumer, topic, start, marks, patience)
        if until_end:
            ends = {
                number: (begin[number], high) for number, (_, high) in marks.items() if begin[number] < high
            }
            yield from _read(contact, topic, ends, patience, _record)
        else:
            yield from _endless(contact, topic, begin)
    finally:
        consumer.close()


def _begin(
    consumer: Any, topic: str, start: Start, marks: Mapping[int, tuple[int, int]], patience: float
) -> dict[int, int]:
    """Give the first offset to read of each partition."""
    from confluent_kafka import TopicPartition

    if start.kind is StartKind.TIME:
        asked = [TopicPartition(topic, number, start.number) for number in marks]
        found = {each.partition: each.offset for each in consumer.offsets_for_times(asked, patience)}
        return {number: found[number] if found[number] >= 0 else high for number, (_, high) in marks.items()}
    places = {
        StartKind.BEGINNING: lambda low, high: low,
        StartKind.END: lambda low, high: high,
        StartKind.LAST: lambda low, high: max(low, high - start.number),
        StartKind.OFFSET: lambda low, high: min(max(low, start.number), high),
    }
    return {number: places[start.kind](*mark) for number, mark in marks.items()}


def _endless(contact: Contact, topic: str, begin: Mapping[int, int]) -> Iterator[KafkaRecord]:
    from confluent_kafka import KafkaError, TopicPartition

    consumer = contact.client
    consumer.assign([TopicPartition(topic, number, offset) for number, offset in begin.items()])
    outage, look_at = OutageLog(_log, f"{contact.name} {contact.address}"), 0.0
    while True:
        if contact.is_away and monotonic() >= look_at:
            outage.worked() if contact.answers(topic) else outage.failed(contact.reason())
            look_at = monotonic() + _BETWEEN_PROBES
        for message in consumer.consume(_CHUNK, _BETWEEN_LOOKS):
            error = message.error()
            if error is None:
                yield _record(message)
            elif error.code() not in (KafkaError._PARTITION_EOF, _no_group()):
                raise contact.error(f"topic {topic}", error, what=f"cannot read topic {topic}")


def _ends(contact: Contact, topic: str, patience: float) -> dict[int, tuple[int, int]]:
    """Look where each partition begins and ends now; partitions without records are left out."""
    marks = _watermarks(contact, topic, patience)
    return {number: mark for number, mark in marks.items() if mark[0] < mark[1]}


def _watermarks(contact: Contact, topic: str, patience: float) -> dict[int, tuple[int, int]]:
    from confluent_kafka import KafkaException

    found = contact.metadata(topic).topics[topic]
    if found.error is not None:
        raise contact.error(f"topic {topic}", found.error, what=f"cannot read topic {topic}")
    try:
        return {
            number: _marks(contact.client, topic, number, patience) for number in sorted(found.partitions)
        }
    except KafkaException as exc:
        contact.serve()
        raise contact.error(f"topic {topic}", exc.args[0], what=f"cannot look at topic {topic}") from exc


def _marks(consumer: Any, topic: str, number: int, patience: float) -> tuple[int, int]:
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    until = monotonic() + patience
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=patience)
        except KafkaException as exc:
            # A partition that was just made, or moves, has no leader for a moment.
            if exc.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or monotonic() > until:
                raise
            sleep(_BETWEEN_LOOKS)
        else:
            return low, high


def _read(
    contact: Contact,
    topic: str,
    ends: Mapping[int, tuple[int, int]],
    patience: float,
    take: Callable[[Any], _T],
) -> Iterator[_T]:
    from confluent_kafka import TopicPartition

    consumer = contact.client
    left, heard = dict(ends), monotonic()
    consumer.assign([TopicPartition(topic, number, start) for number, (start, _) in ends.items()])
    while left:
        # consume() waits until it has that many or the time is over: the time must be short.
        messages = consumer.consume(_CHUNK, _BETWEEN_LOOKS)
        if messages:
            heard = monotonic()
        elif monotonic() > heard + patience:
            raise Unreachable(
                f"topic {topic} stopped giving records",
                where=contact.address,
                why=f"silent for {patience:g} s",
                next=START,
            )
        for message in messages:
            if _is_record(contact, message, left):
                yield take(message)


def _is_record(contact: Contact, message: Any, left: dict[int, tuple[int, int]]) -> bool:
    """Whether a message is a record that was there at the start; `left` loses partitions that are read."""
    from confluent_kafka import KafkaError

    number, error = message.partition(), message.error()
    if error is not None and error.code() == _no_group():
        return False
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        topic = message.topic()
        raise contact.error(f"topic {topic}", error, what=f"cannot read topic {topic}")
    end = left.get(number, (0, 0))[1]
    # Where transactions or compaction left holes, only the end of the partition tells that it is read.
    if message.offset() + (error is None) >= end:
        left.pop(number, None)
    return error is None and bool(message.offset() < end)


def _no_group() -> int:
    """Kafka's code for a group that we may not use; we use none, and librdkafka looks for it all the same."""
    from confluent_kafka import KafkaError

    return int(KafkaError.GROUP_AUTHORIZATION_FAILED)


def _record(message: Any) -> KafkaRecord:
    kind, timestamp = message.timestamp()
    return KafkaRecord(
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),
        timestamp=timestamp if kind else None,
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
    )


_MAX_BYTES: Final = "1000000000"
"""The most that librdkafka allows: how large a record may be is for its topic to say."""


_OF_A_RECORD: Final = frozenset(
    {
        "INVALID_MSG_SIZE",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "_INVALID_DIFFERENT_RECORD",
    }
)
"""librdkafka's names for: the batch is refused for the sake of one of its records, or of their number."""


def publish(
    options: Mapping[str, str],
    records: Iterable[KafkaRecord | None],
    *,
    patience: float = 30.0,
    on_sent: Callable[[KafkaRecord], None] | None = None,
    named: Callable[[KafkaRecord], str] = lambda record: "a record",
) -> int:
    """Write records to their topics and wait until all are acknowledged; gives how many.

    A record goes to its partition, or by its key if it names none. None among them means that the next one is
    not there yet. A batch that is refused for the sake of a record is sent again one by one: RecordRefused
    says which one it was, as it is `named`, and how many were written; nothing behind it is sent.
    ClusterError for another refusal, also while no record comes; Unreachable if nobody answered, soon if that
    is so from the start.
    """
    extra = {"enable.idempotence": "true", "linger.ms": "5", "message.timeout.ms": str(int(patience * 1000))}
    extra["message.max.bytes"] = _MAX_BYTES
    contact = Contact("Producer", {**options, **extra}, name="Kafka")
    contact.require()
    sending = _Sending(contact, patience, on_sent)
    left, waiting = iter(records), 0
    while not sending.failed:
        waiting = sending.send(left)
        again = sending.of_a_record()
        if not again:
            break
        for record in again:
            waiting = sending.send([record])
            if sending.of_a_record():
                what = f"{named(record)} was refused ({sending.written} written)"
                raise RecordRefused(contact.error("a record", sending.error, what=what), record)
            if sending.failed:
                break
    what = f"only {sending.written} records were written"
    if sending.failed:
        raise contact.error("a record", sending.failed[0][0], what=what)
    if waiting:
        raise Unreachable(what, where=contact.address, why=f"no answer in {patience:g} s", next=START)
    return sending.written


class _Sending:
    """A producer of librdkafka, and what became of the records that it was given."""

    def __init__(
        self, contact: Contact, patience: float, on_sent: Callable[[KafkaRecord], None] | None
    ) -> None:
        self.written = 0
        self.failed: list[tuple[Any, KafkaRecord | None]] = []
        """Errors that are not dealt with yet, and of which record each is; None: of the producer."""
        self.error: Any = None
        self._contact = contact
        self._producer = contact.client
        self._patience = patience
        self._on_sent = on_sent

    def send(self, records: Iterable[KafkaRecord | None]) -> int:
        """Send records until one has failed, and wait for receipts; gives for how many there is none."""
        from confluent_kafka import KafkaException

        try:
            self._send(records)
        except PenstockError:
            # The source ended in the middle. What it gave before is sent: a producer that ends drops it.
            with suppress(KafkaException):
                self._wait()
            raise
        try:
            return self._wait()
        except KafkaException as exc:
            self.failed.insert(0, (exc.args[0], None))  # what was queued is only purged for its sake
            return 0

    def _wait(self) -> int:
        """Wait until every record is acknowledged or has failed; gives for how many that is not so yet.

        Not by the client's `flush`: it runs receipts behind the error that ends a producer, and that error is
        lost in them (SystemError). `poll` stops there and raises it.
        """
        end = monotonic() + self._patience
        # A record that an ended producer does not take says only that it has ended; why is told after it.
        self._producer.poll(_BETWEEN_RECORDS if self.failed else 0)
        while len(self._producer) and (left := end - monotonic()) > 0:
            self._producer.poll(left)
        return len(self._producer)

    def _send(self, records: Iterable[KafkaRecord | None]) -> None:
        from confluent_kafka import KafkaException

        for record in records:
            try:
                if record is None:
                    self._producer.poll(_BETWEEN_RECORDS)
                    if self._contact.is_refused:
                        self._contact.renew_login()
                else:
                    _produce(self._producer, record, partial(self._delivered, record), self._patience)
            except KafkaException as exc:
                self.failed.append((exc.args[0], record))
            if self.failed:
                # Not one record more is taken: who goes on behind it takes the next.
                break

    def of_a_record(self) -> list[KafkaRecord]:
        """Give the records that failed, if all did for the sake of a record; their errors are dealt with."""
        found = [record for error, record in self.failed if str(error.name()) in _OF_A_RECORD and record]
        if len(found) != len(self.failed):
            return []
        if found:
            self.error = self.failed[0][0]
        self.failed.clear()
        return found

    def _delivered(self, record: KafkaRecord, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed.append((error, record))
            return
        self.written += 1
        if self._on_sent is not None:
            self._on_sent(record)


def _produce(
    producer: Any, record: KafkaRecord, delivered: Callable[[Any, Any], None], patience: float
) -> None:
    place = {} if record.partition is None else {"partition": record.partition}
    time = {} if record.timestamp is None else {"timestamp": record.timestamp}
    while True:
        try:
            producer.produce(
                record.topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=delivered,
                **place,
                **time,
            )
        except BufferError:
            producer.poll(patience)
        else:
            producer.poll(0)
            return


def _consumer(options: Mapping[str, str]) -> Contact:
    """Make a consumer that belongs to no group and is told of the ends of partitions."""
    extra = {"group.id": _GROUP, "enable.auto.commit": "false", "enable.partition.eof": "true"}
    return Contact("Consumer", {**options, **extra}, name="Kafka")
