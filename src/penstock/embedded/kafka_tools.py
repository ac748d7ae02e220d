"""Kafka's own command-line tools, run from locked jars: no installation of Kafka is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.embedded.artifacts import classpath
from penstock.embedded.home import penstock_home
from penstock.embedded.java import find_java
from penstock.errors import UsageError

__all__ = ["KAFKA_TOOLS", "java_command", "tool_command"]

_TOOLS: Final = "org.apache.kafka.tools"
KAFKA_TOOLS: Final[Mapping[str, str]] = {
    "broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "console-producer": f"{_TOOLS}.ConsoleProducer",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "topics": f"{_TOOLS}.TopicCommand",
}
"""The tools by the names of Kafka's scripts, without `kafka-` and `.sh`."""

_LOG4J2 = """<Configuration status="error">
  <Appenders>
    <Console name="stderr" target="SYSTEM_ERR"><PatternLayout pattern="%-5p %m (%c{1})%n"/></Console>
  </Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="stderr"/></Root></Loggers>
</Configuration>
"""


def tool_command(tool: str, arguments: Sequence[str]) -> list[str]:
    """Give the command line that runs a tool, fetching its jars if they are missing."""
    if tool not in KAFKA_TOOLS:
        raise UsageError(f"'{tool}' is no tool of Kafka", next=f"one of: {', '.join(KAFKA_TOOLS)}")
    return java_command(classpath("kafka-tools"), KAFKA_TOOLS[tool], arguments)


def java_command(jars: str, main: str, arguments: Sequence[str]) -> list[str]:
    """Give the command line of a small Java program that warns on stderr."""
    small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    logs = f"-Dlog4j2.configurationFile={_log_settings()}"
    return [str(find_java().executable), *small, logs, "-cp", jars, main, *arguments]


def _log_settings() -> Path:
    path = penstock_home() / "java" / "tools-log4j2.xml"
    if not path.exists() or path.read_text(encoding="utf-8") != _LOG4J2:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_LOG4J2, encoding="utf-8")
    return path
