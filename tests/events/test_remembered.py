"""What is remembered of texts from outside is bounded by their length, too."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable

import pytest

from penstock.events.bindings.kafka import KafkaBinding
from penstock.record import KafkaRecord

BASE = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
LONG, COUNT = 100_000, 60


def media_type(number: int) -> str:
    return f"application/json;v={number}{'a' * LONG}"


def binary(number: int) -> KafkaRecord:
    headers = tuple((f"ce_{name}", text.encode()) for name, text in BASE.items())
    return KafkaRecord(value=b"{}", headers=(*headers, ("content-type", media_type(number).encode())))


def structured(number: int) -> KafkaRecord:
    body = json.dumps({**BASE, "datacontenttype": media_type(number), "data": {}}, separators=(",", ":"))
    return KafkaRecord(value=body.encode(), headers=(("content-type", b"application/cloudevents+json"),))


def structured_by_parameter(number: int) -> KafkaRecord:
    content_type = f"application/cloudevents+json;v={number}{'a' * LONG}".encode()
    return KafkaRecord(value=json.dumps(BASE).encode(), headers=(("content-type", content_type),))


def long_names(number: int) -> KafkaRecord:
    headers = tuple((f"ce_{name}", text.encode()) for name, text in BASE.items())
    return KafkaRecord(value=b"x", headers=(*headers, (f"ce_n{number}{'a' * LONG}", b"v")))


def long_members(number: int) -> KafkaRecord:
    body = json.dumps({**BASE, f"n{number}{'a' * LONG}": "v", "data": {}}, separators=(",", ":"))
    return KafkaRecord(value=body.encode(), headers=(("content-type", b"application/cloudevents+json"),))


@pytest.mark.parametrize("record", [binary, structured, structured_by_parameter, long_names, long_members])
def test_long_texts_do_not_stay(record: Callable[[int], KafkaRecord]) -> None:
    binding = KafkaBinding()
    assert binding.decode(record(0)).id == "1"
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, COUNT):
            binding.decode(record(number))
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10 * LONG
