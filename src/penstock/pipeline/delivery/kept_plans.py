"""Where a loop keeps what its program was made of, before it writes its first record.

After an edit what is open is finished by the program that began it; so that is kept where the marks are, or
beside them:

| the source writes to | it is kept in |
|---|---|
| other Kafka clusters | `__penstock_progress` of each |
| Pulsar, and at most the Kafka that is read | `__penstock_progress` of the Kafka that is read |
| Pulsar alone, from Pulsar | a topic of Pulsar beside those of the marks |

What is found may be anything that somebody has written there: who takes it looks at what it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.errors import KafkaRefused
from penstock.pipeline.delivery.progress import PLAN, TOPIC, Snapshot
from penstock.pipeline.delivery.progress_reader import read_progress
from penstock.pipeline.delivery.source_cluster import SourceCluster
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["kept_plans"]


def kept_plans(work: WorkerSpec, cluster: Cluster) -> Iterator[bytes]:
    """Give what is kept of earlier programs of a source, wherever it may be.

    The marks were read before, and nobody else can move them any more. Each place is asked only when it is
    its turn.
    """
    if isinstance(cluster, SourceCluster):
        yield from (seen.plan for seen in cluster.seen.values() if seen.plan is not None)
    if work.progress is not None:
        assert isinstance(cluster, SourceCluster)
        # Who has no such topics loads no client of Pulsar.
        from penstock.pipeline.delivery.pulsar.progress import read_marks

        pulsar = cluster.pulsar(work.progress.sink)
        found = read_marks(pulsar, work.progress, work.progress_key, (PLAN,))
        yield from (mark.metadata.encode() for mark in found.values())
    if work.pulsar is None:
        yield from _beside_the_source(work, cluster)


def _beside_the_source(work: WorkerSpec, cluster: Cluster) -> Iterator[bytes]:
    """Give what is kept on the cluster that is read; nothing if it has no such topic."""
    cluster.try_refresh([TOPIC])
    try:
        plan = read_progress(cluster, work.progress_key, Snapshot(), decided=None).plan
    except KafkaRefused as exc:
        if exc.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            raise
        return
    if plan is not None:
        yield plan
