"""The orders of the demo: records with a fate that is known before they are sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.brokers.kafka_records import publish
from penstock.record import Header, Headers, KafkaRecord

__all__ = ["Fate", "Order", "number_of", "number_of_id", "orders", "send"]

_EVERY: Final = 80
"""One order of so many is malformed."""
_LARGE: Final = 100
_NUMBER: Final = "demo-number"
_CHUNK: Final = 500
_PAUSE: Final = 0.1
"""Seconds between chunks: orders come while the job runs, not all before."""


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


def orders(count: int, topic: str) -> Iterator[Order]:
    """Make orders; some are malformed, each in another way."""
    for number in range(count):
        total = number * 7 % 199
        if number % _EVERY == _EVERY - 1:
            spoil = _WAYS[number // _EVERY % len(_WAYS)]
            yield Order(number, Fate.DEAD, spoil(_good(number, total + _LARGE, topic)))
        else:
            fate = Fate.LARGE if total >= _LARGE else Fate.SMALL
            yield Order(number, fate, _good(number, total, topic))


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


def send(options: dict[str, str], made: Sequence[Order], on_sent: Callable[[int], None]) -> None:
    """Send orders, a chunk at a time."""
    for start in range(0, len(made), _CHUNK):
        chunk = made[start : start + _CHUNK]
        publish(options, (order.record for order in chunk))
        on_sent(len(chunk))
        time.sleep(_PAUSE)


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
