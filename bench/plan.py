"""A plan over 1 000 topics of the embedded Kafka: reading the contract, reading the cluster, comparing.

Four states: no topic is there, all are as declared, a tenth has drifted, and the whole command with its
start-up. Every topic declares partitions and three settings; settings are read in chunks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.contract import Contract, load
from penstock.contract.actual import read_actual
from penstock.contract.apply import execute
from penstock.contract.clusters import ContractClusters
from penstock.contract.desired import desired_state
from penstock.contract.plan import Plan, make_plan
from penstock.embedded.kafka import Kafka
from table import Report, alternate

TOPICS = 1_000
GOAL_SECONDS = 5.0

HEAD = """\
asyncapi: 3.0.0
info: {title: generated, version: 1.0.0}
servers:
  kafka:
    host: @
    protocol: kafka
channels:
"""
CHANNEL = """\
  channel@:
    address: topic.@
    bindings:
      kafka:
        partitions: 1
        replicas: 1
        topicConfiguration:
          cleanup.policy: [delete]
          retention.ms: 604800000
          max.message.bytes: 2000000
"""


def planned(contract: Contract) -> Plan:
    """Look at the cluster with new connections, and compare."""
    desired = desired_state(contract)
    with ContractClusters(contract) as clusters:
        return make_plan(desired, read_actual(desired, clusters))


def measure(report: Report, name: str, work: Callable[[], object], expected: int | None = None) -> float:
    rounds = 2 if report.quick else 7
    timing = alternate({name: lambda: work}, rounds, clock=perf_counter)[name]
    report.row(name, f"{timing.median:.2f} s", f"{timing.best:.2f} s", "" if expected is None else expected)
    report.figure(f"{name}, seconds", timing.median)
    return timing.median


def check(contract: Contract, steps: int) -> Callable[[], None]:
    def work() -> None:
        found = len(planned(contract).steps)
        if found != steps:
            sys.exit(f"the plan has {found} steps, it should have {steps}")

    return work


def apply_all(report: Report, contract: Contract) -> None:
    """Create the topics: step by step as `apply` does, or all at once if time matters more."""
    if report.quick:
        from confluent_kafka.admin import AdminClient, NewTopic

        wanted = desired_state(contract).kafka_topics
        topics = [NewTopic(w.topic, 1, 1, config=dict(w.settings)) for w in wanted]
        client = AdminClient({"bootstrap.servers": contract.servers["kafka"].host})
        for future in client.create_topics(topics, operation_timeout=60).values():
            future.result(60)
        return
    started = perf_counter()
    with ContractClusters(contract) as clusters:
        outcome = execute(planned(contract).accepted(), clusters)
    if outcome.error is not None:
        sys.exit(f"apply failed: {outcome.error}")
    spent = perf_counter() - started
    report.row(f"apply {TOPICS} steps", f"{spent:.2f} s", "", TOPICS)
    report.figure(f"apply {TOPICS} steps, seconds", spent)


def command(folder: Path, path: Path) -> Callable[[], None]:
    """The whole command as a process, as a schedule would run it."""
    words = [str(Path(sys.executable).with_name("penstock")), "-f", str(path), "drift", "-o", "json"]

    def work() -> None:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 3 or len(json.loads(done.stdout)["steps"]) != TOPICS // 10:
            sys.exit(f"drift failed:\n{done.stderr[-2000:]}")

    return work


def main() -> None:
    report = Report.from_arguments(
        f"Plan over {TOPICS} topics of the embedded Kafka", ("what", "median", "best", "steps")
    )
    with tempfile.TemporaryDirectory() as name, Kafka() as kafka:
        folder = Path(name)
        (folder / ".git").mkdir()
        path = folder / "asyncapi.yaml"
        channels = "".join(CHANNEL.replace("@", f"{n:04d}") for n in range(TOPICS))
        path.write_text(HEAD.replace("@", kafka.bootstrap) + channels)
        measure(report, f"load {TOPICS} channels", lambda: load(path))
        contract = load(path)
        worst = measure(report, "plan, no topic is there", check(contract, TOPICS), TOPICS)
        apply_all(report, contract)
        worst = max(worst, measure(report, "plan, all as declared", check(contract, 0), 0))
        admin = KafkaAdmin(kafka.client_options())
        for number in range(0, TOPICS, 10):
            admin.change_settings(f"topic.{number:04d}", {"retention.ms": "1234567"})
        worst = max(
            worst, measure(report, "plan, a tenth has drifted", check(contract, TOPICS // 10), TOPICS // 10)
        )
        os.environ.pop("PENSTOCK_CONTEXT", None)
        worst = max(
            worst, measure(report, "penstock drift, start-up and load included", command(folder, path))
        )
    report.goal(f"plan over {TOPICS} topics, seconds", worst, GOAL_SECONDS, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
