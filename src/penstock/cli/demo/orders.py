"""The orders of the demo: records with a fate that is known before they are sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock.brokers.kafka_contact import START, Contact
from penstock.errors import Unreachable
from penstock.record import Header, Headers, KafkaRecord

__all__ = ["Fate", "Order", "fate_of", "number_of", "number_of_id", "orders", "place"]

_EVERY: Final = 80
"""One order of so many is malformed."""
_LARGE: Final = 100
_NUMBER: Final = "demo-number"
_RATE: Final = 20_000
"""Orders a second: they come while the routes run, not all before."""
_CHUNK: Final = 1000
_PATIENCE: Final = 30.0
_PRODUCER: Final[dict[str, Any]] = {
    "enable.idempotence": "true",
    "linger.ms": "20",
    "queue.buffering.max.messages": "1000000",
    "delivery.report.only.error": True,
}
"""Of an acknowledged order nothing is told: a call for each would cost as much as sending it."""


class Fate(StrEnum):
    """What must become of an order."""

    LARGE = "large"
    DEAD = "dead"
    SMALL = "small"


@dataclass(frozen=True, slots=True)
class Order:
    """One record of the shop."""

    number: int
    fate: Fate
    record: KafkaRecord


def fate_of(number: int) -> Fate:
    """Return what must become of the order of a number."""
    if number % _EVERY == _EVERY - 1:
        return Fate.DEAD
    return Fate.LARGE if _total(number) >= _LARGE else Fate.SMALL


def orders(count: int, topic: str) -> Iterator[Order]:
    """Make orders; some are malformed, each in another way."""
    for number in range(count):
        fate, total = fate_of(number), _total(number)
        if fate is Fate.DEAD:
            spoil = _WAYS[number // _EVERY % len(_WAYS)]
            yield Order(number, fate, spoil(_good(number, total + _LARGE, topic)))
        else:
            yield Order(number, fate, _good(number, total, topic))


def _total(number: int) -> int:
    return number * 7 % 199


def number_of(headers: Headers) -> int | None:
    """Give the number of an order; it travels in a header of its own, because not every order has an id."""
    found = dict(headers).get(_NUMBER)
    return int(found) if found is not None and found.isdigit() else None


def number_of_id(id: str | None) -> int | None:
    """Give the number of an order by the id of its event; None if it is no such id.

    >>> number_of_id("o-17"), number_of_id("x"), number_of_id(None)
    (17, None, None)
    """
    digits = (id or "").removeprefix("o-")
    return int(digits) if digits.isdecimal() else None


def place(options: dict[str, str], topic: str, count: int, is_over: Callable[[], bool]) -> None:
    """Send orders at a steady rate, and wait until the broker has all of them, or until it is over.

    Raises ClusterError if one is refused, Unreachable if the broker does not answer for half a minute.
    """
    refused: list[Any] = []

    def note(error: Any, _message: Any) -> None:
        refused.append(error)

    contact = Contact("Producer", {**options, **_PRODUCER}, name="Kafka")
    contact.require()
    producer, began = contact.client, time.monotonic()
    for order in orders(count, topic):
        record = order.record
        producer.produce(topic, record.value, record.key, headers=list(record.headers), on_delivery=note)
        if order.number % _CHUNK == _CHUNK - 1:
            # Not by poll: it returns as soon as librdkafka has anything to say.
            time.sleep(max(0.0, began + order.number / _RATE - time.monotonic()))
            producer.poll(0)
            if refused or is_over():
                break
    left = producer.flush(_PATIENCE)
    if refused:
        raise contact.error("an order", refused[0])
    if left:
        why = f"{left} orders were not acknowledged in {_PATIENCE:g} s"
        raise Unreachable("cannot place orders", where=contact.address, why=why, next=START)


def _good(number: int, total: int, topic: str) -> KafkaRecord:
    customer = number % 97
    lines = b'[{"sku":"tea","count":%d}]' % (number % 5 + 1)
    value = b'{"order":"o-%d","customer":"c-%d","total":%d,"lines":%s}' % (number, customer, total, lines)
    headers: Headers = (
        ("ce_specversion", b"1.0"),
        ("ce_id", b"o-%d" % number),
        ("ce_source", b"/shop/demo"),
        ("ce_type", b"com.shop.order.placed"),
        ("content-type", b"application/json"),
        (_NUMBER, b"%d" % number),
    )
    return KafkaRecord(value=value, key=b"c-%d" % customer, headers=headers, topic=topic)


def _with(record: KafkaRecord, name: str, value: bytes | None, body: bytes | None = None) -> KafkaRecord:
    """Give the record with another header, or without it, and with another body."""
    kept: list[Header] = [header for header in record.headers if header[0] != name]
    if value is not None:
        kept.append((name, value))
    return KafkaRecord(value=body or record.value, key=record.key, headers=tuple(kept), topic=record.topic)


_STRUCTURED: Final = b"application/cloudevents+json"
_WAYS: Final[tuple[Callable[[KafkaRecord], KafkaRecord], ...]] = (
    lambda record: _with(record, "ce_id", None),
    lambda record: _with(record, "ce_source", b""),
    lambda record: _with(record, "ce_specversion", b"9.9"),
    lambda record: _with(record, "ce_time", b"yesterday"),
    lambda record: _with(record, "ce_type", b"\xff\xfe"),
    lambda record: _with(record, "ce_type", b"com.shop.order.unheard-of"),
    lambda record: _with(record, "content-type", _STRUCTURED, b'{"specversion":"1.0",'),
    # A well-formed event that the function of the route refuses.
    lambda record: _with(
        record, "", None, (record.value or b"").partition(b'"lines"')[0] + b'"lines":"none"}'
    ),
)
"""How an order can be malformed."""
