"""What a route asks for when it reads and writes: levels, spellings, no headers; in every engine."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from routed import rows_of

from penstock.errors import EventError
from penstock.events import Level
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.bindings.pulsar import Profile, PulsarBinding, Values
from penstock.pipeline.arrow.bindings import PulsarRecords
from penstock.pipeline.evaluators.kernel.program import stops
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.plan.route import Mode, RoutePlan
from penstock.pipeline.ports import Target
from penstock.pipeline.pulsar import PulsarReader
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import KafkaRecord

Trials = Callable[..., Any]
CORE = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
BINARY = tuple((f"ce_{name}", text.encode()) for name, text in CORE.items())
MARK = ("content-type", b"application/cloudevents+json; charset=utf-8")
LENIENT = KafkaReader(level=Level.LENIENT)


def bare(**members: Any) -> KafkaRecord:
    return KafkaRecord(key=b"k", value=json.dumps({**CORE, **members}).encode())


READ = [
    pytest.param(LENIENT, KafkaRecord(headers=(*BINARY, ("ce_Ext", b"x"))), id="a name in capitals"),
    pytest.param(
        LENIENT, KafkaRecord(headers=(("CE_ID", b"1"), BINARY[0], *BINARY[2:])), id="a prefix in capitals"
    ),
    pytest.param(LENIENT, KafkaRecord(headers=(*BINARY, BINARY[1])), id="a repeated header"),
    pytest.param(
        LENIENT, KafkaRecord(headers=(("ce_specversion", b"0.3"), *BINARY[1:])), id="specversion 0.3"
    ),
    pytest.param(
        LENIENT,
        KafkaRecord(value=b"\xef\xbb\xbf" + (bare().value or b""), headers=(("Content-Type", MARK[1]),)),
        id="a byte order mark, Content-Type in capitals",
    ),
    pytest.param(LENIENT, KafkaRecord(headers=(*BINARY, ("ce_time", b"later"))), id="a time that is none"),
    pytest.param(LENIENT, KafkaRecord(headers=(*BINARY, ("ce_note", b"a\nb"))), id="a control character"),
    pytest.param(
        KafkaReader(dash=True),
        KafkaRecord(headers=tuple((f"ce-{name[3:]}", text) for name, text in BINARY)),
        id="dashes",
    ),
    pytest.param(
        KafkaReader(sniff=True), bare(datacontenttype="application/json", data={"n": 1}), id="no headers"
    ),
]


def staged(plan: RoutePlan, reader: KafkaReader | None = None, **target: Any) -> Stage:
    route = StageRoute(plan=plan, targets=(Target(topic="out", **target),), dead=Target(topic="dead"))
    stage = Stage(pipeline="p", routes=(route,), dead=Target(topic="dead"))
    return stage if reader is None else replace(stage, reader=reader)


@pytest.mark.parametrize(("reader", "came"), READ)
@pytest.mark.parametrize("mode", list(Mode))
def test_what_is_asked_for_is_read_by_the_reference_and_by_the_kernel(
    reader: KafkaReader, came: KafkaRecord, mode: Mode, trial_on: Trials, batch_of_records: Any
) -> None:
    binding = KafkaBinding(dash=reader.dash, sniff=reader.sniff)
    with pytest.raises(EventError):
        KafkaBinding().decode(came)
    event = binding.read(came, reader.level).event
    assert event is not None
    came = replace(came, headers=(*came.headers, ("app", b"x")))
    plan = RoutePlan(name="r", mode=mode)
    trial = trial_on(staged(plan, reader))
    trial.check([came] * 3)
    rows, _ = trial.expected([came])
    ((_, value, headers),) = [row for (number, _), part in rows.items() if number == 0 for row in part]
    left = KafkaRecord(value=value, headers=headers)
    assert KafkaBinding().read(left, reader.level).event == event
    # What was read as ours is not carried once more as the application's.
    assert KafkaBinding().foreign(left, Level.STRICT) == (("app", b"x"),)
    strictly = trial_on(staged(plan)).expected([came])[1]
    assert (strictly["n_out"], strictly["n_dead"]) == ((1, 0) if nothing_said(came) else (0, 1))


def nothing_said(record: KafkaRecord) -> bool:
    """Tell whether a record is a null value that strict does not take for an event: it is passed on."""
    return record.value is None and not any(name.startswith("ce_") for name, _ in record.headers)


@pytest.mark.parametrize(
    "reader", [LENIENT, KafkaReader(dash=True), KafkaReader(sniff=True, level=Level.LENIENT)]
)
def test_generated_events_at_other_levels(
    reader: KafkaReader, trial_by: Trials, trial_on: Trials, records_by: Any
) -> None:
    dice = random.Random(11)
    records = [respelled(dice, record) for record in records_by(dice, 1500)]
    for _ in range(4):
        trial_on(replace(trial_by(dice).stage, reader=reader)).check(records)


def respelled(dice: random.Random, record: KafkaRecord) -> KafkaRecord:
    """Spell one header in another way, or leave all away, now and then."""
    if dice.random() < 0.1:
        return replace(record, headers=())
    if dice.random() < 0.7 or not record.headers:
        return record
    at = dice.randrange(len(record.headers))
    name, text = record.headers[at]
    other = dice.choice(
        [name.upper(), name.title(), name.replace("ce_", "ce-"), f"CE-{name[3:]}", f"{name}X"]
    )
    return replace(record, headers=(*record.headers[:at], (other, text), *record.headers[at + 1 :]))


def test_the_kernel_does_plain_events_at_any_level(trial_on: Trials) -> None:
    reader = KafkaReader(level=Level.LENIENT, dash=True, sniff=True)
    trial = trial_on(staged(RoutePlan(name="r"), reader))
    came = [
        KafkaRecord(value=b"%d" % n, headers=(*BINARY, ("app", b"x"), ("certainly", b"y"))) for n in range(50)
    ]
    trial.check(came)
    assert trial.slow == 50, "a header that may be ours is looked at"
    other = trial_on(staged(RoutePlan(name="r"), reader))
    other.check([KafkaRecord(value=b"x", headers=(*BINARY, ("app", b"x"), ("trace", b"y")))] * 50)
    assert other.slow == 0


@pytest.mark.parametrize("note", ["a\nb", "\x01", 'a\n"\x01'])
def test_lenient_attributes_are_escaped_in_json(note: str, trial_on: Trials) -> None:
    own = (("ce_note", note.encode()), ("content-type", b"application/json"))
    trial = trial_on(staged(RoutePlan(name="r", mode=Mode.STRUCTURED), LENIENT))
    rows, _ = trial.expected([KafkaRecord(value=b"{}", headers=(*BINARY, *own))])
    ((_, value, _),) = rows[0, 0]
    assert json.loads(value)["note"] == note


# How events are written


def test_repeated_headers() -> None:
    stage = staged(RoutePlan(name="r", mode=Mode.STRUCTURED), repeat_headers=True)
    assert list(stops(stage)) == ["route r: the kernel cannot: repeatHeaders"]
    (left,), _ = rows_of(stage, [KafkaRecord(headers=BINARY, value=b"x")])
    names = [pair["key"] for pair in left["headers"]]
    assert names == ["content-type", "ce_specversion", "ce_id", "ce_source", "ce_type"]
    assert not list(stops(staged(RoutePlan(name="r", mode=Mode.BINARY), repeat_headers=True)))


@pytest.mark.parametrize("values", list(Values))
def test_values_of_properties(values: Values, batch_of_records: Any) -> None:
    stage = staged(RoutePlan(name="r"), profile=Profile.V0_1, values=values)
    came = KafkaRecord(value=b"x", headers=(*BINARY, ("ce_num", b"5")))
    (left,), _ = rows_of(stage, [came])
    record = KafkaRecord(value=left["value"], headers=tuple((p["key"], p["value"]) for p in left["headers"]))
    wanted = {Values.AUTO: b'"5"', Values.JSON: b'"5"', Values.RAW: b"5"}
    assert dict(record.headers)["CE-X-Num"] == wanted[values]
    assert dict(record.headers)["CE-EventID"] == (b'"1"' if values is Values.JSON else b"1")
    again = PulsarReader(values=values)(batch_of_records([record]))
    assert (again.attributes["id"].to_pylist(), again.attributes["num"].to_pylist()) == (["1"], ["5"])


def test_the_case_of_names_is_kept_if_asked_for(batch_of_records: Any) -> None:
    binding = PulsarRecords(pulsar=PulsarBinding())
    own = binding.encode(KafkaBinding().decode(KafkaRecord(headers=BINARY))).headers
    batch = batch_of_records([KafkaRecord(headers=(*own, ("CE-X-MyName", b"x")))])
    assert "extensionnames" not in PulsarReader()(batch).attributes
    events = PulsarReader(keep_case=True)(batch)
    assert events.attributes["extensionnames"].to_pylist() == ["myName"]


def test_lenient_on_pulsar(batch_of_records: Any) -> None:
    own = tuple((f"ce-{name}", text.encode()) for name, text in CORE.items())
    batch = batch_of_records([KafkaRecord(headers=(*own, ("app", b"x")))])
    assert PulsarReader()(batch).code.to_pylist() == ["not-a-cloudevent"]
    events = PulsarReader(level=Level.LENIENT)(batch)
    assert (events.code.to_pylist(), events.attributes["id"].to_pylist()) == ([None], ["1"])
    assert [pair["key"] for pair in events.foreign[0].as_py()] == ["app"]
