"""`penstock apply`: what it says when a step fails, and when its progress cannot be written down."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.apply import SavedPlan, _execute, _failure
from penstock.contract.apply import Outcome
from penstock.contract.memory import MemoryClusters
from penstock.contract.plan import Plan
from penstock.contract.plan_file import PlanFile, load_plan, save_plan
from penstock.contract.steps import CreateTopic
from penstock.errors import AccessDenied, ClusterError, Unreachable

GOES_ON = "the same command goes on from here"


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (Unreachable("gone", next="start it"), f"start it; {GOES_ON}"),
        (AccessDenied("no", next="grant it"), f"grant it; {GOES_ON}"),
        (ClusterError("refused", next="raise the retention"), "raise the retention"),
        (ClusterError("refused"), "correct it in the contract, then penstock plan"),
    ],
    ids=["away", "denied", "refused", "refused without advice"],
)
def test_a_repeat_is_advised_only_where_it_can_help(error: ClusterError, advice: str) -> None:
    failed = _failure(Outcome(done=(), left=(step("a"),), error=error), error)
    assert failed.next == advice
    assert failed.what == f"stopped at step 1 of 1: {error.what}"


def step(topic: str) -> CreateTopic:
    return CreateTopic(server="kafka", topic=topic, partitions=1, replicas=1, settings=())


def test_a_full_disk_neither_stops_nor_hides_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = (step("a"), step("b"))
    plan: Any = Plan(title="t", version="1", document="d", actual="a", steps=steps)
    path = tmp_path / "x.plan"
    save_plan(path, PlanFile(contract="x", plan=plan))
    clusters = MemoryClusters()
    situation: Any = SimpleNamespace(clusters=clusters)
    synced = []

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) > 2:  # the file and its folder, when the apply begins
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    outcome = _execute(steps, situation, SavedPlan(path, load_plan(path)))
    assert outcome.done == steps
    assert set(clusters.kafka("kafka").cluster().topics) == {"a", "b"}
    said = capsys.readouterr().err
    assert "1 step is done, and cannot write" in said
    assert "2 steps are done, and cannot write" in said
    assert load_plan(path).started
    assert [each.name for each in tmp_path.iterdir()] == ["x.plan"]
