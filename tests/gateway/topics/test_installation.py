"""The cluster id: one for an installation, another for each other one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.errors import AccessDenied, ClusterError
from penstock.gateway.cluster_id import is_cluster_id
from penstock.gateway.pulsar.installation import find_cluster_id

NAMESPACE = "public/__kafka"


def cluster_ids(pulsar: Any, count: int = 1, namespace: str = NAMESPACE) -> set[str]:
    async def scenario() -> list[str]:
        return await asyncio.gather(*(find_cluster_id(pulsar, namespace) for _ in range(count)))

    return set(asyncio.run(scenario()))


def test_gateways_that_start_together_and_later_agree(fake: Any) -> None:
    [first] = cluster_ids(fake, 5)
    assert is_cluster_id(first)
    assert cluster_ids(fake) == {first}
    stays = fake.policies[f"persistent://{NAMESPACE}/__cluster", "inactiveTopicPolicies"]
    assert stays["deleteWhileInactive"] is False


def test_a_start_that_ended_before_the_policy_was_set_is_completed_by_the_next(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: Any) -> None:
        raise ClusterError("pulsar refused: it")

    with monkeypatch.context() as patch:
        patch.setattr(fake, "set_policy", lost)
        with pytest.raises(ClusterError):
            cluster_ids(fake)
    cluster_ids(fake)
    assert fake.policies[f"persistent://{NAMESPACE}/__cluster", "inactiveTopicPolicies"]


def test_installations_differ(fake: Any) -> None:
    assert cluster_ids(fake).isdisjoint(cluster_ids(fake, namespace="public/other"))
    assert cluster_ids(fake).isdisjoint(cluster_ids(type(fake)()))


@pytest.mark.parametrize("properties", [{}, {"penstock.kafka.cluster-id": "x y"}])
def test_a_topic_without_an_id_is_told(fake: Any, properties: dict[str, str]) -> None:
    cluster_ids(fake)
    fake.properties_[f"persistent://{NAMESPACE}/__cluster"] = properties
    with pytest.raises(ClusterError, match="__cluster does not hold"):
        cluster_ids(fake)


def test_who_may_not_create_anything_reads_what_is_there(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def denied(*_: Any) -> None:
        raise AccessDenied("pulsar refused: it")

    async def scenario() -> None:
        chosen = await find_cluster_id(fake, "acme/kafka")
        monkeypatch.setattr(fake, "create_namespace", denied)
        monkeypatch.setattr(fake, "create_partitioned_topic", denied)
        assert await find_cluster_id(fake, "acme/kafka") == chosen
        with pytest.raises(AccessDenied):
            await find_cluster_id(fake, "acme/other")

    asyncio.run(scenario())
