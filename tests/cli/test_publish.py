"""What `penstock publish` makes of its flags; no broker runs here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.brokers import kafka_records
from penstock.cli import publish
from penstock.errors import UsageError
from penstock.events import CloudEvent, KafkaBinding, Mode, Profile, PulsarBinding
from penstock.record import KafkaRecord

NUMBERS = b'{"total": 12345678901234567890.5,  "b": 1.10, "c": 1e2, "d": -0, "e": 10000000000000000000000}'


def one(data: str, content_type: str = "application/json") -> CloudEvent:
    (event,) = publish._one("t", "/s", "1", None, data, content_type, None)
    return event


@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize("content_type", ["application/json", "application/vnd.x+json", "text/json; a=b"])
def test_data_is_sent_as_it_was_given(from_file: bool, content_type: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(NUMBERS)
    event = one(f"@{tmp_path / 'data'}" if from_file else NUMBERS.decode(), content_type)
    assert KafkaBinding().encode(event).value == NUMBERS
    assert NUMBERS in (KafkaBinding(mode=Mode.STRUCTURED).encode(event).value or b"")
    for profile in Profile:
        assert PulsarBinding(profile=profile).encode(event).payload == NUMBERS
        structured = PulsarBinding(profile=profile, mode=Mode.STRUCTURED).encode(event)
        assert NUMBERS in (structured.payload or b"")


def test_data_that_is_no_utf8_is_sent_as_it_was_given() -> None:
    assert one(os.fsdecode(b"\xff\xfe"), "application/octet-stream").data == b"\xff\xfe"


@pytest.mark.parametrize("data", ["{", '{"a": NaN}', os.fsdecode(b'"\xff"')])
def test_data_that_is_no_json_is_refused(data: str) -> None:
    with pytest.raises(UsageError, match="not JSON"):
        one(data)


def test_keys_and_headers_are_bytes_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[KafkaRecord] = []
    monkeypatch.setattr(kafka_records, "publish", lambda options, records: len(sent.extend(records) or sent))
    monkeypatch.setattr(publish, "kafka_options", lambda connection: {})
    odd = os.fsdecode(b"\xff")
    place = type("Place", (), {"topic": "t", "connection": None})()
    assert publish._to_kafka(place, [one("{}"), None], "binary", odd, {"h": odd}) == 2
    assert [record.key for record in sent] == [b"\xff", b"\xff"]
    assert [record.headers[-1] for record in sent] == [("h", b"\xff")] * 2


def test_pulsar_takes_text_only() -> None:
    with pytest.raises(UsageError, match="UTF-8"):
        publish._to_pulsar(None, [], "binary", os.fsdecode(b"\xff"), {})  # type: ignore[arg-type]
