"""How long a start reads the progress topic: marks of other sources that nobody needs any more.

    .venv/bin/python bench/progress.py

Each mark is a transaction of its own, as tasks write them; nothing is compacted yet. Cold is a client that
has seen nothing, warm one that goes on where it was, as a task does that has the position of its driver.
"""

from __future__ import annotations

import statistics
import time

from penstock.brokers.kafka_offsets import KafkaOffsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.embedded.kafka import Kafka
from penstock.pipeline.delivery.progress import PARTITION, TOPIC, ProgressKey, Snapshot, mark_value
from penstock.pipeline.delivery.progress_reader import read_progress
from penstock.pipeline.delivery.progress_topic import require_progress_topic
from penstock.pipeline.evaluators.kernel.batch_builder import numbered, record_bytes
from penstock.wire.kafka.batch_body import BatchBody
from table import Report

MOST_SECONDS = 1.0
TEXT = '{"start":0,"counts":{"n_in":1000,"n_out":900,"n_unmatched":100},"plan":"0123456789ab"}'


def fill(cluster: Cluster, marks: int) -> None:
    producer = TransactionalProducer(cluster, "bench")
    for number in range(marks):
        key = ProgressKey(f"penstock.kafka-orders.{number:012x}", "c" * 22, "orders", "t" * 22)
        record = numbered(record_bytes(key.of(0), mark_value(number, TEXT), ()), 0)
        producer.begin()
        producer.send(TOPIC, PARTITION, BatchBody(record, 1, 0, 0))
        producer.commit()
    producer.close()


def seconds(cluster: Cluster, key: ProgressKey, seen: Snapshot) -> tuple[float, Snapshot]:
    began = time.perf_counter()
    found = read_progress(cluster, key, seen, decided=None)
    return time.perf_counter() - began, found


def main() -> None:
    report = Report.from_arguments("A start that reads stale marks", ("client", "seconds"))
    marks, rounds = (2_000, 3) if report.quick else (10_000, 5)
    key = ProgressKey("own", "c" * 22, "orders", "t" * 22)
    taken: dict[str, list[float]] = {"cold": [], "warm": []}
    with Kafka() as kafka:
        require_progress_topic(KafkaOffsets(kafka.client_options()), "kafka")
        settings = Settings.of({"bootstrap.servers": kafka.bootstrap})
        with Cluster(settings) as cluster:
            fill(cluster, marks)
            for _ in range(rounds):
                with Cluster(settings) as fresh:
                    took, seen = seconds(fresh, key, Snapshot())
                    taken["cold"].append(took)
                    taken["warm"].append(seconds(fresh, key, seen)[0])
    for name, values in taken.items():
        middle = statistics.median(values)
        report.row(name, f"{middle:.3f}")
        report.figure(f"{name}, {marks} marks, s", middle)
        report.goal(f"{name}, {marks} marks, s", middle, MOST_SECONDS, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
