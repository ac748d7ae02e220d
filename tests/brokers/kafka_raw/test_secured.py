"""The raw client on a Kafka that wants TLS and SCRAM, and knows what each user may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetcher import Fetcher, Wanted
from penstock.brokers.kafka_raw.producer import Producer
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.embedded.kafka import Kafka
from penstock.errors import ClusterError, KafkaRefused, PenstockError
from penstock.wire.kafka.batch_body import BatchBody

pytestmark = pytest.mark.server

Open = Callable[..., Cluster]
QUICK = {"deadline": 2.0, "topic_timeout": 2.0, "request_timeout": 2.0}


def test_records_are_written_and_read_over_tls(
    secured_kafka: Kafka,
    open_cluster: Open,
    new_topic: Callable[..., str],
    body_of: Callable[..., BatchBody],
    keep: Callable[[Any], Any],
    read_all: Callable[..., dict[int, list[bytes]]],
) -> None:
    topic = new_topic(secured_kafka, 2)
    cluster = open_cluster(secured_kafka)
    large = bytes(range(256)) * 2000
    producer = keep(TransactionalProducer(cluster, f"id-{topic}"))
    producer.begin()
    for partition in (0, 1):
        producer.send(topic, partition, body_of(b"small", large))
    producer.commit()
    # Small answers one behind the other: some wait inside TLS, where a selector does not see them.
    assert read_all(cluster, topic, partition_max_bytes=1000) == dict.fromkeys((0, 1), [b"small", large])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"sasl.password": "wrong-hunter2"}, "refused our login"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "does not log in by SCRAM-SHA-256"),
        ({"ssl.ca.location": None}, "not signed by an authority"),
    ],
)
def test_a_login_that_fails_is_told_at_once(
    secured_kafka: Kafka, change: dict[str, str | None], what: str
) -> None:
    options = {name: value for name, value in (secured_kafka.client_options() | change).items() if value}
    with Cluster(Settings.of(options)) as cluster, pytest.raises(ClusterError, match=what) as caught:
        cluster.partitions("t")
    assert "wrong-hunter2" not in str(caught.value)
    assert secured_kafka.password() not in str(caught.value)


def test_talking_plainly_to_a_port_of_tls_ends_in_time(secured_kafka: Kafka) -> None:
    settings = Settings.of({"bootstrap.servers": secured_kafka.bootstrap}, **QUICK)
    with Cluster(settings) as cluster, pytest.raises(PenstockError):
        cluster.partitions("t")


def test_a_user_without_rights_is_told_which(
    secured_kafka: Kafka,
    new_topic: Callable[..., str],
    body_of: Callable[..., BatchBody],
    keep: Callable[[Any], Any],
    open_cluster: Open,
) -> None:
    topic = new_topic(secured_kafka)
    guest = keep(Cluster(Settings.of(secured_kafka.client_options("guest"), **QUICK)))
    with pytest.raises(KafkaRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        guest.partitions(topic)
    with pytest.raises(KafkaRefused, match="AUTHORIZATION_FAILED"):
        TransactionalProducer(guest, "id")
    producer = keep(Producer(open_cluster(secured_kafka)))
    producer.send(topic, 0, body_of(b"a"))
    producer.flush()
    fetcher = keep(Fetcher(guest, [Wanted(topic, 0, 0)]))
    with pytest.raises(KafkaRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        fetcher.poll(30)
