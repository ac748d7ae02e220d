"""A compacted topic behind a route, on real Kafka: a tombstone deletes, an event without data does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.events import CloudEvent, Mode
from penstock.events.bindings.kafka import KafkaBinding
from penstock.record import KafkaRecord

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]
Make = Callable[..., Any]
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "100",
}


def event(id: str, data: bytes | None = None, mode: Mode = Mode.STRUCTURED, key: bytes = b"k") -> KafkaRecord:
    attributes = {"id": id, "source": "/s", "type": "t", "datacontenttype": "application/json"}
    made = CloudEvent(attributes) if data is None else CloudEvent(attributes, data)
    return KafkaBinding(mode=mode).encode(made, key=key)


def test_an_event_without_data_survives_compaction(project: Make) -> None:
    shop = project().create(settings={"out": COMPACTED}).write()
    shop.produce([event("placed", b"{}"), event("touched")])
    shop.produce([event("other", b"{}", key=b"gone"), event("deleted", mode=Mode.BINARY, key=b"gone")])
    totals = shop.run(None, engine="loop")
    assert (totals.counts["n_out"], totals.counts["n_dead"]) == (4, 0)
    kept = compacted(shop)
    assert [KafkaBinding().decode(record).id for record in kept[b"k"]] == ["touched"]
    assert [record.value is None for record in kept[b"k"]] == [False]
    # What came as a null value is a tombstone, as it was: at most that itself is left.
    assert [record.value for record in kept.get(b"gone", [])] in ([], [None])


def compacted(shop: Any) -> dict[bytes, list[KafkaRecord]]:
    """Wait until the broker has compacted what the route wrote; give what is left, by key."""
    producer = Producer({**shop.server("out").client_options(), "log_level": "0"})
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        # A segment is compacted when a newer one has been begun, for which a record has to come.
        producer.produce(shop.topic("out"), b"x", b"filler")
        assert producer.flush(30) == 0
        found: dict[bytes, list[KafkaRecord]] = {}
        for record in shop.read("out"):
            found.setdefault(record.key, []).append(record)
        if len(found.get(b"k", [])) < 2:
            return found
        time.sleep(0.5)
    raise AssertionError("the broker did not compact the topic")
