"""Load and validate a contract of 300 channels, beside the official AsyncAPI parser under node.

Both run as a whole process, start-up included, in alternating rounds; the figures are medians. The
document is generated; Kafka bindings, registry settings, references and examples are in it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from penstock.contract import parser, validate
from table import Report, alternate

PEER = Path(__file__).parent / "peers" / "asyncapi"
CHANNELS = 300
LINES = 10_000


def document(channels: int) -> str:
    """Write a contract with that many channels, operations, messages and schemas."""
    head = """\
asyncapi: 3.0.0
info: {title: generated, version: 1.0.0}
defaultContentType: application/json
servers:
  prod:
    host: kafka.example:9092
    protocol: kafka
    bindings:
      kafka:
        schemaRegistryUrl: https://registry.example
        schemaRegistryVendor: confluent
"""
    sections = {
        "channels": CHANNEL,
        "operations": OPERATION,
        "components:\n  messages": MESSAGE,
        "  schemas": SCHEMA,
    }
    body = (
        f"{name}:\n" + "".join(part.replace("@", str(n)) for n in range(channels))
        for name, part in sections.items()
    )
    return head + "".join(body)


CHANNEL = """\
  channel@:
    address: topic.@
    messages:
      message@:
        $ref: '#/components/messages/message@'
    bindings:
      kafka:
        partitions: 12
        replicas: 3
        topicConfiguration:
          cleanup.policy: [delete]
          retention.ms: 604800000
"""
OPERATION = """\
  on@:
    action: receive
    channel:
      $ref: '#/channels/channel@'
    messages:
      - $ref: '#/channels/channel@/messages/message@'
    bindings:
      kafka:
        groupId:
          type: string
          enum: [group-@]
"""
MESSAGE = """\
    message@:
      name: message@
      headers:
        type: object
        properties:
          ce_type:
            type: string
            const: com.example.message@
      payload:
        $ref: '#/components/schemas/schema@'
      bindings:
        kafka:
          key: {type: string}
          schemaIdLocation: payload
          schemaIdPayloadEncoding: '4'
      examples:
        - payload: {id: a, total: 1, items: [{sku: x, count: 2}]}
"""
SCHEMA = """\
    schema@:
      type: object
      required: [id, total]
      properties:
        id:
          type: string
        total:
          type: number
          minimum: 0
        items:
          type: array
          items:
            type: object
            properties:
              sku: {type: string}
              count: {type: integer}
"""


def process(command: list[str]) -> Callable[[], Callable[[], object]]:
    """A whole process as one side of the comparison."""

    def work() -> None:
        done = subprocess.run(command, cwd=PEER, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    return lambda: work


def peer_is_there() -> bool:
    """Install the peer if npm is there; without it our own figures are still measured."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return False
    if not (PEER / "node_modules").is_dir():
        subprocess.run(
            ["npm", "install", "--no-package-lock", "--no-audit", "--silent"], cwd=PEER, check=False
        )
    return (PEER / "node_modules" / "@asyncapi" / "parser").is_dir()


def compare(report: Report) -> None:
    """Time `penstock validate` and the parser under node."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "asyncapi.yaml"
        path.write_text(document(CHANNELS))
        ours = [str(Path(sys.executable).with_name("penstock")), "validate", str(path)]
        sides = {"penstock": process(ours)}
        if peer_is_there():
            sides["parser-js"] = process(["node", "parse.mjs", str(path)])
        times = alternate(sides, 3 if report.quick else 7, clock=perf_counter)
    for name, timing in times.items():
        report.row(f"validate {CHANNELS} channels, {name}", f"{timing.median:.2f} s", f"{timing.best:.2f} s")
        report.figure(f"{name} validate seconds", timing.median)
    if "parser-js" in times:
        ratio = times["parser-js"].median / times["penstock"].median
        report.figure("parser-js over penstock", ratio)
        report.goal("validate, times faster than parser-js", ratio, 3.0)


def load_long(report: Report) -> None:
    """Time reading and checking in this process, with each YAML parser that is installed."""
    text = document(next(n for n in range(1, 1_000) if document(n).count("\n") >= LINES)).encode()
    engines = {"as installed": parser._engine, "ruamel.yaml": parser._ruamel}
    for name, engine in engines.items():
        timing = alternate({name: lambda engine=engine: lambda: check(text, engine)}, 3, clock=perf_counter)[
            name
        ]
        report.row(f"load {LINES} lines, {name}", f"{timing.median:.2f} s", f"{timing.best:.2f} s")
        report.figure(f"load seconds, {name}", timing.median)
        report.goal(f"load {LINES} lines, {name}, seconds", timing.median, 4.0, at_least=False)


def check(raw: bytes, engine: Any) -> None:
    installed, parser._engine = parser._engine, engine
    try:
        result = validate("asyncapi.yaml", raw=raw)
    finally:
        parser._engine = installed
    if result.findings:
        sys.exit(f"the generated document has findings: {result.findings[0]}")


def main() -> None:
    title = "Contract: whole processes beside the official AsyncAPI parser, and reading alone"
    report = Report.from_arguments(title, ("what", "median", "best"))
    compare(report)
    load_long(report)
    report.finish()


if __name__ == "__main__":
    main()
