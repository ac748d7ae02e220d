"""What lenient reads and strict does not: names in another case; and what Kafka reads without headers."""

from __future__ import annotations

import json

import pytest

from penstock.errors import InvalidEvent, NotACloudEvent
from penstock.events import CloudEvent, KafkaBinding, Level, Mode, PulsarBinding, Verdict
from penstock.record import KafkaRecord, PulsarMessage

REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
MARK = ("content-type", b"application/cloudevents+json")
ENVELOPE = json.dumps(REQUIRED).encode()


def record(*headers: tuple[str, str], value: bytes | None = None) -> KafkaRecord:
    return KafkaRecord(value=value, headers=tuple((name, text.encode()) for name, text in headers))


def test_lenient_reads_a_required_attribute_in_another_case() -> None:
    came = record(("ce_specversion", "1.0"), ("ce_Id", "1"), ("ce_source", "/s"), ("ce_Type", "t"))
    reading = KafkaBinding().read(came, Level.LENIENT)
    assert (reading.verdict, reading.event) == (Verdict.TOLERATED, CloudEvent(REQUIRED))
    assert {finding.attribute for finding in reading.findings} == {"Id", "Type"}
    assert KafkaBinding().read(came, Level.FORENSIC).event == reading.event
    with pytest.raises(InvalidEvent):
        KafkaBinding().decode(came)


def test_lenient_reads_a_member_in_another_case() -> None:
    members = {**REQUIRED, "Type": "u", "MyExt": 5}
    del members["type"]
    came = KafkaRecord(value=json.dumps(members).encode(), headers=(MARK,))
    event = KafkaBinding().read(came, Level.LENIENT).event
    assert event is not None
    assert (event.type, event.value("myext")) == ("u", 5)


def test_the_exact_name_wins_over_another_case() -> None:
    came = record(*((f"ce_{name}", text) for name, text in REQUIRED.items()), ("ce_Type", "other"))
    event = KafkaBinding().read(came, Level.LENIENT).event
    assert event == CloudEvent(REQUIRED)


def test_the_exact_content_type_wins_over_another_case() -> None:
    other = "application/cloudevents+avro"
    came = KafkaRecord(value=ENVELOPE, headers=(MARK, ("Content-Type", other.encode())))
    assert KafkaBinding().read(came, Level.LENIENT).event == KafkaBinding().decode(came)
    message = PulsarMessage(
        payload=ENVELOPE, properties=(("Content-Type", other), (MARK[0], MARK[1].decode()))
    )
    assert PulsarBinding().read(message, Level.LENIENT).event == PulsarBinding().decode(message)


@pytest.mark.parametrize("name", ["ce-contenttype", "CE-CONTENTTYPE", "Content-Type"])
def test_lenient_finds_structured_mode_by_a_marker_in_another_case(name: str) -> None:
    members = {"cloudEventsVersion": "0.1", "eventID": "1", "eventType": "t", "source": "/s"}
    came = PulsarMessage(
        payload=json.dumps(members).encode(), properties=((name, "application/cloudevents+json"),)
    )
    reading = PulsarBinding().read(came, Level.LENIENT)
    assert (reading.mode, reading.event) == (Mode.STRUCTURED, CloudEvent(REQUIRED))
    assert reading.verdict is Verdict.TOLERATED
    with pytest.raises((InvalidEvent, NotACloudEvent)):
        PulsarBinding().decode(came)
    assert PulsarBinding().foreign(came, Level.LENIENT) == ()


def test_lenient_reads_dashed_names_of_pulsar_in_any_case() -> None:
    came = PulsarMessage(properties=tuple((f"ce-{name}", text) for name, text in REQUIRED.items()))
    reading = PulsarBinding().read(came, Level.LENIENT)
    assert (reading.verdict, reading.event) == (Verdict.TOLERATED, CloudEvent(REQUIRED))


def test_a_structured_record_by_a_header_in_another_case_is_tolerated() -> None:
    came = KafkaRecord(value=ENVELOPE, headers=(("Content-Type", MARK[1]),))
    reading = KafkaBinding().read(came, Level.LENIENT)
    assert (reading.verdict, reading.event) == (Verdict.TOLERATED, CloudEvent(REQUIRED))


@pytest.mark.parametrize(
    "headers",
    [(MARK, MARK), (("content-type", b"text/plain"), MARK), (MARK, ("content-type", b"text/plain"))],
)
def test_strict_refuses_a_repeated_content_type_in_either_mode(
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    came = KafkaRecord(value=ENVELOPE, headers=(*record(*required()).headers, *headers))
    for read in (KafkaBinding().decode, KafkaBinding().read):
        with pytest.raises(InvalidEvent, match="content-type is repeated"):
            read(came)
    reading = KafkaBinding().read(came, Level.LENIENT)
    assert reading.mode is (Mode.STRUCTURED if headers[-1] == MARK else Mode.BINARY)


def required() -> list[tuple[str, str]]:
    return [(f"ce_{name}", text) for name, text in REQUIRED.items()]


def test_two_different_markers_on_pulsar_are_refused() -> None:
    both = (("CE-ContentType", "application/cloudevents+json"), ("content-type", "application/cloudevents"))
    with pytest.raises(InvalidEvent, match="two properties"):
        PulsarBinding().decode(PulsarMessage(payload=ENVELOPE, properties=both))
    same = (("CE-ContentType", "application/cloudevents+json"), ("content-type", both[0][1]))
    assert PulsarBinding().decode(PulsarMessage(payload=ENVELOPE, properties=same)) == CloudEvent(REQUIRED)


def test_what_lenient_reads_as_ours_is_not_the_applications() -> None:
    came = record(("CE_ID", "1"), ("Content-Type", "a/b"), ("app", "x"), ("ce-x", "y"))
    assert [name for name, _ in KafkaBinding().foreign(came)] == ["CE_ID", "Content-Type", "app", "ce-x"]
    assert [name for name, _ in KafkaBinding().foreign(came, Level.LENIENT)] == ["app", "ce-x"]
    assert [name for name, _ in KafkaBinding(dash=True).foreign(came, Level.LENIENT)] == ["app"]


# A structured record without headers (Kafka 1.3, 3.3.1)


@pytest.mark.parametrize("headers", [(), (("app", b"x"),), (("content-type", b"application/json"),)])
def test_a_structured_record_without_headers_is_read_if_asked_for(
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    event = CloudEvent({**REQUIRED, "num": 5}, b"\xff")
    sent = KafkaBinding(mode=Mode.STRUCTURED, target_has_headers=False).encode(event, key=b"k")
    came = KafkaRecord(value=sent.value, key=sent.key, headers=headers)
    with pytest.raises(NotACloudEvent):
        KafkaBinding().decode(came)
    sniffing = KafkaBinding(sniff=True)
    assert sniffing.decode(came) == event
    assert sniffing.read(came).mode is Mode.STRUCTURED


@pytest.mark.parametrize(
    "value", [None, b"", b"{}", b"[]", b"text", b'{"id":"1","source":"/s","type":"t"}', b"[" * 5000]
)
def test_what_does_not_look_like_an_event_is_none(value: bytes | None) -> None:
    with pytest.raises(NotACloudEvent):
        KafkaBinding(sniff=True).decode(KafkaRecord(value=value))


def test_what_looks_like_an_event_and_breaks_a_rule_is_refused() -> None:
    came = KafkaRecord(value=json.dumps({**REQUIRED, "source": ""}).encode())
    with pytest.raises(InvalidEvent, match="source is empty"):
        KafkaBinding(sniff=True).decode(came)


def test_headers_of_ours_win_over_what_the_value_looks_like() -> None:
    came = KafkaRecord(value=ENVELOPE, headers=record(*required()).headers)
    event = KafkaBinding(sniff=True).decode(came)
    assert event.data == ENVELOPE
