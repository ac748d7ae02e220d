"""The shipments that the routes wrote to Pulsar, read back by Pulsar's own client."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from penstock.cli.demo.orders import number_of_id
from penstock.errors import EventError
from penstock.events.bindings.pulsar import PulsarBinding
from penstock.record import PulsarMessage

__all__ = ["Found", "read_shipments"]

Found = tuple[int | None, int | None]
"""The number of an order, None if it is none, and when the message was written, in milliseconds."""
_PATIENCE: Final = 30_000
"""Milliseconds without one more message after which those that are missing are missing."""
_AFTERWARDS: Final = 1_000
"""How long to look for messages that should not be there."""


def read_shipments(service_url: str, topic: str, expected: int) -> Iterator[Found]:
    """Read the whole topic: at least as many messages as expected, if they come."""
    import pulsar

    quiet = logging.getLogger("penstock.demo.pulsar")
    quiet.setLevel(logging.CRITICAL)
    client = pulsar.Client(service_url, logger=quiet)
    try:
        first = pulsar.InitialPosition.Earliest
        consumer = client.subscribe(topic, "demo", receiver_queue_size=5000, initial_position=first)
        count = 0
        while (got := _next(consumer, _PATIENCE if count < expected else _AFTERWARDS)) is not None:
            count += 1
            yield _number(got), got.event_timestamp()
            consumer.acknowledge(got)
        consumer.close()
    finally:
        client.close()


def _next(consumer: Any, milliseconds: int) -> Any:
    import pulsar

    try:
        return consumer.receive(milliseconds)
    except pulsar.Timeout:
        return None


def _number(got: Any) -> int | None:
    """A shipment has an id of its own; the order it came from is its causationid."""
    message = PulsarMessage(payload=got.data(), properties=tuple(got.properties().items()))
    try:
        return number_of_id(PulsarBinding().decode(message).get("causationid"))
    except EventError:
        return None
