"""How long a start reads the progress topic: marks of other sources that nobody needs any more.

    .venv/bin/python bench/progress.py --marks 10000

Each mark is a transaction of its own, as tasks write them; nothing is compacted yet. Cold is a client that
has seen nothing, warm one that goes on where it was, as a task does that has the position of its driver.
"""

from __future__ import annotations

import argparse
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--marks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    key = ProgressKey("own", "c" * 22, "orders", "t" * 22)
    with Kafka() as kafka:
        require_progress_topic(KafkaOffsets(kafka.client_options()), "kafka")
        settings = Settings.of({"bootstrap.servers": kafka.bootstrap})
        with Cluster(settings) as cluster:
            fill(cluster, options.marks)
            cold, warm = [], []
            for _ in range(options.rounds):
                with Cluster(settings) as fresh:
                    took, seen = seconds(fresh, key, Snapshot())
                    cold.append(took)
                    warm.append(seconds(fresh, key, seen)[0])
    cold_seconds, warm_seconds = statistics.median(cold), statistics.median(warm)
    print(f"{options.marks} stale marks: cold {cold_seconds:.3f} s, warm {warm_seconds:.3f} s")


if __name__ == "__main__":
    main()
