"""Whether every order is where it belongs, once: topics read back by plain clients, counted by id.

What the job says of itself is not asked. Kafka's topics are read by librdkafka, Pulsar's by Pulsar's own
client; times are those at which a broker appended a record, and at which an entry was sent to Pulsar.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import orjson

from penstock.brokers.kafka_records import scan_messages
from penstock.cli.demo.orders import Fate, fate_of, number_of, number_of_id
from penstock.cli.demo.shipments import Found
from penstock.errors import EventError
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import restore
from penstock.record import KafkaRecord

__all__ = ["Account", "Channel", "account"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """What was found in one topic."""

    name: str
    fate: Fate | None
    """None for the topic that the orders came from."""
    expected: int
    found: int
    missing: int
    unexpected: int
    """Orders that belong elsewhere, and records that are no orders."""
    duplicates: int
    rate: float | None = None
    """Records a second, from the first order to the last record here."""
    p50: float | None = None
    """Milliseconds from the order's record to this one."""
    p99: float | None = None

    @property
    def right(self) -> bool:
        """Whether exactly what belongs here is here, once."""
        return not self.missing and not self.unexpected and not self.duplicates


@dataclass(frozen=True, slots=True)
class Account:
    """All channels: orders placed, large ones, dead ones, and what was shipped."""

    channels: tuple[Channel, ...]

    @property
    def right(self) -> bool:
        """Whether every order is accounted for."""
        return all(channel.right for channel in self.channels)


_Number = Callable[[Any], int | None]


def account(
    options: Mapping[str, str], count: int, topics: Mapping[str, str], shipped: Iterable[Found]
) -> Account:
    """Read the topics of the shop back; `topics` are those of the channels placed, large, dead and small.

    The small orders are on Pulsar; `shipped` is what was found there.
    """
    numbers: dict[Fate, set[int]] = {fate: set() for fate in Fate}
    for number in range(count):
        numbers[fate_of(number)].add(number)
    placed = list(_read(options, topics["placed"], _of_placed))
    began = {number: at for number, at in placed if number is not None and at is not None}
    found = (
        (topics["large"], Fate.LARGE, _read(options, topics["large"], _of_large)),
        (topics["dead"], Fate.DEAD, _read(options, topics["dead"], _of_dead)),
        (topics["small"], Fate.SMALL, shipped),
    )
    return Account(
        (
            channel(topics["placed"], None, set(range(count)), placed, began),
            *(channel(name, fate, numbers[fate], each, began) for name, fate, each in found),
        )
    )


def channel(
    name: str, fate: Fate | None, wanted: set[int], found: Iterable[Found], began: Mapping[int, int]
) -> Channel:
    """Compare what was found in a topic with what is wanted there; `began` is when each order was placed."""
    seen: Counter[int | None] = Counter()
    waits: list[int] = []
    last = 0
    for number, at in found:
        seen[number] += 1
        if number is None or at is None:
            continue
        last = max(last, at)
        if fate is not None and number in began and seen[number] == 1:
            waits.append(at - began[number])
    cuts = quantiles(waits, n=100) if len(waits) > 1 else None
    seconds = (last - min(began.values(), default=last)) / 1000
    return Channel(
        name=name,
        fate=fate,
        expected=len(wanted),
        found=seen.total(),
        missing=len(wanted - seen.keys()),
        unexpected=sum(count for number, count in seen.items() if number not in wanted),
        duplicates=sum(count - 1 for number, count in seen.items() if number in wanted),
        rate=seen.total() / seconds if seconds > 0 else None,
        p50=cuts[49] if cuts else None,
        p99=cuts[98] if cuts else None,
    )


# What a record says of its order


def _read(options: Mapping[str, str], topic: str, number: _Number) -> Iterable[Found]:
    def take(message: Any) -> Found:
        kind, at = message.timestamp()
        return number(message), at if kind else None

    return scan_messages(options, topic, take)


def _of_placed(message: Any) -> int | None:
    return number_of(message.headers() or ())


def _of_large(message: Any) -> int | None:
    """A large order has an id of its own; the one it came from is its causationid."""
    try:
        event = orjson.loads(message.value() or b"")
        return number_of_id(event["causationid"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _of_dead(message: Any) -> int | None:
    record = KafkaRecord(value=message.value(), headers=tuple(message.headers() or ()))
    try:
        return number_of(restore(KafkaBinding().decode(record)).headers)
    except EventError:
        return None
