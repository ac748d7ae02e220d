"""An outage is told when it begins and when it ends, with its duration, and seldom in between."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.brokers import kafka_records
from penstock.brokers.outage import OutageLog
from penstock.errors import Unreachable


def test_an_outage_is_a_few_lines_however_often_it_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    outage = OutageLog(logging.getLogger("test"), "kafka", remind=300.0, clock=lambda: now)
    with caplog.at_level(logging.INFO):
        outage.worked()
        for _ in range(700):
            outage.failed("connection refused")
            now += 1.0
        assert outage.seconds == 700.0
        outage.worked()
        outage.worked()
        outage.failed("reset")
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "kafka: lost, tried again until it is back: connection refused"),
        ("WARNING", "kafka: still away after 300 s: connection refused"),
        ("WARNING", "kafka: still away after 600 s: connection refused"),
        ("INFO", "kafka: back after 700.0 s"),
        ("WARNING", "kafka: lost, tried again until it is back: reset"),
    ]


def test_work_that_failed_is_not_back_because_something_answers(caplog: pytest.LogCaptureFixture) -> None:
    """A source answers while the target of its loop takes nothing: that is one outage."""
    outage = OutageLog(logging.getLogger("test"), "source", clock=lambda: 0.0)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            outage.failed("full", is_work=True)
            outage.worked()
        assert outage.reason == "full"
        outage.worked(is_work=True)
        outage.worked(is_work=True)
        outage.failed("reset")
        outage.worked(is_work=True)
        assert outage.reason == "reset"
        outage.worked()
    assert [each.getMessage() for each in caplog.records] == [
        "source: lost, tried again until it is back: full",
        "source: back after 0.0 s",
        "source: lost, tried again until it is back: reset",
        "source: back after 0.0 s",
    ]


class Contact:
    """A consumer without messages, whose brokers go and come back as `answered` says."""

    name, address = "kafka", "127.0.0.1:9092"

    def __init__(self, answered: list[bool]) -> None:
        self.client = self
        self.is_away = True
        self._answered = answered

    def assign(self, places: object) -> None:
        return None

    def consume(self, count: int, timeout: float) -> list[object]:
        if not self._answered:
            raise KeyboardInterrupt
        return []

    def reason(self) -> str:
        return "connection refused"

    def answers(self, topic: str) -> bool:
        self.is_away = not self._answered.pop(0)
        return not self.is_away


def test_who_follows_a_topic_hears_of_an_outage(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_records, "_BETWEEN_PROBES", 0.0)
    contact: Any = Contact([False, False, False, True])
    with caplog.at_level(logging.INFO), pytest.raises(KeyboardInterrupt):
        list(kafka_records._endless(contact, "t", {0: 0}))
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]
    assert "kafka 127.0.0.1:9092: lost" in caplog.text


def test_an_error_with_another_next_step_is_told_at_once_and_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outage = OutageLog(logging.getLogger("test"), "kafka", clock=lambda: 0.0)
    away = Unreachable("it does not answer", next="start it")
    refused = Unreachable("it refuses the password", next="write the new one into the file")
    for reason in (away, away, refused, away, refused, refused):
        outage.failed(reason)
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "kafka: lost, tried again until it is back: it does not answer",
        "kafka: still away after 0 s: it refuses the password",
    ]
