"""An outage is told when it begins and when it ends, with its duration, and seldom in between."""

from __future__ import annotations

import logging

import pytest

from penstock.brokers.outage import OutageLog


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
