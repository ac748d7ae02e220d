"""Kafka's own tools of 4.3.1 on the gateway: consume as a group, list, describe, reset and delete groups."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from penstock.embedded.kafka_tools import tool_command

pytestmark = [pytest.mark.server, pytest.mark.slow]

Tool = Callable[..., str]


@pytest.fixture
def tool(process: Any, run_tool: Callable[..., subprocess.CompletedProcess[str]]) -> Tool:
    def run(name: str, *arguments: str, given: str = "") -> str:
        words = tool_command(name, ["--bootstrap-server", process.bootstrap, *arguments])
        done = run_tool(words, given=given, records=name == "console-consumer")
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    return run


def test_a_group_is_consumed_described_reset_and_deleted(tool: Tool) -> None:
    topic, group = f"java-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    lines = [f"line {number}" for number in range(50)]
    tool("console-producer", "--topic", topic, given="\n".join(lines) + "\n")

    def consume(count: int) -> list[str]:
        words = ["--topic", topic, "--group", group, "--from-beginning"]
        return tool(
            "console-consumer", *words, "--max-messages", str(count), "--timeout-ms", "30000"
        ).splitlines()

    def groups(*words: str) -> list[list[str]]:
        return [line.split() for line in tool("consumer-groups", *words).splitlines() if line.strip()]

    assert consume(20) == lines[:20]
    rows = groups("--describe", "--group", group)
    [row] = [row for row in rows if row[:3] == [group, topic, "0"]]
    assert row[3:6] == ["20", "50", "30"], "committed, end and lag"
    assert [group, "Empty"] in [row[:1] + row[-1:] for row in groups("--list", "--state")]
    assert consume(30) == lines[20:]
    reset = ["--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "45", "--execute"]
    assert [group, topic, "0", "45"] in groups(*reset)
    assert consume(5) == lines[45:]
    groups("--delete", "--group", group)
    assert [group] not in groups("--list")
