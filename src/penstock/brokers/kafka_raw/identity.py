"""Who a producer is to the cluster (InitProducerId): an id and an epoch, which brokers tell repeats by."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import INIT_PRODUCER_ID, RENEW_PRODUCER_ID
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.coordinator import Coordinator
from penstock.brokers.kafka_raw.refusal import check
from penstock.wire.kafka.primitives import CLASSIC, COMPACT

__all__ = ["Identity", "new_identity", "renewed", "take_over"]


@dataclass(frozen=True, slots=True)
class Identity:
    """The id and epoch of a producer, and the transactional id that it got them for."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None


def new_identity(cluster: Cluster) -> Identity:
    """Get an id that nobody has, for an idempotent producer without transactions."""
    body = (CLASSIC.string(None), struct.pack(">i", -1))
    return cluster.retrying(lambda: cluster.ask_any(INIT_PRODUCER_ID, body, _read))


def take_over(coordinator: Coordinator, transactional_id: str, timeout: float) -> Identity:
    """Become the only producer of a transactional id: the last one is fenced, its transaction aborted."""
    body = (CLASSIC.string(transactional_id), struct.pack(">i", int(timeout * 1000)))
    made = coordinator.ask(INIT_PRODUCER_ID, body, _read)
    return Identity(made.producer_id, made.epoch, transactional_id)


def renewed(coordinator: Coordinator, identity: Identity, timeout: float) -> Identity:
    """Get the next epoch for a transactional id that one has (KIP-360): sequences begin anew.

    Raises ProducerFenced if somebody else has taken the id over meanwhile.
    """
    numbers = struct.pack(">iqh", int(timeout * 1000), identity.producer_id, identity.epoch)
    body = (COMPACT.string(identity.transactional_id), numbers, COMPACT.tags)
    made = coordinator.ask(RENEW_PRODUCER_ID, body, _read)
    return Identity(made.producer_id, made.epoch, identity.transactional_id)


def _read(answer: Answer) -> Identity:
    check(answer.int16(), "the cluster gives no producer id")
    return Identity(answer.int64(), answer.int16())
