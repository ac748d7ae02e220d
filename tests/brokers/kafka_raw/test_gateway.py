"""The raw client on our own gateway: all but transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.group_offsets import GroupOffset, GroupOffsets
from penstock.brokers.kafka_raw.producer import Producer
from penstock.brokers.kafka_raw.topic_offsets import earliest, latest
from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.embedded.gateway import Gateway
from penstock.embedded.pulsar import Pulsar
from penstock.errors import KafkaRefused
from penstock.wire.kafka.batch_body import BatchBody

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def gateway(pulsar: Pulsar) -> Iterator[Gateway]:
    # A cluster of its own: other tests run gateways on the same Pulsar.
    with Gateway(pulsar, options=("--groups-namespace", "public/__kafka_raw")) as server:
        yield server


def test_records_and_offsets_travel(
    gateway: Gateway,
    open_cluster: Callable[..., Cluster],
    new_topic: Callable[..., str],
    body_of: Callable[..., BatchBody],
    keep: Callable[[Any], Any],
    read_all: Callable[..., dict[int, list[bytes]]],
) -> None:
    topic = new_topic(gateway, 2)
    cluster = open_cluster(gateway)
    assert cluster.partitions(topic) == 2
    values: dict[int, list[bytes]] = {0: [], 1: []}
    for compression in ("none", "zstd"):
        producer = keep(Producer(cluster, compression=compression))
        for number in range(20):
            batch = [b"%d-%d" % (number, n) for n in range(10)]
            values[number % 2] += batch
            producer.send(topic, number % 2, body_of(*batch))
        producer.flush()
    assert read_all(cluster, topic) == values
    assert (earliest(cluster, topic), latest(cluster, topic)) == ({0: 0, 1: 0}, {0: 200, 1: 200})
    group = GroupOffsets(cluster, f"g-{topic}")
    group.commit({(topic, 1): GroupOffset(3, "text")})
    assert group.committed(topic)[1].offset == 3


def test_transactions_are_refused_by_name(gateway: Gateway, open_cluster: Callable[..., Cluster]) -> None:
    cluster = open_cluster(gateway)
    assert not cluster.transactional
    with pytest.raises(KafkaRefused, match="no transactions"):
        TransactionalProducer(cluster, "id")
