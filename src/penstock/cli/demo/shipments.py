"""The shipments that the routes wrote to Pulsar, read back by Pulsar's own client."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from penstock.cli.demo.orders import number_of_id

__all__ = ["Found", "read_shipments"]

Found = tuple[int | None, int | None]
"""The number of an order, None if it is none, and when the record was written, in milliseconds."""
_PATIENCE: Final = 30_000
"""Milliseconds without one more message after which those that are missing are missing."""
_QUEUE: Final = 10_000


def read_shipments(service_url: str, topic: str) -> Iterator[Found]:
    """Read the whole topic, up to the message that is its last one now."""
    import pulsar

    quiet = logging.getLogger("penstock.demo.pulsar")
    quiet.setLevel(logging.CRITICAL)
    client = pulsar.Client(service_url, logger=quiet)
    try:
        for partition in client.get_topic_partitions(topic):
            reader = client.create_reader(partition, pulsar.MessageId.earliest, receiver_queue_size=_QUEUE)
            while reader.has_message_available():
                got = _next(reader)
                if got is None:
                    break
                yield _number(got), got.publish_timestamp()
            reader.close()
    finally:
        client.close()


def _next(reader: Any) -> Any:
    import pulsar

    try:
        return reader.read_next(_PATIENCE)
    except pulsar.Timeout:
        return None


def _number(got: Any) -> int | None:
    """A shipment has an id of its own; the order it came from is its causationid."""
    return number_of_id(got.properties().get("ce_causationid"))
