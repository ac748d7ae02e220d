"""Records through the reference, as rows that are easy to compare; and batches of Arrow of them.

`check_reading` holds the readers and checks of whole batches, which DataFrames use, against those of records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.encode import event_at
from penstock.pipeline.evaluators.reference.reading import Decoded
from penstock.pipeline.evaluators.reference.router import ReferenceRouter
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.plain import PlainReader
from penstock.pipeline.pulsar import PulsarReader
from penstock.pipeline.stage import Stage
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.record_check import RecordCheck, Unresolved
from penstock.record import KafkaRecord

Refusals = Mapping[tuple[int, int, str], tuple[str, str]]
Row = dict[str, Any]


def placed(records: Sequence[KafkaRecord]) -> list[KafkaRecord]:
    """Return records with an origin, as a broker gives them, if they have none."""
    return [
        record
        if record.offset is not None
        else replace(record, topic="in", partition=0, offset=offset, timestamp=1000)
        for offset, record in enumerate(records)
    ]


def arrow_of(records: Sequence[KafkaRecord]) -> pa.RecordBatch:
    headers = [[{"key": name, "value": value} for name, value in r.headers] or None for r in records]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "topic": pa.array([r.topic for r in records], pa.utf8()),
            "partition": pa.array([r.partition for r in records], pa.int32()),
            "offset": pa.array([r.offset for r in records], pa.int64()),
            "timestamp": pa.array([r.timestamp for r in records], pa.int64()),
        }
    )


def rows_of(
    stage: Stage, records: Sequence[KafkaRecord], *, now: int = 0, refused: Refusals | None = None
) -> tuple[list[Row], dict[str, int]]:
    """Route records; return what was written, in order, and the counters."""
    routing = ReferenceRouter(stage).route(placed(records), now=now, refused=refused)
    rows = [
        {
            "topic": target.topic,
            "sink": target.sink,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
        }
        for written in routing.written
        for target, record in written
    ]
    return rows, dict(routing.counts)


def check_reading(
    reader: KafkaReader | PulsarReader | PlainReader,
    records: Sequence[KafkaRecord],
    checks: Sequence[ContractCheck] = (),
) -> int:
    """Compare both forms of a reader and of checks on every record; return how many are events."""
    given = placed(records)
    batch, read = arrow_of(given), reader.by_record()
    columns = reader(batch)
    for check in checks:
        columns = check(columns, batch)
    good = 0
    for row, record in enumerate(given):
        found: Any = read(record)
        for check in checks:
            if isinstance(found, Decoded):
                found = RecordCheck(check).check(found, record)
            if isinstance(found, Unresolved):
                (found,) = RecordCheck(check).settle([found])
        code, reason = columns.code[row].as_py(), columns.reason[row].as_py()
        if not isinstance(found, Decoded):
            assert (record, found.code, found.reason) == (record, code, reason)
            continue
        good += 1
        assert (record, code) == (record, None), reason
        event = event_at(columns, row)
        foreign = tuple((pair["key"], pair["value"]) for pair in columns.foreign[row].as_py())
        assert (event, dict(event.types)) == (found.event, dict(found.event.types))
        assert (foreign, columns.structured[row].as_py()) == (found.foreign, found.structured)
    return good
