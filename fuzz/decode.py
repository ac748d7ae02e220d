"""Hostile records in front of the event codecs, guided by coverage.

What is looked for: an exception that is not ours, anything at all from `forensic`, a fast answer that
differs from the thorough one, and an event that does not survive its own encoding. atheris has no
place in the lock; it has an environment of its own:

    python -m venv .fuzz && .fuzz/bin/pip install --require-hashes -r fuzz/requirements.txt
    PYTHONPATH=src .fuzz/bin/python fuzz/decode.py -max_total_time=60 -len_control=0 -max_len=600
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["penstock.events"]):
    from penstock.errors import CannotEncode, EventError
    from penstock.events import (
        FORMATS,
        CloudEvent,
        HttpBinding,
        HttpMessage,
        Json,
        KafkaBinding,
        Level,
        PulsarBinding,
        Reading,
        Values,
    )
    from penstock.record import KafkaRecord, PulsarMessage

NAMES = [
    *(
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_specversion",
        "ce_time",
        "ce_dataschema",
        "ce_subject",
        "ce_x",
        "ce_",
    ),
    *("content-type", "Content-Type", "CE-EventID", "CE-CloudEventsVersion", "CE-Source", "CE-EventType"),
    *(
        "CE-X-Foo",
        "CE-SchemaURI",
        "CE-Specversion",
        "CE-Id",
        "ce-id",
        "ce-source",
        "ce-type",
        "ce-specversion",
    ),
]
TEXTS = [
    *(
        "1.0",
        "0.1",
        "0.3",
        "1",
        "/s",
        "t",
        "2018-04-05T17:31:00Z",
        "application/json",
        "text/plain; charset=utf-8",
    ),
    *(f"application/cloudevents+{each.name}" for each in FORMATS),
    *(f"application/cloudevents-batch+{each.name}" for each in FORMATS),
]
EVENT = CloudEvent(
    {"id": "1", "source": "/s", "type": "t", "time": "2018-04-05T17:31:00Z", "n": 5, "b": b"x", "f": True},
    Json({"a": [1]}),
)
SEEDS = [each.encode(EVENT) for each in FORMATS]
SEEDS += [
    FORMATS.named("json").encode_batch([EVENT, EVENT]),
    FORMATS.named("json").encode(EVENT.replace(data=b"x")),
]
SEEDS += [
    b'{"cloudEventsVersion":"0.1","eventID":"1","eventType":"t","source":"/s","extensions":{"a":1},"data":{}}'
]
KINDS = {
    "ce_": [(f"ce_{name}", text) for name, text in EVENT.attributes.items()],
    "CE-": list(PulsarBinding().encode(EVENT).properties),
    "ce-": [(f"ce-{name}", text) for name, text in EVENT.attributes.items()],
    "": [],
}
KAFKA = (KafkaBinding(), KafkaBinding(dash=True))
PULSAR = (PulsarBinding(), PulsarBinding(bridged=True, sniff=True, keep_case=True, values=Values.JSON))
HTTP = HttpBinding()


def headers(provider: atheris.FuzzedDataProvider) -> list[tuple[str, str]]:
    """Pairs of which most are near the truth."""
    pairs: list[tuple[str, str]] = list(KINDS[provider.PickValueInList(list(KINDS))])
    for _ in range(provider.ConsumeIntInRange(0, 3)):
        name = provider.PickValueInList(NAMES) if provider.ConsumeBool() else provider.ConsumeUnicode(6)
        known = provider.ConsumeBool()
        pairs.append((name, provider.PickValueInList(TEXTS) if known else provider.ConsumeUnicode(12)))
    for _ in range(provider.ConsumeIntInRange(0, 2)):
        if pairs:
            pairs.pop(provider.ConsumeIntInRange(0, len(pairs) - 1))
    return pairs


def body(provider: atheris.FuzzedDataProvider) -> bytes | None:
    """Nothing, anything, or a valid event with a hole and something else in it."""
    if provider.ConsumeBool():
        return None if provider.ConsumeBool() else provider.ConsumeBytes(provider.remaining_bytes())
    seed = provider.PickValueInList(SEEDS)
    start = provider.ConsumeIntInRange(0, len(seed))
    end = min(len(seed), start + provider.ConsumeIntInRange(0, 12))
    return seed[:start] + provider.ConsumeBytes(provider.remaining_bytes()) + seed[end:]


def answer(read: object, *given: object) -> object:
    """The event, or the typed error as text; any other exception is a find."""
    try:
        return read(*given)  # type: ignore[operator]
    except EventError as error:
        return str(error)


def judged(reading: Reading) -> None:
    """Forensic has a verdict, and an event exactly where the verdict says so."""
    if (reading.event is not None) != (reading.verdict.value in ("event", "tolerated")):
        raise AssertionError(f"verdict {reading.verdict} does not fit")
    if reading.verdict.value == "event" and reading.event is not None:
        survives(reading.event)


def survives(event: CloudEvent) -> None:
    """A valid event comes back from every format that can carry it."""
    for each in FORMATS:
        try:
            raw = each.encode(event)
        except CannotEncode:
            continue
        if each.decode(raw).id != event.id:
            raise AssertionError(f"{each.name} changed the id")
    if FORMATS.named("json").decode(FORMATS.named("json").encode(event)).data_bytes != event.data_bytes:
        raise AssertionError("json changed the data")


def one_input(data: bytes) -> None:
    """Read one record in every binding, at every level."""
    provider = atheris.FuzzedDataProvider(data)
    pairs = headers(provider)
    value = body(provider)
    raw = tuple((name, text.encode("utf-8", "surrogatepass")) for name, text in pairs)
    texts = tuple(pairs)
    record, message = KafkaRecord(value=value, headers=raw), PulsarMessage(payload=value, properties=texts)
    request = HttpMessage(headers=texts, body=value)
    for binding in KAFKA:
        if answer(binding.decode, record) != answer(lambda r, b=binding: b.read(r).event, record):
            raise AssertionError("the fast answer is not the thorough one")
        answer(binding.read, record, Level.LENIENT)
        judged(binding.read(record, Level.FORENSIC))
    for reader in PULSAR:
        answer(reader.decode, message)
        judged(reader.read(message, Level.FORENSIC))
    answer(HTTP.decode, request)
    judged(HTTP.read(request, Level.FORENSIC))
    HTTP.read_batch(request, Level.FORENSIC)
    for each in FORMATS:
        judged(each.read(value or b"", Level.FORENSIC))


def main() -> None:
    """Run until libFuzzer is told to stop."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
