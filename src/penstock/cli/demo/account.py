"""Whether every order is where it belongs: topics read back by a plain client, counted by id.

What the job says of itself is not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from penstock.brokers.kafka_records import scan
from penstock.cli.demo.orders import Fate, Order, number_of, number_of_id
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
    p50: float | None = None
    """Milliseconds from the order's record to this one."""
    p99: float | None = None

    @property
    def right(self) -> bool:
        """Whether exactly what belongs here is here; at least once, so a duplicate is told and allowed."""
        return not self.missing and not self.unexpected


@dataclass(frozen=True, slots=True)
class Account:
    """All channels: orders placed, large ones, dead ones, and what was shipped."""

    channels: tuple[Channel, ...]

    @property
    def right(self) -> bool:
        """Whether every order is accounted for."""
        return all(channel.right for channel in self.channels)


_Number = Callable[[KafkaRecord], int | None]


def account(
    options: Mapping[str, str], sent: Sequence[Order], topics: Mapping[str, str], shipped: Iterable[Found]
) -> Account:
    """Read the topics of the shop back; `topics` are those of the channels placed, large, dead and small.

    The small orders are on Pulsar; `shipped` is what was found there.
    """
    began: dict[int, int] = {}

    def placed(record: KafkaRecord) -> int | None:
        number = number_of(record.headers)
        if number is not None and record.timestamp is not None:
            began[number] = record.timestamp
        return number

    rows: tuple[tuple[str, Fate | None, _Number], ...] = (
        ("placed", None, placed),
        ("large", Fate.LARGE, _of_large),
        ("dead", Fate.DEAD, _of_dead),
    )
    channels = []
    for name, fate, number in rows:
        found = _numbered(scan(options, topics[name]), number)
        channels.append(_channel(topics[name], fate, _wanted(sent, fate), found, began))
    small = _channel(topics["small"], Fate.SMALL, _wanted(sent, Fate.SMALL), shipped, began)
    return Account((*channels, small))


def _wanted(sent: Sequence[Order], fate: Fate | None) -> set[int]:
    return {order.number for order in sent if fate in (None, order.fate)}


def _numbered(records: Iterator[KafkaRecord], number: _Number) -> Iterator[Found]:
    for record in records:
        yield number(record), record.timestamp


def _channel(
    name: str,
    fate: Fate | None,
    wanted: set[int],
    found: Iterable[Found],
    began: Mapping[int, int],
) -> Channel:
    seen: Counter[int | None] = Counter()
    waits = []
    for number, at in found:
        seen[number] += 1
        start = began.get(number) if number is not None else None
        if fate is not None and start is not None and at is not None and seen[number] == 1:
            waits.append(at - start)
    cuts = quantiles(waits, n=100) if len(waits) > 1 else None
    return Channel(
        name=name,
        fate=fate,
        expected=len(wanted),
        found=seen.total(),
        missing=len(wanted - seen.keys()),
        unexpected=sum(count for number, count in seen.items() if number not in wanted),
        duplicates=sum(count - 1 for number, count in seen.items() if number in wanted),
        p50=cuts[49] if cuts else None,
        p99=cuts[98] if cuts else None,
    )


def _of_large(record: KafkaRecord) -> int | None:
    """A large order has an id of its own; the one it came from is its causationid."""
    try:
        return number_of_id(KafkaBinding().decode(record).get("causationid"))
    except EventError:
        return None


def _of_dead(record: KafkaRecord) -> int | None:
    try:
        return number_of(restore(KafkaBinding().decode(record)).headers)
    except EventError:
        return None
