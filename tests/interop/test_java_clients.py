"""Kafka's own Java tools, of 4.3.1 and of 3.9.2, on `penstock gateway`: each reads what the other wrote."""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.embedded.artifact import parse_lock
from penstock.embedded.artifacts import ensure_artifacts
from penstock.embedded.kafka_tools import KAFKA_TOOLS, java_command, tool_command

pytestmark = [pytest.mark.server, pytest.mark.slow]

Run = Callable[..., subprocess.CompletedProcess[str]]

OLD_LOCK = Path(__file__).parent / "kafka-tools-3.lock"
# In 3.9 the producer was still written in Scala.
OLD_CLASSES = {"console-producer": "kafka.tools.ConsoleProducer"}


@dataclass(frozen=True)
class Java:
    """The tools of one release, run to their end."""

    release: str
    command: Callable[[str, Sequence[str]], list[str]]
    bootstrap: str
    run: Run

    def __call__(self, tool: str, *arguments: str, **how: Any) -> str:
        words = self.command(tool, ["--bootstrap-server", self.bootstrap, *arguments])
        done = self.run(words, **how)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def read(self, topic: str, count: int, *arguments: str, partition: int = 0) -> list[str]:
        """Read from the beginning as the documentation says."""
        place = ["--partition", str(partition), "--offset", "earliest"]
        bounds = ["--max-messages", str(count), "--timeout-ms", "30000"]
        words = ["--topic", topic, *place, *bounds, *arguments]
        return self("console-consumer", *words, records=True).splitlines()


def old_command(tool: str, arguments: Sequence[str]) -> list[str]:
    jars = ensure_artifacts(parse_lock(OLD_LOCK.read_text(encoding="utf-8"), origin=OLD_LOCK.name))
    main = OLD_CLASSES.get(tool, KAFKA_TOOLS[tool])
    return java_command(os.pathsep.join(map(str, jars)), main, arguments)


COMMANDS = {"4.3.1": tool_command, "3.9.2": old_command}


@pytest.fixture(params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.soak)])
def java(request: pytest.FixtureRequest, process: Any, run_tool: Run) -> Java:
    return Java(request.param, COMMANDS[request.param], process.bootstrap, run_tool)


@pytest.fixture
def other(java: Java) -> Java:
    """The tools of the other release."""
    release = next(each for each in COMMANDS if each != java.release)
    return Java(release, COMMANDS[release], java.bootstrap, java.run)


@pytest.fixture
def fresh() -> str:
    return f"java-{uuid.uuid4().hex[:8]}"


def test_producer_and_consumer_in_their_default_settings(java: Java, other: Java, fresh: str) -> None:
    """The producer is idempotent by default; the topic is made when it is asked for."""
    assert java("console-consumer", "--version").split()[0] == java.release
    lines = [f"line {number}" for number in range(200)]
    java("console-producer", "--topic", fresh, given="\n".join(lines) + "\n")
    assert java.read(fresh, len(lines)) == lines
    assert other.read(fresh, len(lines)) == lines


def test_keys_headers_nulls_and_timestamps(java: Java, other: Java, fresh: str) -> None:
    option = "--property" if java.release.startswith("3") else "--reader-property"
    parse = ["parse.key=true", "parse.headers=true", "null.marker=NULL", "key.separator=|"]
    parse += ["headers.delimiter=|"]
    given = "a:1,b:2|key|value\na:3|NULL|no key\nb:NULL|gone|NULL\n"
    properties = [word for each in parse for word in (option, each)]
    java("console-producer", "--topic", fresh, *properties, given=given)
    for reader in (java, other):
        option = "--property" if reader.release.startswith("3") else "--formatter-property"
        shown = ["print.key=true", "print.headers=true", "print.offset=true", "key.separator=|"]
        shown += ["headers.separator=,", "null.literal=NULL"]
        found = reader.read(fresh, 3, *(word for each in shown for word in (option, each)))
        assert found == [
            "Offset:0|a:1,b:2|key|value",
            "Offset:1|a:3|NULL|no key",
            "Offset:2|b:NULL|gone|NULL",
        ]


@pytest.mark.parametrize(
    ("release", "codec"), [("4.3.1", "gzip"), ("3.9.2", "snappy"), ("3.9.2", "lz4"), ("4.3.1", "zstd")]
)
def test_compressed(process: Any, run_tool: Run, fresh: str, release: str, codec: str) -> None:
    java = Java(release, COMMANDS[release], process.bootstrap, run_tool)
    lines = [f"{number} {'x' * 200}" for number in range(300)]
    java("console-producer", "--topic", fresh, "--compression-codec", codec, given="\n".join(lines) + "\n")
    assert java.read(fresh, len(lines)) == lines


def test_the_tools_of_performance(java: Java, fresh: str) -> None:
    java("topics", "--create", "--topic", fresh, "--partitions", "2")
    size = ["--num-records", "20000", "--record-size", "100", "--throughput", "-1"]
    options = ["--producer-props", f"bootstrap.servers={java.bootstrap}", "acks=all", "linger.ms=5"]
    words = java.command("producer-perf-test", ["--topic", fresh, *size, *options])
    done = java.run(words, within=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^20000 records sent", done.stdout, re.MULTILINE), done.stdout
    told = java("get-offsets", "--topic", fresh).split()
    ends = [int(line.rsplit(":", 1)[1]) for line in told]
    assert len(ends) == 2
    assert sum(ends) == 20_000
    largest = max(range(2), key=ends.__getitem__)
    assert len(java.read(fresh, ends[largest], partition=largest)) == ends[largest]


def test_a_consumer_group(java: Java, other: Java, fresh: str) -> None:
    """Without a partition the consumer joins a group, and goes on where the group has stopped."""
    lines = [f"line {number}" for number in range(40)]
    java("console-producer", "--topic", fresh, given="\n".join(lines) + "\n")
    group = ["--topic", fresh, "--group", f"group-{fresh}", "--timeout-ms", "30000"]
    first = java("console-consumer", *group, "--from-beginning", "--max-messages", "15").splitlines()
    rest = other("console-consumer", *group, "--max-messages", "25").splitlines()
    assert first + rest == lines
    told = java("consumer-groups", "--describe", "--group", f"group-{fresh}")
    # Group, topic, partition, committed offset, end, lag.
    assert re.search(rf"group-{fresh}\s+{fresh}\s+0\s+40\s+40\s+0\b", told), told
    size = ["--topic", fresh, "--group", f"perf-{fresh}", "--timeout", "30000"]
    count = "--messages" if java.release.startswith("3") else "--num-records"
    java("console-producer", "--topic", fresh, given="more\n" * 10)
    measured = java("consumer-perf-test", *size, count, "50")
    assert measured.splitlines()[-1].split(", ")[4] == "50", measured


def test_the_tools_of_an_administrator(java: Java, fresh: str, tmp_path: Path) -> None:
    java("topics", "--create", "--topic", fresh, "--partitions", "2", "--config", "retention.ms=3600000")
    assert fresh in java("topics", "--list").split()
    told = java("topics", "--describe", "--topic", fresh)
    assert re.search(r"PartitionCount: 2\b.*retention\.ms=3600000", told), told
    java("topics", "--alter", "--topic", fresh, "--partitions", "3")
    assert "PartitionCount: 3" in java("topics", "--describe", "--topic", fresh)
    java("console-producer", "--topic", fresh, given="one\ntwo\n")
    everything = tmp_path / "everything.json"
    rows = ",".join(f'{{"topic": "{fresh}", "partition": {n}, "offset": -1}}' for n in range(3))
    everything.write_text(f'{{"partitions": [{rows}], "version": 1}}')
    told = java("delete-records", "--offset-json-file", str(everything))
    assert sum(map(int, re.findall(r"low_watermark: (\d+)", told))) == 2, told
    java("topics", "--delete", "--topic", fresh)
    assert fresh not in java("topics", "--list").split()


def test_what_is_served_is_told(process: Any, run_tool: Run) -> None:
    from penstock.gateway.dispatch import advertised
    from penstock.wire.kafka import APIS

    java = Java("4.3.1", tool_command, process.bootstrap, run_tool)
    told = dict(re.findall(r"^\s+(\w+)\((\d+)\): [\d]", java("broker-api-versions"), re.MULTILINE))
    assert {(name, int(key)) for name, key in told.items()} == {
        (APIS[key].name, key) for key, _, _ in advertised()
    }
