"""What `penstock tail` shows of records that any client may have written; no server is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.brokers.start import Start, StartKind
from penstock.cli import tail
from penstock.record import KafkaRecord, PulsarMessage

ATTRIBUTES = (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/s"), ("ce_type", b"t"))


def record(value: bytes = b"{}", *, timestamp: int = 1, kind: bytes = b"application/json") -> KafkaRecord:
    headers = (*ATTRIBUTES, ("content-type", kind))
    return KafkaRecord(value=value, headers=headers, timestamp=timestamp, topic="t", partition=0, offset=7)


@pytest.mark.parametrize("timestamp", [10**18, 2**63 - 1, -(10**18), -(2**63)])
def test_a_time_that_is_no_date_is_shown_as_its_number(timestamp: int) -> None:
    shown = tail._of_record(record(timestamp=timestamp))
    assert tail._line(shown).startswith(f"{timestamp}  t/0/7")
    assert tail._object(shown)["time"] == str(timestamp)


def test_an_event_time_of_pulsar_is_what_its_producer_says() -> None:
    message = PulsarMessage(payload=b"", event_time=2**64 - 1, topic="persistent://a/b/t", message_id="1:2")
    assert str(2**64 - 1) in tail._line(tail._of_message(message))


@pytest.mark.parametrize("value", [b"1" * 10_000, b'{"n": -' + b"9" * 5_000 + b"}"])
def test_a_number_that_python_does_not_make_is_shown_as_base64(value: bytes) -> None:
    written: Any = json.loads(json.dumps(tail._object(tail._of_record(record(value)))))
    assert written["event"]["type"] == "t"
    assert "data_base64" in written["event"] and "data" not in written["event"]


def test_the_last_of_pulsar_are_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_exc: object) -> None:
            pass

    async def follow(*_args: object, **_options: object) -> Any:
        for number in range(5):
            yield PulsarMessage(payload=b"", topic="persistent://a/b/t", message_id=f"1:{number}")

    monkeypatch.setattr(tail, "pulsar_client", lambda connection: Client())
    monkeypatch.setattr("penstock.brokers.pulsar_messages.follow", follow)
    shown: list[str] = []

    def show(item: tail.Shown) -> bool:
        shown.append(item.place)
        return len(shown) >= 2

    place: Any = type("Place", (), {"connection": None, "topic": "t"})
    tail._pulsar(place, Start(StartKind.LAST, 4), True, show)
    assert shown == ["t 1:1", "t 1:2"]
