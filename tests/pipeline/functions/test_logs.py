"""The log of a function: one line each, with the id of its event, at the level that the event wants."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.functions.logs import MOST_LINES
from penstock.pipeline.ports import Routed


def test_every_line_carries_its_event(
    invoker: Callable[..., FunctionInvoker], routed: Callable[..., Routed], capfd: pytest.CaptureFixture[str]
) -> None:
    invoker("prints")([routed(1), routed(2, severitytext="DEBUG"), routed(3, severitytext="error")])
    lines = capfd.readouterr().err.splitlines()
    assert lines.count("raw") == 3
    told = [json.loads(line) for line in lines if line != "raw"]
    assert [(line["event-id"], line["logger"], line["message"]) for line in told] == [
        (["e1", "e2", "e3"], "shop", "before"),
        ("e1", "stdout", "printed"),
        ("e1", "shop", "looking"),
        ("e2", "stdout", "printed"),
        ("e2", "shop", "looking closely"),
        ("e2", "shop", "looking"),
    ]
    assert {line["route"] for line in told} == {"r"}


def test_a_flood_is_cut_off(
    invoker: Callable[..., FunctionInvoker], routed: Callable[..., Routed], capfd: pytest.CaptureFixture[str]
) -> None:
    invoker("floods_the_log", batch=1)([routed(1), routed(2)])
    assert len(capfd.readouterr().err.splitlines()) == 2 * MOST_LINES
