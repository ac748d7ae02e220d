"""Topics on Pulsar as rows of Spark: the same records as everywhere, in order; what is missing ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.brokers.kafka_raw.fetched import Fetched
from penstock.errors import JobFailed, OffsetOutOfRange, RecordsError, Unreachable
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.delivery import partition_reader, spark_source
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.delivery.spark_source import arrow_rows, read_ranges
from penstock.pipeline.delivery.task_sink import _records
from penstock.pipeline.evaluators.kernel.batch_builder import numbered, record_bytes
from penstock.pipeline.evaluators.kernel.record_body import Body
from penstock.pipeline.evaluators.reference.reading import Decoded, Reject
from penstock.pipeline.plain import PlainReader
from penstock.pipeline.pulsar import REJECTED, PulsarReader
from penstock.pipeline.stage import INPUT
from penstock.record import KafkaRecord
from penstock.wire.buffer import as_array
from penstock.wire.kafka.record_batch import HEAD_SIZE, write_batch_head


def body_of(records: Sequence[KafkaRecord], base: int, **more: Any) -> Body:
    rows = [numbered(record_bytes(each.key, each.value, each.headers), n) for n, each in enumerate(records)]
    known = {
        "base_timestamp": 1_700_000_000_000,
        "append_timestamp": None,
        "first": 0,
        "end": len(rows),
        **more,
    }
    return Body(records=as_array(b"".join(rows)), count=len(rows), base_offset=base, **known)


GIVEN = [
    KafkaRecord(key=b"k", value=b"v", headers=(("a", b"1"), ("a", None), ("ä", b""))),
    KafkaRecord(key=None, value=b"x" * 300),
    KafkaRecord(key=b"", value=None, headers=(("b", b"\xff" * 40),)),
    KafkaRecord(key=b"\x00" * 33, value=b""),
]


def test_rows_are_the_records_that_every_other_reader_gives() -> None:
    bodies = [
        body_of(GIVEN, 10),
        body_of(GIVEN[:1], 14, append_timestamp=1_800_000_000_000),
        body_of(GIVEN, 20, first=1, end=3),
        body_of(GIVEN, 30, first=4, end=9),
    ]
    batch = arrow_rows(bodies, "in", 3)
    assert batch.schema.names == list(INPUT)
    assert batch.schema.field("headers").type == HEADERS
    wanted = [each for body in bodies for each in body.kafka_records(body.starts(), "in", 3)]
    assert _records(batch) == wanted
    assert [each.offset for each in wanted] == [10, 11, 12, 13, 14, 21, 22]
    assert arrow_rows([], "in", 0).num_rows == arrow_rows(bodies[3:], "in", 0).num_rows == 0


def test_names_of_headers_that_are_no_text_are_replaced_as_everywhere() -> None:
    body = body_of([KafkaRecord(headers=(("abc", b"1"),))], 0)
    raw = body.records.tobytes().replace(b"abc", b"a\xffc")
    spoilt = body_of([KafkaRecord()], 0)
    spoilt = Body(**{**{n: getattr(spoilt, n) for n in spoilt.__slots__}, "records": as_array(raw)})
    (found,) = _records(arrow_rows([spoilt], "in", 0))
    assert found.headers == (("a\ufffdc", b"1"),)
    assert [found] == spoilt.kafka_records(spoilt.starts(), "in", 0)


def test_bytes_that_are_no_records_are_an_error() -> None:
    body = body_of([KafkaRecord(value=b"v")], 7)
    raw = np.frombuffer(body.records.tobytes()[:-1] + b"\x09", np.uint8)
    with pytest.raises(RecordsError, match="no records"):
        arrow_rows([Body(**{**{n: getattr(body, n) for n in body.__slots__}, "records": raw})], "in", 0)


# Entries that cannot be read

EVENT = tuple((f"ce_{name}", b"1.0") for name in ("specversion", "id", "source", "type"))


@pytest.mark.parametrize(
    "reader",
    [
        PulsarReader(),
        PulsarReader(sniffed=True),
        PlainReader(source="/s", kind="t", content_type="text/plain", on_pulsar=True),
    ],
    ids=["events", "sniffed", "plain"],
)
def test_what_stands_for_an_entry_that_cannot_be_read_is_rejected_by_columns_and_by_record(
    reader: PulsarReader | PlainReader,
) -> None:
    """Else Spark would be asked about an event that nobody can read, and drop it if the answer is no."""
    said = ((REJECTED, b"encrypted-entry: no key"), (REJECTED, b"x"))
    given = [
        KafkaRecord(key=b"k", value=b"{}", headers=EVENT),
        KafkaRecord(key=b"k", value=b"x7", headers=(*EVENT, *said)),
        KafkaRecord(value=None, headers=((REJECTED, None),)),
        KafkaRecord(key=b"k", value=b"{}", headers=(*EVENT, ("app", b"1"))),
    ]
    body = body_of(given, 5)
    by_record = [reader.by_record()(each) for each in body.kafka_records(body.starts(), "in", 0)]
    assert [each.code for each in by_record if isinstance(each, Reject)] == [
        "encrypted-entry",
        "rejected-entry",
    ]
    columns = reader(arrow_rows([body], "in", 0))
    assert columns.code.to_pylist() == [None, "encrypted-entry", "rejected-entry", None]
    assert columns.reason.to_pylist() == [None, "no key", "", None]
    assert columns.data.to_pylist() == [b"{}", None, None, b"{}"]
    assert [list(each or ()) == [] for each in columns.foreign.to_pylist()][1:3] == [True, True]
    assert columns.attributes["type"].is_valid().to_pylist() == [True, False, False, True]


def test_on_kafka_the_header_means_nothing_to_plain_records() -> None:
    body = body_of([KafkaRecord(value=b"x", headers=((REJECTED, b"encrypted-entry: no"),))], 5)
    (given,) = body.kafka_records(body.starts(), "in", 0)
    reader = PlainReader(source="/s", kind="t", content_type="text/plain")
    assert isinstance(reader.by_record()(given), Decoded)
    assert reader(arrow_rows([body], "in", 0)).code.to_pylist() == [None]


# Ranges


def batch_at(offset: int, values: Sequence[bytes]) -> bytes:
    rows = b"".join(numbered(record_bytes(None, each, ()), n) for n, each in enumerate(values))
    data = memoryview(bytearray(HEAD_SIZE) + rows)
    write_batch_head(
        data,
        base_offset=offset,
        last_offset_delta=len(values) - 1,
        base_timestamp=0,
        max_timestamp=0,
        record_count=len(values),
    )
    return bytes(data)


class Pulsar:
    """What a fetcher gives, one poll after the other; an exception is raised."""

    def __init__(self, *polls: Fetched | OffsetOutOfRange) -> None:
        self.polls = list(polls)
        self.sought: list[int] = []
        self.closed = 0

    def poll(self, timeout: float) -> list[Fetched]:
        found = self.polls.pop(0) if self.polls else None
        if isinstance(found, OffsetOutOfRange):
            raise found
        return [] if found is None else [found]

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.sought.append(offset)

    def close(self) -> None:
        self.closed += 1


def fetched(first: int, following: int, *batches: bytes) -> Fetched:
    return Fetched("in", 0, first, following, following, following, 0, memoryview(b"".join(batches)), ())


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    @contextmanager
    def cluster(work: Any) -> Iterator[None]:
        yield None

    def run(pulsar: Pulsar, *spans: OffsetRange, policy: str = "stop") -> Iterator[Any]:
        work = SimpleNamespace(topic="in", on_data_loss=policy)
        monkeypatch.setattr(spark_source, "_unpacked", lambda packed: work)
        monkeypatch.setattr(spark_source, "source_cluster", cluster)
        monkeypatch.setattr(partition_reader, "source_fetcher", lambda *_, **__: pulsar)
        return read_ranges(b"", spans)

    return run


def values(batches: Iterator[Any]) -> list[bytes]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_entries_that_cannot_be_read_come_at_their_places(read: Any) -> None:
    """A fetch has them behind all others, and a mark behind one of these would leave them out."""
    pulsar = Pulsar(
        fetched(5, 9, batch_at(5, [b"5", b"6"]), batch_at(8, [b"8"]), batch_at(7, [b"rejected"])),
        fetched(9, 10, batch_at(9, [b"9"])),
    )
    found = list(read(pulsar, OffsetRange(0, 5, 10)))
    assert [each.column("offset").to_pylist() for each in found] == [[5, 6, 7, 8], [9]]
    assert values(iter(found)) == [b"5", b"6", b"rejected", b"8", b"9"]
    assert pulsar.closed == 1


def test_a_range_that_holds_nothing_gives_no_rows(read: Any) -> None:
    assert list(read(Pulsar(fetched(5, 10)), OffsetRange(0, 5, 10))) == []


def test_removed_messages_end_the_task_or_are_passed_by(read: Any) -> None:
    gone = OffsetOutOfRange("in", 0, offset=5, log_start=8, log_end=20)
    with pytest.raises(JobFailed, match="deleted before they were read"):
        list(read(Pulsar(gone), OffsetRange(0, 5, 10)))
    pulsar = Pulsar(gone, fetched(8, 10, batch_at(8, [b"8", b"9"])))
    assert values(read(pulsar, OffsetRange(0, 5, 10), policy="continue")) == [b"8", b"9"]
    assert pulsar.sought == [8]


def test_a_broker_that_gives_nothing_is_an_error(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_source, "_SILENT_SECONDS", -1.0)
    with pytest.raises(Unreachable, match="nothing came"):
        list(read(Pulsar(), OffsetRange(0, 5, 10)))
