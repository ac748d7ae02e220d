"""A pipeline tried out in memory: samples through the reference evaluator; no Spark, no broker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from penstock.contract.topics import kafka_topic
from penstock.errors import EventError, UsageError
from penstock.events import CloudEvent, KafkaBinding
from penstock.events.formats import FORMATS
from penstock.events.jsontext import dumps
from penstock.events.lines import read_kafka
from penstock.pipeline.arrow.bindings import PulsarRecords
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.deadletter import DeadLetter, read_dead_letter
from penstock.pipeline.evaluators.reference.outcome import Written
from penstock.pipeline.evaluators.reference.router import ReferenceRouter
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.stage import Stage
from penstock.record import KafkaRecord

__all__ = ["Sample", "Sent", "Trial", "event_of", "sample_record", "try_out"]

Sample = CloudEvent | KafkaRecord | Mapping[str, Any]
"""An event, a record, or an event in the JSON format (`specversion` may be left out)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One record that would have been written."""

    channel: str
    record: KafkaRecord
    event: CloudEvent | None
    """None if the record is no CloudEvent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of the samples."""

    sent: tuple[Sent, ...]
    dead: tuple[DeadLetter, ...]
    receipts: tuple[Sent, ...]
    counts: Mapping[str, int]
    """`in`, `out`, `dead`, `dropped`, `unmatched` and the other counters of a job."""

    def events(self, channel: str) -> tuple[CloudEvent, ...]:
        """Give the events sent to a channel, in order."""
        return tuple(each.event for each in self.sent if each.channel == channel and each.event is not None)


class _HastyClock:
    """Does not wait: back-off takes no time in a trial."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


def try_out(
    pipeline: Pipeline,
    samples: Sequence[Sample],
    *,
    route: str | None = None,
    receive: str | None = None,
    now: int | None = None,
) -> Trial:
    """Give samples to the routes of one source; `now` is the moment in microseconds.

    The source is that of a route (and then only this route runs) or of an operation; it need not be named
    if the pipeline has one.
    """
    source = _source(pipeline, route, receive)
    _refuse_sql(source)
    stage = _hasty(stage_of(source, pipeline))
    records = [
        replace(sample_record(sample), topic=source.topic, partition=0, offset=offset)
        for offset, sample in enumerate(samples)
    ]
    moment = time.time_ns() // 1000 if now is None else now
    try:
        routing = ReferenceRouter(stage).route(records, now=moment)
    finally:
        for each in stage.routes:
            if isinstance(each.invoker, FunctionInvoker):
                each.invoker.close()
    counts = {name.removeprefix("n_"): routing.counts[name] for name in COUNTERS}
    return _sorted_out(chain.from_iterable(routing.written), counts, source, pipeline)


def sample_record(sample: Sample) -> KafkaRecord:
    """Give a sample as the record that carries it; UsageError if it is none.

    A mapping is an event in the JSON format; `{event: ..., key: ..., headers: ...}` is one with key and
    headers of its record; otherwise with `value` or `headers` it is a record as `penstock event` writes it.

    >>> sample_record({"event": {"id": "1", "source": "/", "type": "t"}, "key": "k"}).key
    b'k'
    """
    if isinstance(sample, KafkaRecord):
        return sample
    if isinstance(sample, CloudEvent):
        return KafkaBinding().encode(sample)
    if "event" in sample:
        if not isinstance(sample["event"], Mapping) or sample.keys() - {"event", "key", "headers"}:
            raise UsageError(
                "a sample is an event or a record", next="write it as {event: {...}, key: text, headers: ...}"
            )
        try:
            beside = read_kafka({name: sample[name] for name in ("key", "headers") if name in sample})
        except UsageError as exc:
            raise UsageError(f"a sample has no legal key or headers: {exc.what}", next=exc.next) from exc
        return _event_record(sample["event"], beside)
    if "value" in sample or "headers" in sample:
        return read_kafka(sample)
    return _event_record(sample, KafkaRecord())


def _event_record(members: Mapping[str, Any], beside: KafkaRecord) -> KafkaRecord:
    try:
        event = FORMATS.named("json").decode(dumps({"specversion": "1.0", **members}))
        return KafkaBinding().encode(event, key=beside.key, headers=beside.headers)
    except (EventError, ValueError) as exc:
        raise UsageError(f"a sample is no event: {exc}", next="give it id, source and type") from exc


def _source(pipeline: Pipeline, route: str | None, receive: str | None) -> Source:
    sources = sources_of(pipeline)
    if route is not None:
        for source in sources:
            own = tuple(each for each in source.routes if each.name == route)
            if own:
                return replace(source, routes=own)
        raise UsageError(f"there is no route {route}", next=f"use one of: {_names(pipeline)}")
    found = [
        source
        for source in sources
        if receive is None or receive in {each.document.receive for each in source.routes}
    ]
    if len(found) != 1:
        raise UsageError("the pipeline reads several topics", next=f"name a route: {_names(pipeline)}")
    return found[0]


def _refuse_sql(source: Source) -> None:
    for route in source.routes:
        if route.sql is not None:
            raise UsageError(
                f"route {route.name} has a condition in Spark's own SQL, and there is no Spark here",
                next="name another route, write the condition under where, or penstock run --once",
            )


def _names(pipeline: Pipeline) -> str:
    return ", ".join(route.name for route in pipeline.routes)


def _hasty(stage: Stage) -> Stage:
    routes = tuple(
        replace(route, invoker=replace(route.invoker, clock=_HastyClock()))
        if isinstance(route.invoker, FunctionInvoker)
        else route
        for route in stage.routes
    )
    return replace(stage, routes=routes)


def _sorted_out(
    written: Iterable[Written], counts: Mapping[str, int], source: Source, pipeline: Pipeline
) -> Trial:
    channels = _channels(source, pipeline)
    dead_topics = {place.topic for place in source.dead.values()}
    sent: list[Sent] = []
    dead: list[DeadLetter] = []
    receipts: list[Sent] = []
    for target, made in written:
        record = replace(made, topic=target.topic)
        event, is_receipt = event_of(record), target.sink >= len(source.servers)
        letter = _letter(event) if target.topic in dead_topics else None
        if letter is not None:
            dead.append(letter)
        else:
            channel = channels.get(target.topic, target.topic)
            (receipts if is_receipt else sent).append(Sent(channel=channel, record=record, event=event))
    return Trial(sent=tuple(sent), dead=tuple(dead), receipts=tuple(receipts), counts=counts)


def _channels(source: Source, pipeline: Pipeline) -> dict[str, str]:
    named = {kafka_topic(channel): name for name, channel in pipeline.contract.channels.items()}
    found = {topic: name for topic, name in named.items() if topic is not None}
    sends = (operation for route in source.routes for operation in route.send)
    return found | {str(operation.topic): operation.channel for operation in sends}


def event_of(record: KafkaRecord) -> CloudEvent | None:
    """Read a record, of Kafka or as those of Pulsar are shown; None if it is no event."""
    for binding in (KafkaBinding(), PulsarRecords()):
        try:
            return binding.decode(record)
        except EventError:
            continue
    return None


def _letter(event: CloudEvent | None) -> DeadLetter | None:
    try:
        return None if event is None else read_dead_letter(event)
    except EventError:
        return None
