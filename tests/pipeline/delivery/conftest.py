"""What the tests of the Pulsar side share: one Pulsar with transactions, and topics."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.embedded.pulsar import Pulsar
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster, PulsarSettings


@pytest.fixture(scope="session")
def broker() -> Iterator[Pulsar]:
    """A Pulsar with transactions, that removes what was acknowledged as soon as a ledger is closed."""
    settings = {
        "brokerDeduplicationEnabled": "false",
        "defaultRetentionTimeInMinutes": "0",
        "defaultRetentionSizeInMB": "0",
        # Nothing is removed that deduplication has not noted yet, by default every 120 s.
        "brokerDeduplicationSnapshotFrequencyInSeconds": "2",
        "brokerDeduplicationSnapshotIntervalSeconds": "2",
        "maxMessageSize": str(1024 * 1024),
        "nettyMaxFrameSizeBytes": str(1024 * 1024 + 10 * 1024),
    }
    with Pulsar(durable=False, transactions=True, settings=settings) as started:
        yield started


@pytest.fixture(scope="session")
def cluster(broker: Pulsar) -> Iterator[PulsarCluster]:
    settings = PulsarSettings(service_url=broker.service_url, admin_url=broker.admin_url)
    with PulsarCluster(settings) as opened:
        yield opened


@pytest.fixture
def make_topic(cluster: PulsarCluster) -> Callable[..., str]:
    """Create a topic that deduplicates, and keeps everything."""

    def make(partitions: int = 0, *, deduplication: bool = True, keep: bool = True) -> str:
        topic = f"persistent://public/default/t-{secrets.token_hex(6)}"
        cluster.call(cluster.admin.create_topic(topic, partitions))
        if deduplication:
            cluster.call(_policy(cluster, topic, "deduplicationEnabled", True))
        if keep:
            forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            cluster.call(_policy(cluster, topic, "retention", forever))
        return topic

    return make


async def _policy(cluster: PulsarCluster, topic: str, name: str, value: Any) -> None:
    """Set a policy of a topic and wait until it holds: policies travel through a topic of their own."""
    await cluster.admin.set_policy(topic, name, value)
    async with asyncio.timeout(30):
        while await cluster.admin.policy(topic, name, applied=True) != value:
            await asyncio.sleep(0.02)
