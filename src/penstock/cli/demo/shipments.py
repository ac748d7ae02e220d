"""Shipments through Pulsar: CloudEvents sent with Pulsar's own client and read back, each counted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.errors import ClusterError
from penstock.events import CloudEvent, Json
from penstock.events.bindings.pulsar import PulsarBinding
from penstock.record import PulsarMessage

__all__ = ["Shipments", "carry"]

_PATIENCE: Final = 60.0
"""Seconds without one more event after which the broker counts as stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipments:
    """What went in and what came out."""

    topic: str
    sent: int
    read: int
    missing: int
    duplicates: int


def carry(service_url: str, topic: str, count: int, on_read: Callable[[int], None]) -> Shipments:
    """Send events and read them back."""
    import pulsar

    quiet = logging.getLogger("penstock.demo.pulsar")
    quiet.setLevel(logging.CRITICAL)
    client = pulsar.Client(service_url, logger=quiet)
    try:
        # The subscription comes first: it keeps what is sent.
        consumer = client.subscribe(topic, "demo", receiver_queue_size=5000)
        _send(client, topic, count)
        seen = Counter(_read(consumer, count, on_read))
        consumer.close()
    finally:
        client.close()
    repeated = seen.total() - len(seen)
    return Shipments(
        topic=topic, sent=count, read=seen.total(), missing=count - len(seen), duplicates=repeated
    )


def _send(client: object, topic: str, count: int) -> None:
    import pulsar

    assert isinstance(client, pulsar.Client)
    failed: list[str] = []

    def sent(result: pulsar.Result, _id: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(str(result))

    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=1000)
    for event in _events(count):
        message = PulsarBinding().encode(event, key=event.subject)
        producer.send_async(
            message.payload or b"", sent, properties=dict(message.properties), partition_key=message.key
        )
    producer.flush()
    if failed:
        raise ClusterError("Pulsar did not take every event", why=failed[0])


def _read(consumer: object, count: int, on_read: Callable[[int], None]) -> Iterator[str]:
    import pulsar

    assert isinstance(consumer, pulsar.Consumer)
    for _ in range(count):
        try:
            got = consumer.receive(int(_PATIENCE * 1000))
        except pulsar.Timeout as exc:
            raise ClusterError("Pulsar stopped giving events") from exc
        message = PulsarMessage(payload=got.data(), properties=tuple(got.properties().items()))
        consumer.acknowledge(got)
        on_read(1)
        yield PulsarBinding().decode(message).id


def _events(count: int) -> Iterator[CloudEvent]:
    for number in range(count):
        yield CloudEvent(
            {
                "id": f"s-{number}",
                "source": "/shop/demo",
                "type": "com.shop.shipment.sent",
                "subject": f"o-{number}",
                "datacontenttype": "application/json",
            },
            Json({"order": f"o-{number}", "parcel": f"p-{number}", "carrier": "pigeon"}),
        )
