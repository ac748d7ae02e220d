"""CPU time per event of our codec and of the CloudEvents SDK for Python, in one process.

1000 events with distinct id, time, source, subject and data; 9 attributes; JSON data of 134 bytes and
of 1 KiB; our level is `strict`. Both sides get the same bytes and the same values, and every round
starts from fresh objects, so nothing that one round found out helps the next.

"decode": the event is made and id, source, type, subject and time (as a datetime) are read from it.
"decode, data": the JSON data is read too. The SDK parses the data in both cases, ours when asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cloudevents.core.bindings.kafka as sdk
import orjson
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as SdkEvent

from penstock.events import CloudEvent, Json, KafkaBinding, Mode
from penstock.record import KafkaRecord
from table import Report, alternate

EVENTS = 1000
SIZES = {"134 B": 134, "1 KiB": 1024}
FORMAT = JSONFormat()
BINARY, STRUCTURED = KafkaBinding(), KafkaBinding(mode=Mode.STRUCTURED)


def attributes(i: int) -> dict[str, str]:
    return {
        "specversion": "1.0",
        "id": f"A234-{i:06d}-8c7f",
        "source": f"https://shop.example/orders/{i}",
        "type": "com.example.shop.order.placed",
        "subject": f"order/{i}",
        "time": f"2026-01-{i % 28 + 1:02d}T{i % 24:02d}:{i % 60:02d}:{i % 59:02d}.{i:06d}Z",
        "datacontenttype": "application/json",
        "partitionkey": f"customer-{i % 997}",
        "traceparent": f"00-{i:032x}-{i:016x}-01",
    }


def data(i: int, size: int) -> dict[str, Any]:
    """An order with as many lines as fit, filled up to exactly `size` bytes of compact JSON."""
    value: dict[str, Any] = {"order": f"o-{i:06d}", "customer": f"customer-{i % 997:03d}", "total": i + 0.5}
    lines = []
    while size - len(orjson.dumps({**value, "lines": lines, "note": ""})) > 120:
        name = f"Blue cotton shirt {i}-{len(lines)}"
        lines.append(
            {"sku": f"s-{i:06d}-{len(lines)}", "name": name, "quantity": 2, "price": 19.75, "gift": False}
        )
    value |= {"lines": lines, "note": ""}
    value["note"] = "x" * (size - len(orjson.dumps(value)))
    return value


class Inputs:
    """The same events in every form that a side may start from."""

    def __init__(self, size: int) -> None:
        self.attributes = [attributes(i) for i in range(EVENTS)]
        self.values = [data(i, size) for i in range(EVENTS)]
        events = [CloudEvent(a, Json(v)) for a, v in zip(self.attributes, self.values, strict=True)]
        self.binary = [BINARY.encode(event) for event in events]
        self.structured = [STRUCTURED.encode(event) for event in events]

    def sdk_messages(self, records: Sequence[KafkaRecord]) -> list[Any]:
        return [sdk.KafkaMessage(dict(r.headers), None, r.value) for r in records]  # type: ignore[arg-type]

    def sdk_events(self) -> list[Any]:
        return [sdk.from_kafka(message, FORMAT) for message in self.sdk_messages(self.binary)]

    def events(self) -> list[CloudEvent]:
        return [CloudEvent(a, Json(v)) for a, v in zip(self.attributes, self.values, strict=True)]


def each(
    work: Callable[[Any], object], items: Callable[[], Sequence[Any]]
) -> Callable[[], Callable[[], None]]:
    """Prepare fresh items, then time the work on each."""

    def prepare() -> Callable[[], None]:
        fresh = items()

        def run() -> None:
            for item in fresh:
                work(item)

        return run

    return prepare


def fresh_records(records: Sequence[KafkaRecord]) -> Callable[[], list[KafkaRecord]]:
    return lambda: [KafkaRecord(value=r.value, headers=tuple((n, v) for n, v in r.headers)) for r in records]


def decode_sdk(message: Any) -> object:
    event = sdk.from_kafka(message, FORMAT)
    return event.get_id(), event.get_source(), event.get_type(), event.get_subject(), event.get_time()


def decode_ours(record: KafkaRecord) -> object:
    event = BINARY.decode(record)
    return event.id, event.source, event.type, event.subject, event.time


def decode_data_sdk(message: Any) -> object:
    event = sdk.from_kafka(message, FORMAT)
    return (
        event.get_id(),
        event.get_source(),
        event.get_type(),
        event.get_subject(),
        event.get_time(),
        event.get_data(),
    )


def decode_data_ours(record: KafkaRecord) -> object:
    event = BINARY.decode(record)
    return event.id, event.source, event.type, event.subject, event.time, event.json()


def contests(inputs: Inputs) -> dict[str, tuple[Any, Any, float | None]]:
    """What is measured: the SDK's side, our side, and the goal for their ratio."""
    binary, structured = fresh_records(inputs.binary), fresh_records(inputs.structured)
    pairs = list(zip(inputs.attributes, inputs.values, strict=True))
    return {
        "decode binary": (
            each(decode_sdk, lambda: inputs.sdk_messages(inputs.binary)),
            each(decode_ours, binary),
            6,
        ),
        "decode binary, data": (
            each(decode_data_sdk, lambda: inputs.sdk_messages(inputs.binary)),
            each(decode_data_ours, binary),
            None,
        ),
        "decode structured, data": (
            each(decode_data_sdk, lambda: inputs.sdk_messages(inputs.structured)),
            each(decode_data_ours, structured),
            3,
        ),
        "encode binary": (
            each(lambda event: sdk.to_binary(event, FORMAT), inputs.sdk_events),
            each(BINARY.encode, inputs.events),
            3,
        ),
        "encode structured": (
            each(lambda event: sdk.to_structured(event, FORMAT), inputs.sdk_events),
            each(STRUCTURED.encode, inputs.events),
            3,
        ),
        "construct": (
            each(lambda pair: SdkEvent(*pair), lambda: sdk_pairs(inputs)),
            each(lambda pair: CloudEvent(pair[0], Json(pair[1])), lambda: pairs),
            None,
        ),
    }


def sdk_pairs(inputs: Inputs) -> list[Any]:
    return [(dict(event.get_attributes()), event.get_data()) for event in inputs.sdk_events()]


def check(inputs: Inputs) -> None:
    """Both sides must mean the same before they are timed."""
    for ours, theirs in zip(inputs.binary, inputs.sdk_events(), strict=True):
        event = BINARY.decode(ours)
        assert event.json() == theirs.get_data() and event.time == theirs.get_time()
        assert event.id == theirs.get_id()


def warm_up() -> None:
    """Let every path run some times before the first number counts."""
    for theirs, ours, _ in contests(Inputs(SIZES["134 B"])).values():
        alternate({"sdk": theirs, "ours": ours}, 1)


def main() -> None:
    report = Report.from_arguments(
        "codec: CPU time per event, best of the rounds", ["", "SDK µs", "ours µs", "ratio", "ours events/s"]
    )
    warm_up()
    for label, size in SIZES.items():
        inputs = Inputs(size)
        check(inputs)
        for name, (theirs, ours, goal) in contests(inputs).items():
            timing = alternate({"sdk": theirs, "ours": ours}, 11 if report.quick else 31)
            sdk_us, our_us = (timing[side].best / EVENTS * 1e6 for side in ("sdk", "ours"))
            ratio = sdk_us / our_us
            key = f"{name}, {label}"
            report.row(key, f"{sdk_us:.2f}", f"{our_us:.2f}", f"{ratio:.2f}", f"{1e6 / our_us:,.0f}")
            report.figure(f"{key}: SDK us", sdk_us)
            report.figure(f"{key}: us", our_us)
            report.figure(f"{key}: ratio", ratio)
            report.figure(f"{key}: events/s", 1e6 / our_us)
            if goal is not None:
                report.goal(key, ratio, goal)
    report.finish()


if __name__ == "__main__":
    main()
