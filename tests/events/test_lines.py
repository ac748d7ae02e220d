"""Records as JSON lines: every byte survives, kcat's envelopes are read, the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.events import HttpMessage
from penstock.events.lines import read_http, read_kafka, read_line, read_pulsar, write_record
from penstock.record import KafkaRecord, PulsarMessage

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
blobs = st.none() | st.binary(max_size=8)
headers = st.lists(st.tuples(texts, blobs), max_size=3).map(tuple)
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
kafka = st.builds(
    KafkaRecord,
    value=blobs,
    key=blobs,
    headers=headers,
    topic=st.none() | texts,
    offset=st.none() | st.integers(0, 9),
)
pulsar = st.builds(
    PulsarMessage, payload=blobs, key=st.none() | texts, ordering_key=blobs, properties=pairs
) | st.builds(PulsarMessage, key=st.just("/w=="), key_is_base64=st.just(True), event_time=st.integers(0, 9))


@given(kafka)
def test_kafka_round_trip(record: KafkaRecord) -> None:
    assert read_kafka(read_line(write_record(record).encode())) == record


@given(pulsar)
def test_pulsar_round_trip(message: PulsarMessage) -> None:
    assert read_pulsar(read_line(write_record(message).encode())) == message


@given(st.builds(HttpMessage, headers=pairs, body=blobs))
def test_http_round_trip(message: HttpMessage) -> None:
    assert read_http(read_line(write_record(message).encode())) == message


def test_an_envelope_of_kcat() -> None:
    line = (
        b'{"topic":"t","partition":1,"offset":2,"tstype":"create","ts":3,"broker":1,'
        b'"headers":["ce_id","1","app",null],"key":"k","payload":"v"}'
    )
    assert read_kafka(read_line(line)) == KafkaRecord(
        topic="t",
        partition=1,
        offset=2,
        timestamp=3,
        headers=(("ce_id", b"1"), ("app", None)),
        key=b"k",
        value=b"v",
    )


@pytest.mark.parametrize(
    "line",
    [
        {"headers": [["a"]]},
        {"headers": ["a", "b", "c"]},
        {"headers": [[1, "b"]]},
        {"headers": "a"},
        {"value": 1},
        {"value": {"base64": "x"}},
        {"value": {"a": 1}},
        {"offset": "1"},
        {"offset": True},
        {"topic": 1},
    ],
)
def test_a_line_that_is_no_record(line: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read_kafka(line)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"a":1,"a":2}', b"\xff"])
def test_a_line_that_is_no_json_object(text: bytes) -> None:
    with pytest.raises(UsageError):
        read_line(text)


@pytest.mark.parametrize(
    "line",
    [
        {"partition": -5},
        {"partition": 2**31},
        {"offset": -1},
        {"offset": 10**30},
        {"timestamp": -2},
        {"timestamp": 2**63},
        {"ts": 10**30},
        {"key": {"base64": "%%%"}},
        {"key": {"foo": 1}},
        {"value": {"base64": "AA"}},
        {"headers": [["a", {"base64": "%%%"}]]},
        {"headers": 0},
        {"headers": ""},
        {"headers": ["a"]},
    ],
)
def test_a_record_of_kafka_that_cannot_be(line: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read_kafka({"value": "x", **line})


@pytest.mark.parametrize(
    "line",
    [
        {"key": {"foo": 1}},
        {"key": {"base64": "%%%"}},
        {"key": {"base64": None}},
        {"key": {"base64": "AA==", "more": 1}},
        {"ordering_key": {"base64": "%%%"}},
        {"payload": {"base64": "A"}},
        {"event_time": -1},
        {"event_time": 2**64},
        {"properties": False},
    ],
)
def test_a_message_of_pulsar_that_cannot_be(line: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read_pulsar({"payload": "x", **line})


def test_the_ends_of_the_ranges_are_taken() -> None:
    record = read_kafka({"partition": 2**31 - 1, "offset": 2**63 - 1, "timestamp": -1})
    assert (record.partition, record.offset, record.timestamp) == (2**31 - 1, 2**63 - 1, -1)
    assert read_kafka({"partition": 0, "offset": 0, "ts": 0}).offset == 0
