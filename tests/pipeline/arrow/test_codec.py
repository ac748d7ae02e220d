"""The columns against penstock.events: the same verdict, attributes, data, types and headers on every row."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CannotEncode, EventError
from penstock.events import CloudEvent, Json, Level, Mode
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.draft import failed
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.decode import CODES, HEADERS, decode_batch
from penstock.pipeline.arrow.encode import encode_batch, event_at
from penstock.record import KafkaRecord

BINDING = KafkaBinding()
Batches = st.SearchStrategy[list[KafkaRecord]]


def columns_of(records: list[KafkaRecord]) -> tuple[pa.Array, pa.Array]:
    values = pa.array([record.value for record in records], pa.binary())
    headers = [[{"key": k, "value": v} for k, v in record.headers] or None for record in records]
    return values, pa.array(headers, HEADERS)


def same_data(left: CloudEvent, right: CloudEvent) -> bool:
    if isinstance(left.data, Json) and isinstance(right.data, Json):
        return left.data.raw == right.data.raw
    return left.data == right.data


def check_row(record: KafkaRecord, columns: EventColumns, row: int) -> None:
    try:
        reading = BINDING.read(record)
    except EventError as error:
        assert columns.code[row].as_py() == CODES[failed(error, Level.FORENSIC).verdict]
        assert columns.reason[row].as_py() == str(error)
        return
    assert columns.code[row].as_py() is None, columns.reason[row].as_py()
    expected, got = reading.event, event_at(columns, row)
    assert expected is not None
    assert dict(got.attributes) == dict(expected.attributes)
    assert {n: t for n, t in got.types.items() if t.value in ("Integer", "Boolean")} == {
        n: t for n, t in expected.types.items() if t.value in ("Integer", "Boolean")
    }
    assert same_data(got, expected)
    assert columns.structured[row].as_py() == (reading.mode is Mode.STRUCTURED)
    foreign = tuple((pair["key"], pair["value"]) for pair in columns.foreign[row].as_py())
    assert foreign == BINDING.foreign(record)


def test_decoding_gives_the_verdict_of_the_reference_on_every_row(batches: Batches) -> None:
    @given(batches)
    def law(records: list[KafkaRecord]) -> None:
        columns = decode_batch(*columns_of(records))
        assert columns.rows == len(records)
        for row, record in enumerate(records):
            check_row(record, columns, row)

    law()


def test_another_spelling_is_a_foreign_header_on_both_ways() -> None:
    plain = (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/s"), ("ce_type", b"t"))
    odd = (("CE_ID", b"2"), ("Content-Type", b"application/cloudevents+json"))
    fast = KafkaRecord(value=b"x", headers=(*plain, *odd))
    exact = KafkaRecord(value=b"x", headers=(*plain, ("ce_time", b"1990-12-31T23:59:60Z"), *odd))
    columns = decode_batch(*columns_of([fast, exact]))
    assert columns.code.to_pylist() == [None, None]
    for row, record in enumerate((fast, exact)):
        check_row(record, columns, row)


def test_decoding_respects_slices(batches: Batches) -> None:
    @given(batches, st.integers(0, 5))
    def law(records: list[KafkaRecord], skipped: int) -> None:
        values, headers = columns_of(records)
        columns = decode_batch(values[skipped:], headers[skipped:])
        for row, record in enumerate(records[skipped:]):
            check_row(record, columns, row)

    law()


@pytest.mark.parametrize("mode", [Mode.BINARY, Mode.STRUCTURED])
def test_encoding_gives_what_the_reference_writes(batches: Batches, mode: Mode) -> None:
    binding = KafkaBinding(mode=mode)

    @given(batches)
    def law(records: list[KafkaRecord]) -> None:
        decoded = decode_batch(*columns_of(records))
        good = [row for row in range(len(records)) if decoded.code[row].as_py() is None]
        events = decoded.take(pa.array(good, pa.int64()))
        written = encode_batch(events, binding)
        for row, origin in enumerate(good):
            foreign = BINDING.foreign(records[origin])
            try:
                expected = binding.encode(event_at(events, row), headers=foreign)
            except CannotEncode as exc:
                assert written.reason[row].as_py() == str(exc)
                continue
            headers = tuple((pair["key"], pair["value"]) for pair in written.headers[row].as_py())
            assert written.code[row].as_py() is None
            assert written.value[row].as_py() == expected.value
            assert headers == expected.headers

    law()


@pytest.mark.parametrize("mode", [Mode.BINARY, Mode.STRUCTURED])
def test_what_was_written_reads_back(batches: Batches, mode: Mode) -> None:
    @given(batches)
    def law(records: list[KafkaRecord]) -> None:
        decoded = decode_batch(*columns_of(records))
        good = [row for row in range(len(records)) if decoded.code[row].as_py() is None]
        events = decoded.take(pa.array(good, pa.int64()))
        written = encode_batch(events, KafkaBinding(mode=mode))
        again = decode_batch(written.value, written.headers)
        for row in range(events.rows):
            if written.code[row].as_py() is None:
                assert again.code[row].as_py() is None, again.reason[row].as_py()
                assert again.attributes["id"][row].as_py() == events.attributes["id"][row].as_py()

    law()


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many records the exact reader was asked for."""
    asked = []
    read = KafkaBinding.read

    def counted(self: KafkaBinding, record: KafkaRecord, level: Level = Level.STRICT) -> object:
        asked.append(record)
        return read(self, record, level)

    monkeypatch.setattr(KafkaBinding, "read", counted)
    return lambda: len(asked)


def test_plain_records_never_take_the_slow_way(counting: Callable[[], int]) -> None:
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_id", b"1"),
        ("ce_source", b"/shop"),
        ("ce_type", b"t"),
        ("ce_time", b"2026-11-15T10:00:00Z"),
        ("content-type", b"application/json"),
    )
    records = [KafkaRecord(value=b"{}", headers=headers), KafkaRecord(value=None, headers=headers[:4])] * 50
    columns = decode_batch(*columns_of(records))
    assert columns.code.null_count == len(records)
    assert counting() == 0
