"""Records per second through the mapping, both ways: kernels, whole functions, Python per record.

"kernel" is the transcoding alone, "whole" adds heads, checksums and buffers as the gateway does it.
"Python" is the same mapping record by record with the fastest parts there are: aiokafka's C code for
Kafka batches and Protocol Buffers' C code for Pulsar's metadata. All sides give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from penstock.mapping import KafkaBatch, batch_to_entry, entry_to_batch, to_kafka, to_pulsar
from penstock.wire.kafka import read_batches
from penstock.wire.kafka.record_batch import HEAD_SIZE
from penstock.wire.pulsar import Entry, read_entry, send_frame
from penstock.wire.pulsar.pulsar_pb2 import KeyValue, SingleMessageMetadata
from table import Report, alternate

LIMIT = 1 << 24
TIME = 1_700_000_000_000
GOAL = 2.0


@dataclass(frozen=True)
class Case:
    """A batch of about 128 KiB."""

    name: str
    size: int
    key: bool
    headers: int

    @property
    def records(self) -> int:
        return 1000 if self.size == 100 else 120

    def batch(self) -> bytes:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, LIMIT)
        for i in range(self.records):
            headers = [(f"header-{n}", b"value-%d-%d" % (n, i)) for n in range(self.headers)]
            builder.append(i, TIME + i, b"key%05d" % i if self.key else None, bytes(self.size), headers)
        return bytes(builder.build())


CASES = (
    Case("100 B", 100, False, 0),
    Case("100 B, key", 100, True, 0),
    Case("100 B, key, 6 headers", 100, True, 6),
    Case("1 KiB", 1024, False, 0),
    Case("1 KiB, key, 6 headers", 1024, True, 6),
)


def python_to_pulsar(batch: bytes) -> bytes:
    parts = []
    for record in DefaultRecordBatch(batch):
        metadata = SingleMessageMetadata(payload_size=len(record.value), event_time=record.timestamp)
        for name, value in record.headers:
            metadata.properties.append(KeyValue(key=name, value=value.decode()))
        if record.key is not None:
            metadata.partition_key = record.key.decode()
            metadata.ordering_key = record.key
        head = metadata.SerializeToString()
        parts += [struct.pack(">I", len(head)), head, record.value]
    return b"".join(parts)


def python_to_kafka(payload: bytes, count: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, LIMIT)
    pos = 0
    for i in range(count):
        (size,) = struct.unpack_from(">I", payload, pos)
        metadata = SingleMessageMetadata.FromString(payload[pos + 4 : pos + 4 + size])
        pos += 4 + size
        value = payload[pos : pos + metadata.payload_size]
        pos += metadata.payload_size
        key = metadata.ordering_key if metadata.HasField("ordering_key") else None
        headers = [(pair.key, pair.value.encode()) for pair in metadata.properties]
        builder.append(i, metadata.event_time, key, value, headers)
    return bytes(builder.build())


class Sides:
    """One batch in both forms, and what is measured on it."""

    def __init__(self, case: Case) -> None:
        self.count = case.records
        self.kafka = case.batch()
        self.records = np.frombuffer(self.kafka, np.uint8)[HEAD_SIZE:]
        self.entry = self._entry()
        self.payload = bytes(self.entry.payload)
        self.array = np.frombuffer(self.payload, np.uint8)
        self.out = np.empty(4 * len(self.kafka) + 100_000, np.uint8)
        self.to_pulsar_facts = np.empty(to_pulsar.FACTS, np.int64)
        self.to_kafka_facts = np.empty(to_kafka.FACTS, np.int64)
        self.room = np.empty(160, np.int64)
        self._compare()

    def _entry(self) -> Entry:
        sent = self.whole_to_pulsar()
        frame = send_frame(
            sent.buffer,
            sent.start,
            sent.end,
            producer_name=np.frombuffer(b"bench", np.uint8),
            producer_id=1,
            sequence_id=1,
            num_messages=sent.num_messages,
            publish_time=sent.publish_time,
        )
        return read_entry(memoryview(bytes(frame[8 + struct.unpack_from(">I", frame, 4)[0] :])))

    def _compare(self) -> None:
        """Make sure that all sides do the same work."""
        assert self.payload == python_to_pulsar(self.kafka)
        back = self.whole_to_kafka()
        assert isinstance(back, KafkaBatch)
        assert bytes(back.data)[HEAD_SIZE:] == self.kafka[HEAD_SIZE:]
        assert python_to_kafka(self.payload, self.count)[HEAD_SIZE:] == self.kafka[HEAD_SIZE:]

    def kernel_to_pulsar(self) -> int:
        return to_pulsar.records_to_entry(
            self.records, 0, len(self.records), self.count, TIME, self.out, 0, self.to_pulsar_facts
        )

    def kernel_to_kafka(self) -> int:
        return to_kafka.entry_to_records(
            self.array, 0, len(self.array), self.count, TIME, self.to_kafka_facts, self.room, self.out, 0
        )

    def whole_to_pulsar(self):  # type: ignore[no-untyped-def]
        [batch] = read_batches(self.kafka)
        return batch_to_entry(batch, now=TIME, limit=LIMIT)

    def whole_to_kafka(self):  # type: ignore[no-untyped-def]
        return entry_to_batch(self.entry, base_offset=0, limit=LIMIT)

    def python_to_pulsar(self) -> bytes:
        return python_to_pulsar(self.kafka)

    def python_to_kafka(self) -> bytes:
        return python_to_kafka(self.payload, self.count)


def repeated(work: Callable[[], object], times: int) -> Callable[[], Callable[[], object]]:
    def run() -> None:
        for _ in range(times):
            work()

    return lambda: run


def main() -> None:
    report = Report.from_arguments(
        "Million records per second, Kafka batch <-> Pulsar entry, one core",
        ("batch", "direction", "kernel", "whole", "Python", "kernel / Python"),
    )
    rounds, times = (5, 20) if report.quick else (9, 100)
    for case in CASES:
        sides = Sides(case)
        for way in ("to_pulsar", "to_kafka"):
            kernel, whole, python = (
                getattr(sides, f"{name}_{way}") for name in ("kernel", "whole", "python")
            )
            taken = alternate(
                {
                    "kernel": repeated(kernel, times),
                    "whole": repeated(whole, times),
                    "python": repeated(python, 2),
                },
                rounds,
            )
            repeats = {"kernel": times, "whole": times, "python": 2}
            rate = {name: sides.count * repeats[name] / timing.median / 1e6 for name, timing in taken.items()}
            note(report, case, way, rate)
    report.finish()


def note(report: Report, case: Case, way: str, rate: dict[str, float]) -> None:
    ratio = rate["kernel"] / rate["python"]
    cells = [f"{rate[name]:.2f}" for name in ("kernel", "whole", "python")]
    report.row(case.name, way.replace("_", " "), *cells, f"{ratio:.0f}x")
    for name, value in rate.items():
        report.figure(f"{case.name}, {way}, {name} (M rec/s)", value)
    if case.headers:
        report.goal(f"{case.name}, {way}, kernel (M rec/s)", rate["kernel"], GOAL)


if __name__ == "__main__":
    main()
