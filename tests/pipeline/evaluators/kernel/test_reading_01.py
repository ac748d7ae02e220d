"""Events of Pulsar in profile 0.1, read by the kernel: what the reference reads, or left to it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.events import CloudEvent, Json, Mode
from penstock.events.bindings.pulsar import Profile, PulsarBinding, Values
from penstock.events.headers import to_headers
from penstock.events.reading import Level
from penstock.pipeline.plan.nodes import Type
from penstock.pipeline.plan.route import Assignment, RoutePlan, SimpleKey
from penstock.pipeline.plan.route import Mode as RouteMode
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.pulsar import PulsarReader
from penstock.record import KafkaRecord

TrialOn = Callable[[Any], Any]
TrialOf = Callable[..., Any]
TrialBy = Callable[[random.Random], Any]

USUAL = {
    "CE-CloudEventsVersion": "0.1",
    "CE-EventID": "1",
    "CE-Source": "/s",
    "CE-EventType": "order.placed",
}
JSON_EVENT = {"cloudEventsVersion": "0.1", "eventID": "1", "source": "/s", "eventType": "order.placed"}
MARK = ("CE-ContentType", "application/cloudevents+json")
TEXTS = (
    *("x", "5", "-7", "0", "-0", "05", "2147483648", "true", "false", "True", "", '"', '"x"', '"5"', '""'),
    *('"a\\"b"', '"a\\u0062"', '"x" ', '"x"y"', "null", "{}", '{"a":1}', "[1,2]", "1.5", "ü", '"ü€"', "a\nb"),
    *(
        '"a\nb"',
        "\ufdd0",
        "9" * 30,
        "/a b",
        "2026-01-01T00:00:00Z",
        '"2026-01-01T00:00:00Z"',
        "https://x.y/z",
    ),
)
NAMES = (
    *(*USUAL, "CE-EventTime", "CE-ContentType", "CE-SchemaURL", "CE-SchemaURI", "CE-EventTypeVersion"),
    *("CE-X-Subject", "CE-X-A", "CE-X-a", "CE-X-MyExt", "CE-X-Partitionkey", "CE-X-Expirytime", "CE-X-Data"),
    *(
        "CE-X-Id",
        "CE-X-Time",
        "CE-X-Type",
        "CE-X-É",
        "CE-X-a_b",
        "CE-X-",
        "CE-X",
        "CE-",
        "CE-Extra",
        "CE-Data",
    ),
    *("CE-X-Extensionnames", "CE-X-Attributenames", "CE-X-Schemaurl", "CE-X-Eventtypeversion", "CE-x-a"),
    *("ce-x-a", "Ce-EventID", "CE-EventId", "CE-SpecVersion", "CE-Subject", "ce_id", "ce_a", "content-type"),
    *("ce-rejected", "Content-Type", "app", "cetera", "CE", "CE-x", "CE-X-" + "N" * 70),
)


def message(properties: dict[str, str] | list[tuple[str, str]], payload: bytes | None = b"{}") -> KafkaRecord:
    pairs = properties.items() if isinstance(properties, dict) else properties
    return KafkaRecord(key=b"k", value=payload, headers=to_headers(pairs))


def structured(members: dict[str, Any], data: bytes | None = b"{}", *more: tuple[str, str]) -> KafkaRecord:
    text = json.dumps(members, ensure_ascii=False).encode()
    text = text if data is None else text[:-1] + b', "data": ' + data + b"}"
    return message([MARK, *more], text)


def ordinary(dice: random.Random, number: int, values: Values) -> KafkaRecord:
    """A message as the SDKs of 0.1 write it, in either mode; data that routes read has no escapes."""
    attributes = {
        "id": f"{number:032x}",
        "source": "https://shop.example/orders",
        "type": dice.choice(["order.placed", "order.changed"]),
        "time": f"2026-01-0{number % 9 + 1}T10:00:00.{number % 1000:03}Z",
        **({"subject": f"c-{number % 7}"} if dice.random() < 0.5 else {}),
        **({"dataschema": "https://shop.example/order"} if dice.random() < 0.3 else {}),
        **({"eventtypeversion": "2"} if dice.random() < 0.3 else {}),
        **({"traceparent": f"00-{number:032x}-01"} if dice.random() < 0.5 else {}),
        "hop": str(number % 5),
        "datacontenttype": "application/json",
    }
    order = {"total": number, "text": 'größer "als"'}
    data = dice.choice([Json(order), json.dumps(order).encode()])
    mode = dice.choice([Mode.BINARY, Mode.STRUCTURED])
    binding = PulsarBinding(profile=Profile.V0_1, mode=mode, values=values)
    written = binding.encode(CloudEvent(attributes, data), properties=[("app", "x")] * dice.randrange(2))
    key = dice.choice([None, b"", b"k-%d" % (number % 5), b"\xff"])
    return KafkaRecord(key=key, value=written.payload, headers=to_headers(written.properties))


def reading(trial: Any, reader: PulsarReader) -> Any:
    return replace(trial.stage, reader=reader)


def plans() -> list[RoutePlan]:
    """Routes that leave an event as it is, and that ask for and change what 0.1 spells in its own way."""
    where = parse_sql("type = 'order.placed' AND hop < 3 AND data.total >= 10")
    label = Assignment("label", parse_sql("concat(hop, eventtypeversion)", Type.TEXT))
    return [
        RoutePlan(name="all"),
        RoutePlan(
            name="some", where=where, set=(label,), rename=(("hop", "jump"),), mode=RouteMode.STRUCTURED
        ),
        RoutePlan(name="key", drop=("subject",), key=SimpleKey.PARTITIONKEY, mode=RouteMode.BINARY),
    ]


@pytest.mark.parametrize("values", list(Values))
def test_ordinary_events_are_read_by_the_kernel(values: Values, trial_of: TrialOf, trial_on: TrialOn) -> None:
    trial = trial_on(reading(trial_of(*plans()), PulsarReader(values=values)))
    dice = random.Random(1)
    records = [ordinary(dice, number, values) for number in range(300)]
    trial.check(records)
    assert trial.slow == 0
    _, counts = trial.expected(records)
    assert 2 * len(records) < counts["n_out"] < 3 * len(records)


@pytest.mark.parametrize("values", list(Values))
def test_every_name_and_every_text_is_read_as_the_reference_does(
    values: Values, trial_of: TrialOf, trial_on: TrialOn
) -> None:
    for plan in plans()[::2]:
        trial = trial_on(reading(trial_of(plan), PulsarReader(values=values)))
        quoted = {name: f'"{text}"' if values is Values.JSON else text for name, text in USUAL.items()}
        records = [message({**quoted, name: text}) for name in NAMES for text in TEXTS]
        records += [message([*quoted.items(), (name, "x")]) for name in NAMES]  # some are there twice
        records += [message([*quoted.items(), ("CE-X-A", "1"), (name, "2")]) for name in NAMES]
        records += [message({**quoted, name: '"x"', f"{name}2": '"y"'}) for name in NAMES]
        trial.check(records)
        assert 0.1 < trial.slow / trial.seen < 0.9


@pytest.mark.parametrize("values", list(Values))
def test_content_types_and_marks(values: Values, trial_of: TrialOf, trial_on: TrialOn) -> None:
    trial = trial_on(reading(trial_of(*plans()), PulsarReader(values=values)))
    envelope = json.dumps({**JSON_EVENT, "data": {"total": 12}}).encode()
    types = ["application/json", "text/plain", "image/png", "nonsense", "application/cloudevents+json"]
    types += ["application/cloudevents+json; charset=utf-8", "application/cloudevents+xml"]
    types += ["application/cloudevents-batch+json", *(f'"{each}"' for each in types)]
    records = []
    for each in types:
        for payload in (envelope, b'{"total": 12}', b"", None):
            for base in ({}, USUAL, {"CE-EventID": "9"}, {name: f'"{text}"' for name, text in USUAL.items()}):
                records.append(message({**base, "CE-ContentType": each}, payload))
                records.append(message({**base, "content-type": each}, payload))
                records.append(message({**base, "content-type": each, "CE-ContentType": types[0]}, payload))
    trial.check(records)
    assert trial.slow < trial.seen


def test_members_of_structured_events(trial_of: TrialOf, trial_on: TrialOn) -> None:
    for plan in plans():
        trial = trial_on(reading(trial_of(plan), PulsarReader()))
        names = (
            *JSON_EVENT,
            "eventTime",
            "contentType",
            "schemaURL",
            "schemaURI",
            "eventTypeVersion",
            "extra",
        )
        names += ("extensions", "id", "specversion", "EventID", "subject", "data")
        given = [*TEXTS, 5, True, None, 1.5, {}, {"a": "b"}, ["x"]]
        records = [structured({**JSON_EVENT, name: text}, None) for name in names for text in given]
        keys = (
            "a",
            "myExt",
            "Subject",
            "subject",
            "id",
            "time",
            "data",
            "é",
            "",
            "a_b",
            "expirytime",
            "partitionkey",
        )
        values = [*TEXTS, 5, -7, 2**31, -(2**31), 10**9, True, False, None, 1.5, {}, {"b": 1}, [1]]
        records += [structured({**JSON_EVENT, "extensions": {key: each}}) for key in keys for each in values]
        both = {**JSON_EVENT, "extensions": {"subject": "c", "hop": 2, "eventTypeVersion": "1"}}
        records += [
            structured({**both, "eventTypeVersion": "2"}),
            structured(both),
            structured({"extensions": {"a": "b"}, **JSON_EVENT}),
        ]
        text = json.dumps(both).encode()
        records += [message([MARK], text[:-1] + b', "extensions": {"z": "1"}}'), message([MARK], text[:-1])]
        records += [
            message([MARK], text + b" x"),
            message([MARK], b" " + text + b"\n"),
            message([MARK], b"[]"),
        ]
        trial.check(records)
        assert trial.slow < 0.9 * trial.seen


def test_data_of_structured_events(trial_of: TrialOf, trial_on: TrialOn) -> None:
    bodies = [
        None,
        b"{}",
        b'{"total": 12}',
        b'"text"',
        b'"AAEC"',
        b"5",
        b"null",
        b'{"a":1,"a":2}',
        b'"\\u0041"',
    ]
    for plan in plans():
        trial = trial_on(reading(trial_of(plan), PulsarReader()))
        trial.check(
            [
                structured({**JSON_EVENT, **({} if media is None else {"contentType": media})}, body)
                for media in (None, "application/json", "text/plain", "image/png", "text/plain; charset=x")
                for body in bodies
            ]
        )


def test_other_headers_beside_the_mark(trial_of: TrialOf, trial_on: TrialOn) -> None:
    trial = trial_on(reading(trial_of(*plans()), PulsarReader()))
    others = [
        ("app", "x"),
        ("CE-EventID", "1"),
        ("CE-X-A", "1"),
        ("ce_id", "2"),
        ("content-type", "text/plain"),
    ]
    records = [structured(JSON_EVENT, b"{}", each) for each in others]
    records += [
        structured({"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}, b"{}", each)
        for each in others
    ]
    trial.check(records)
    mixed = [message({**USUAL, name: "1"}) for name in ("ce_id", "ce_a", "CE-SpecVersion", "Ce-A", "ce-a")]
    trial.check(mixed)
    null = KafkaRecord(value=b"{}", headers=(*to_headers(USUAL.items()), ("CE-X-A", None), ("app", b"\xff")))
    trial.check(
        [null, replace(null, headers=(*null.headers[:-2], ("CE-X-A", b"\xff"))), replace(null, value=None)]
    )


@pytest.mark.parametrize(
    "reader",
    [
        PulsarReader(sniffed=True),
        PulsarReader(bridged=True),
        PulsarReader(keep_case=True),
        PulsarReader(level=Level.LENIENT),
    ],
    ids=["sniffed", "bridged", "keep case", "lenient"],
)
def test_other_readers_read_the_same(reader: PulsarReader, trial_of: TrialOf, trial_on: TrialOn) -> None:
    """What is certain for one reader may be another event for the next."""
    dice = random.Random(2)
    records = [ordinary(dice, number, Values.AUTO) for number in range(50)]
    records += [message({**USUAL, name: text}) for name in NAMES for text in TEXTS[:5]]
    records += [message({}, json.dumps(JSON_EVENT).encode()), message({**USUAL, "CE-X-MyExt": "5"})]
    for plan in plans():
        trial_on(reading(trial_of(plan), reader)).check(records)


def spoiled(dice: random.Random, record: KafkaRecord) -> KafkaRecord:
    """The record with something odd about it, mostly."""
    headers, value = list(record.headers), record.value
    for _ in range(dice.choice([0, 1, 1, 2])):
        at = dice.randrange(len(headers))
        name, text = headers[at]
        headers[at] = dice.choice(
            [
                (dice.choice(NAMES), text),
                (name, dice.choice(TEXTS).encode()),
                (name.lower(), text),
                (name, None),
                (name, bytes([dice.randrange(256)]) + (text or b"")),
            ]
        )
        dice.shuffle(headers)
    if value and dice.random() < 0.3:
        place = dice.randrange(len(value))
        value = value[:place] + bytes([dice.randrange(256)]) + value[place + dice.randrange(2) :]
    return replace(record, headers=tuple(headers), value=value)


@pytest.mark.parametrize("seed", range(4))
def test_generated_plans_on_odd_messages(
    seed: int, trial_by: TrialBy, trial_of: TrialOf, trial_on: TrialOn
) -> None:
    dice = random.Random(f"reading 0.1 {seed}")
    for _ in range(4):
        values = dice.choice(list(Values))
        records = [spoiled(dice, ordinary(dice, number, values)) for number in range(200)]
        for trial in (trial_by(dice), trial_of(*plans())):
            trial_on(reading(trial, PulsarReader(values=values))).check(records)


def test_all_of_it_from_profile_0_1_to_profile_0_1(trial_of: TrialOf, trial_on: TrialOn) -> None:
    trial = trial_of(*plans())
    routes = tuple(
        replace(
            route,
            targets=tuple(replace(each, profile=Profile.V0_1) for each in route.targets),
            dead=replace(route.dead, profile=Profile.V0_1),
        )
        for route in trial.stage.routes
    )
    dice = random.Random(5)
    records = [ordinary(dice, number, Values.AUTO) for number in range(200)]
    trial = trial_on(replace(trial.stage, reader=PulsarReader(), routes=routes))
    trial.check(records)
    assert trial.slow == 0
