"""`penstock demo`: real servers, real events, every one counted; what `make run` shows."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.fetching import fetch
from penstock.cli.settings import configuration, current
from penstock.errors import ClusterError

if TYPE_CHECKING:
    from penstock.embedded.kafka import Kafka
    from penstock.embedded.pulsar import Pulsar
    from penstock.events import CloudEvent

_TOPIC = "orders"
_PATIENCE = 60.0
"""Seconds without one more event after which a broker counts as stuck."""

_STEP = 250
"""A bar that moves for each event would cost more than the event."""

Advance = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What went into one broker and what came out of it."""

    broker: str
    address: str
    sent: int
    read: int
    missing: int
    duplicates: int
    sent_per_s: int
    read_per_s: int

    @property
    def accounted(self) -> bool:
        """Whether each event came back exactly once."""
        return not self.missing and not self.duplicates


def command(
    events: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="How many events each broker carries.")
    ] = 10_000,
) -> None:
    """Start Kafka and Pulsar, send CloudEvents through each, read every one back, print a table."""
    from penstock.embedded.stack import Stack

    configuration()
    fetch(["kafka", "pulsar"])
    started = time.monotonic()
    stack = Stack(["kafka", "pulsar"])
    with output.progress("starting Kafka and Pulsar"):
        stack.start()
    try:
        results = [_through_kafka(stack.kafka, events), _through_pulsar(stack.pulsar, events)]
    finally:
        stack.close()
    _show(results)
    output.talk(f"{time.monotonic() - started:.1f} s in all; the servers are stopped")
    if not all(result.accounted for result in results):
        raise typer.Exit(1)


def _show(results: list[Result]) -> None:
    columns = ("broker", "address", "sent", "read", "missing", "duplicates", "sent/s", "read/s")
    rows = [
        (r.broker, r.address, r.sent, r.read, r.missing, r.duplicates, r.sent_per_s, r.read_per_s)
        for r in results
    ]
    output.rows(columns, rows, current().output)
    good = all(result.accounted for result in results)
    output.talk("every event is accounted for" if good else "NOT every event is accounted for")


def _orders(count: int) -> Iterator[CloudEvent]:
    from penstock.events import CloudEvent, Json

    for number in range(count):
        yield CloudEvent(
            {
                "id": f"order-{number}",
                "source": "/shop/demo",
                "type": "com.shop.order.placed",
                "subject": f"customer-{number % 97}",
                "datacontenttype": "application/json",
            },
            Json({"customer": number % 97, "total": number * 7 % 500}),
        )


def _through_kafka(kafka: Kafka, count: int) -> Result:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    from penstock.events.bindings.kafka import KafkaBinding
    from penstock.record import KafkaRecord

    binding, options, failed = KafkaBinding(), kafka.client_options(), list[str]()
    admin = AdminClient(options)
    admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result(_PATIENCE)
    producer = Producer({**options, "linger.ms": 5, "enable.idempotence": True, "log_level": 3})

    def send(advance: Advance) -> None:
        for event in _orders(count):
            record = binding.encode(event, key=event.subject)
            headers = list(record.headers)
            producer.produce(
                _TOPIC, record.value, record.key, headers=headers, on_delivery=delivered(advance)
            )
            producer.poll(0)
        if producer.flush(_PATIENCE) or failed:
            raise ClusterError(
                "Kafka did not take every event", why=failed[0] if failed else "it was too slow"
            )

    def delivered(advance: Advance) -> Callable[[object, object], None]:
        return lambda error, _: failed.append(str(error)) if error else advance()

    def read() -> Iterator[str]:
        consumer = Consumer({**options, "group.id": "demo"})
        here = TopicPartition(_TOPIC, 0, 0)
        _, end = consumer.get_watermark_offsets(here, timeout=_PATIENCE)
        consumer.assign([here])
        left = end
        while left:
            messages = consumer.consume(min(left, 1000), _PATIENCE)
            if not messages:
                raise ClusterError(
                    "Kafka stopped giving events", next="penstock dev up, penstock dev logs kafka"
                )
            left -= len(messages)
            for message in messages:
                record = KafkaRecord(value=message.value(), headers=tuple(message.headers() or ()))
                yield binding.decode(record).id
        consumer.close()

    return _measure("kafka", kafka.bootstrap, count, send, read)


def _through_pulsar(server: Pulsar, count: int) -> Result:
    import logging

    import pulsar

    from penstock.events.bindings.pulsar import PulsarBinding
    from penstock.record import PulsarMessage

    quiet = logging.getLogger("penstock.demo.pulsar")
    quiet.setLevel(logging.CRITICAL)
    binding, failed = PulsarBinding(), list[str]()
    client = pulsar.Client(server.service_url, logger=quiet)
    producer = client.create_producer(_TOPIC, block_if_queue_full=True, max_pending_messages=1000)

    def send(advance: Advance) -> None:
        for event in _orders(count):
            message = binding.encode(event, key=event.subject)
            producer.send_async(
                message.payload or b"",
                lambda result, _: advance() if result == pulsar.Result.Ok else failed.append(str(result)),
                properties=dict(message.properties),
                partition_key=message.key,
            )
        producer.flush()
        if failed:
            raise ClusterError("Pulsar did not take every event", why=failed[0])

    def read() -> Iterator[str]:
        reader = client.create_reader(_TOPIC, pulsar.MessageId.earliest, receiver_queue_size=5000)
        left = count
        while left > 0 or reader.has_message_available():
            left -= 1
            got = reader.read_next(int(_PATIENCE * 1000))
            message = PulsarMessage(payload=got.data(), properties=tuple(got.properties().items()))
            yield binding.decode(message).id
        reader.close()

    try:
        return _measure("pulsar", server.service_url, count, send, read)
    finally:
        client.close()


def _measure(
    broker: str,
    address: str,
    count: int,
    send: Callable[[Advance], None],
    read: Callable[[], Iterable[str]],
) -> Result:
    begin = time.monotonic()
    with output.progress(f"{broker}: sending", total=count) as bar:
        send(_in_steps(bar.advance, count))
    sent = time.monotonic()
    seen: Counter[str] = Counter()
    with output.progress(f"{broker}: reading back", total=count) as bar:
        one_more = _in_steps(bar.advance, count)
        for event_id in read():
            seen[event_id] += 1
            one_more()
    done = time.monotonic()
    return Result(
        broker=broker,
        address=address,
        sent=count,
        read=seen.total(),
        missing=count - len(seen),
        duplicates=seen.total() - len(seen),
        sent_per_s=round(count / (sent - begin)),
        read_per_s=round(seen.total() / (done - sent)),
    )


def _in_steps(advance: Callable[[int], None], count: int) -> Advance:
    """Count one at a time, and move the bar in steps."""
    done = itertools.count(1)

    def one() -> None:
        number = next(done)
        if number % _STEP == 0 or number == count:
            advance(number % _STEP or _STEP)

    return one
