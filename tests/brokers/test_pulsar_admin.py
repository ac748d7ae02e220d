"""The Pulsar admin client against real brokers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from penstock.brokers.pulsar_admin import (
    NamespaceState,
    PulsarAdmin,
    PulsarTopicState,
    PulsarUsage,
    Retention,
)
from penstock.brokers.rest import Answer
from penstock.embedded.pulsar import Pulsar
from penstock.errors import AccessDenied, ClusterError, ConfigError, Unreachable


@pytest.fixture
def tenant() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.mark.server
def test_from_tenant_to_topic(pulsar: Pulsar, tenant: str) -> None:
    with PulsarAdmin({"url": pulsar.admin_url}) as admin:
        assert admin.clusters() == ("standalone",)
        assert not admin.has_tenant(tenant)
        assert admin.namespace(f"{tenant}/shop") is None
        admin.create_tenant(tenant)
        assert admin.has_tenant(tenant)
        admin.create_namespace(f"{tenant}/shop")
        assert admin.namespace(f"{tenant}/shop") == NamespaceState(replication=("standalone",))
        admin.set_policy(f"{tenant}/shop", "retention", Retention(minutes=60, megabytes=-1))
        admin.set_policy(f"{tenant}/shop", "ttl", 77)
        admin.set_policy(f"{tenant}/shop", "replication", ("standalone",))
        assert admin.namespace(f"{tenant}/shop") == NamespaceState(
            retention=Retention(minutes=60, megabytes=-1), ttl=77, replication=("standalone",)
        )


@pytest.mark.server
@pytest.mark.parametrize("persistence", ["persistent", "non-persistent"])
def test_the_life_of_a_topic(pulsar: Pulsar, tenant: str, persistence: str) -> None:
    base = f"{persistence}://{tenant}/shop"
    with PulsarAdmin({"url": pulsar.admin_url}) as admin:
        admin.create_tenant(tenant)
        admin.create_namespace(f"{tenant}/shop")
        admin.create_topic(f"{base}/many", 2)
        admin.add_partitions(f"{base}/many", 3)
        admin.create_topic(f"{base}/one", 0)
        admin.set_topic_policy(f"{base}/many", "deduplication", True)
        found = admin.topics([f"{base}/many", f"{base}/one", f"{base}/none"])
        assert found == {
            f"{base}/many": PulsarTopicState(partitions=3, deduplication=True),
            f"{base}/one": PulsarTopicState(partitions=0),
            f"{base}/none": None,
        }
        assert admin.usage(f"{base}/many") == PulsarUsage(entries=0, subscriptions=())
        admin.delete_topic(f"{base}/many")
        admin.delete_topic(f"{base}/one")
        assert set(admin.topics([f"{base}/many", f"{base}/one"]).values()) == {None}


@pytest.mark.server
@pytest.mark.parametrize("partitions", [0, 2])
def test_a_topic_that_is_created_again_has_another_time(pulsar: Pulsar, tenant: str, partitions: int) -> None:
    topic = f"persistent://{tenant}/shop/orders"
    with PulsarAdmin({"url": pulsar.admin_url}) as admin:
        admin.create_tenant(tenant)
        admin.create_namespace(f"{tenant}/shop")
        admin.create_topic(topic, partitions)
        before = admin.created(topic)
        assert before.keys() == set(range(max(partitions, 1)))
        if partitions:
            admin.add_partitions(topic, partitions + 1)
            assert before.items() < admin.created(topic).items()
        assert before.items() <= admin.created(topic).items()
        admin.delete_topic(topic)
        with pytest.raises(ClusterError):
            admin.created(topic)
        admin.create_topic(topic, partitions)
        after = admin.created(topic)
        assert after.keys() == before.keys()
        assert not before.items() & after.items()


@pytest.mark.parametrize(
    ("told", "times"),
    [
        ({"creationDate": "2026-01-02T03:04:05Z"}, {0: "2026-01-02T03:04:05Z"}),
        ({"creationDate": "1970-01-01T00:00:00Z"}, {}),  # the metadata store keeps none
        ({}, {}),
        (
            {
                "partitions": {
                    "persistent://a/b/t-partition-10": {"creationDate": "2026-01-02"},
                    "persistent://a/b/t-partition-2": {"creationDate": "2026-01-01"},
                    "persistent://a/b/t-partition-3": {"creationDate": "1970-01-01"},
                    "persistent://a/b/t-partition-4": {"creationDate": 5},
                }
            },
            {2: "2026-01-01", 10: "2026-01-02"},
        ),
    ],
)
def test_when_partitions_were_created(
    told: dict[str, Any], times: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PulsarAdmin, "_get", lambda *_: told)
    with PulsarAdmin({"url": "http://127.0.0.1:1"}) as admin:
        assert admin.created("persistent://a/b/t") == times


@pytest.mark.server
def test_a_compaction_threshold(pulsar: Pulsar, tenant: str) -> None:
    topic = f"persistent://{tenant}/shop/compacted"
    with PulsarAdmin({"url": pulsar.admin_url}) as admin:
        admin.create_tenant(tenant)
        admin.create_namespace(f"{tenant}/shop")
        admin.create_topic(topic, 1)
        admin.set_topic_policy(topic, "compaction", 1048576)
        assert admin.topics([topic])[topic] == PulsarTopicState(partitions=1, compaction=1048576)


@pytest.mark.server
@pytest.mark.parametrize("partitions", [0, 2])
def test_usage_counts_entries_and_names_subscriptions(pulsar: Pulsar, tenant: str, partitions: int) -> None:
    import pulsar as client_library

    topic = f"persistent://{tenant}/shop/used"
    with PulsarAdmin({"url": pulsar.admin_url}) as admin:
        admin.create_tenant(tenant)
        admin.create_namespace(f"{tenant}/shop")
        admin.create_topic(topic, partitions)
        client = client_library.Client(
            pulsar.service_url, logger=client_library.ConsoleLogger(client_library.LoggerLevel.Error)
        )
        client.subscribe(topic, "billing").close()
        producer = client.create_producer(topic, batching_enabled=False)
        for _ in range(5):
            producer.send(b"x")
        client.close()
        assert admin.usage(topic) == PulsarUsage(entries=5, subscriptions=("billing",))


@pytest.mark.server
def test_a_refusal_carries_the_reason(pulsar: Pulsar, tenant: str) -> None:
    with PulsarAdmin({"url": pulsar.admin_url}, name="staging") as admin:
        admin.create_tenant(tenant)
        with pytest.raises(ClusterError, match=f"staging refused: tenant {tenant}") as refused:
            admin.create_tenant(tenant)
        assert "already exist" in (refused.value.why or "")
        admin.create_namespace(f"{tenant}/shop")
        with pytest.raises(ClusterError, match="Invalid retention policy"):
            admin.set_policy(f"{tenant}/shop", "retention", Retention(minutes=60, megabytes=0))


@pytest.mark.server
def test_what_a_contract_gets_wrong_is_no_missing_right(pulsar: Pulsar, tenant: str) -> None:
    with PulsarAdmin({"url": pulsar.admin_url}) as admin:
        admin.create_tenant(tenant)
        admin.create_namespace(f"{tenant}/shop")
        with pytest.raises(ClusterError, match="Invalid cluster id") as unknown:
            admin.set_policy(f"{tenant}/shop", "replication", ("standalone", "elsewhere"))
        assert not isinstance(unknown.value, AccessDenied)
        assert "geo-replication" in (unknown.value.next or "")
        admin.set_policy(f"{tenant}/shop", "retention", Retention(minutes=60, megabytes=100))
        quota = {"limitSize": 50 << 20, "policy": "consumer_backlog_eviction"}
        admin._do("POST", f"/namespaces/{tenant}/shop/backlogQuota", "quota", quota)
        with pytest.raises(ClusterError, match="backlog quota") as below:
            admin.set_policy(f"{tenant}/shop", "retention", Retention(minutes=60, megabytes=10))
        assert "backlog quota" in (below.value.next or "")


@pytest.mark.server
def test_a_token_of_each_role(secured_pulsar: Pulsar, tenant: str) -> None:
    options = {"url": secured_pulsar.admin_url, "ca_file": str(secured_pulsar.ca_file)}
    with PulsarAdmin({**options, "authorization": f"Bearer {secured_pulsar.token()}"}) as admin:
        admin.create_tenant(tenant)
        assert admin.has_tenant(tenant)
    guest_token = secured_pulsar.token("guest")
    with PulsarAdmin({**options, "authorization": f"Bearer {guest_token}"}) as guest:
        with pytest.raises(ClusterError, match="Unauthorized") as refused:
            guest.has_tenant(tenant)
        assert guest_token not in str(refused.value)
        assert refused.value.next
    with PulsarAdmin(options) as nobody, pytest.raises(ClusterError, match="Authentication required"):
        nobody.has_tenant(tenant)


@pytest.mark.server
def test_a_certificate_that_nobody_trusts(secured_pulsar: Pulsar) -> None:
    with (
        PulsarAdmin({"url": secured_pulsar.admin_url}) as admin,
        pytest.raises(ClusterError, match="certificate is not signed") as refused,
    ):
        admin.clusters()
    assert "ca_file" in (refused.value.next or "")
    assert not isinstance(refused.value, Unreachable)


def test_nobody_there() -> None:
    with PulsarAdmin({"url": "http://127.0.0.1:1"}) as admin, pytest.raises(Unreachable) as unreachable:
        admin.clusters()
    assert unreachable.value.exit_code == 5


def test_an_address_is_needed() -> None:
    with pytest.raises(ConfigError, match="admin address"):
        PulsarAdmin({})


def test_certificate_files_that_cannot_be_used() -> None:
    with pytest.raises(ConfigError, match="certificate files"):
        PulsarAdmin({"url": "https://127.0.0.1:1", "ca_file": "/nowhere/ca.pem"})


def test_a_broker_without_policies_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers 405 for each of them, also for what is in effect: nothing is known, and the rest is read."""
    answers = {
        "/namespaces/acme/shop": Answer(200, {}),
        "/persistent/acme/shop": Answer(200, ["persistent://acme/shop/p-partition-0"]),
        "/persistent/acme/shop/p/partitions": Answer(200, {"partitions": 1}),
    }
    with PulsarAdmin({"url": "http://127.0.0.1:9"}) as admin:
        monkeypatch.setattr(admin._rest, "call", lambda _method, path: answers.get(path, Answer(405, None)))
        topic = "persistent://acme/shop/p"
        assert admin.namespace("acme/shop") == NamespaceState()
        assert admin.topics([topic], ("retention", "deduplication"))[topic] == PulsarTopicState(partitions=1)


TOPIC = "persistent://a/b/t"


@pytest.mark.parametrize(
    ("ask", "value"),
    [
        (lambda admin: admin.clusters(), 5),
        (lambda admin: admin.clusters(), [1, "a"]),
        (lambda admin: admin.namespace("a/b", ()), {"replication_clusters": 5}),
        (lambda admin: admin.namespace("a/b", ()), {"replication_clusters": [1, "a"]}),
        (lambda admin: admin.usage(TOPIC), True),
        (lambda admin: admin.topics([TOPIC], ()), {"partitions": 10**12}),
        (lambda admin: admin.topics([TOPIC], ()), {"partitions": -1}),
        (lambda admin: admin.schemas(TOPIC), {"getSchemaResponses": [5]}),
    ],
)
def test_answers_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[PulsarAdmin], object], value: object
) -> None:
    with PulsarAdmin({"url": "http://127.0.0.1:9"}) as admin:
        monkeypatch.setattr(admin._rest, "call", lambda *_args: Answer(200, value))
        with pytest.raises(ClusterError, match="pulsar gave no"):
            ask(admin)
