"""Plans for Pulsar compare what is in effect, whichever level said it, in memory and on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import pytest

from penstock.brokers.pulsar_admin import NamespaceState, Policies, PulsarAdmin, PulsarTopicState, Retention
from penstock.contract import Contract
from penstock.contract.actual import read_actual
from penstock.contract.apply import execute
from penstock.contract.desired import desired_state
from penstock.contract.memory import MemoryClusters, MemoryPulsar
from penstock.contract.plan import Plan, allowable, make_plan
from penstock.contract.plan_text import line_of
from penstock.contract.ports import Clusters, KafkaPort, PulsarPort, RegistryPort
from penstock.contract.steps import Risk, step_id
from penstock.embedded.pulsar import Pulsar
from penstock.errors import InternalError

MakeContract = Callable[..., Contract]
FOREVER = Retention(minutes=-1, megabytes=-1)
SHORT = {"retention": {"time": 1, "size": 1}}


def channel(address: str = "p", namespace: str = "shop", **binding: Any) -> dict[str, Any]:
    declared = {"namespace": namespace, "persistence": "persistent", **binding}
    return {"address": address, "servers": [{"$ref": "#/servers/pulsar"}], "bindings": {"pulsar": declared}}


def planned(contract: Contract, clusters: Clusters) -> Plan:
    desired = desired_state(contract, servers=["pulsar"])
    return make_plan(desired, read_actual(desired, clusters))


def lines(plan: Plan) -> list[str]:
    return [" ".join((row.mark, row.name, row.detail)).rstrip() for row in map(line_of, plan.steps)]


@pytest.fixture
def clusters() -> MemoryClusters:
    """A Pulsar with the namespace acme/shop, which holds a topic p of two partitions."""
    twin = MemoryPulsar()
    twin.create_tenant("acme")
    twin.create_namespace("acme/shop")
    twin.create_topic("persistent://acme/shop/p", 2)
    return MemoryClusters(_pulsar={"pulsar": twin})


# The broker's default is in effect where a namespace says nothing


def test_a_retention_shorter_than_the_brokers_default_is_dangerous(
    contract_of: MakeContract, clusters: MemoryClusters
) -> None:
    clusters.pulsar("pulsar").defaults = Policies(retention=FOREVER, ttl=0)
    plan = planned(contract_of({"p": channel(**SHORT)}), clusters)
    (step,) = plan.steps
    assert lines(plan) == ["~ acme/shop retention -1 min, -1 MB -> 1 min, 1 MB"]
    assert (step.risk, plan.accepted()) == (Risk.DANGEROUS, ())
    assert step_id(step) in allowable(desired_state(contract_of({"p": channel(**SHORT)})))


def test_a_longer_retention_than_the_brokers_default_is_safe(
    contract_of: MakeContract, clusters: MemoryClusters
) -> None:
    (step,) = planned(contract_of({"p": channel(**SHORT)}), clusters).steps
    assert step.risk is Risk.SAFE


def test_a_default_that_is_what_the_contract_says_needs_no_step(
    contract_of: MakeContract, clusters: MemoryClusters
) -> None:
    clusters.pulsar("pulsar").defaults = Policies(retention=FOREVER, ttl=60, deduplication=True, compaction=0)
    says = channel(retention={"time": -1, "size": -1}, ttl=60, deduplication=True, compaction=0)
    assert planned(contract_of({"p": says}), clusters).steps == ()


def test_a_default_that_nobody_tells_may_keep_more(
    contract_of: MakeContract, clusters: MemoryClusters
) -> None:
    clusters.pulsar("pulsar").defaults = Policies()
    (step,) = planned(contract_of({"p": channel(**SHORT)}), clusters).steps
    assert step.risk is Risk.DANGEROUS
    forever = channel(retention={"time": -1, "size": -1})
    (step,) = planned(contract_of({"p": forever}), clusters).steps
    assert step.risk is Risk.SAFE


def test_a_namespace_without_topics_has_nothing_to_lose(
    contract_of: MakeContract, clusters: MemoryClusters
) -> None:
    twin = clusters.pulsar("pulsar")
    twin.create_namespace("acme/empty")
    twin.defaults = Policies(retention=FOREVER, ttl=0)
    plan = planned(contract_of({"p": channel(namespace="empty", ttl=5, **SHORT)}), clusters)
    assert {step.risk for step in plan.steps} == {Risk.SAFE}


@pytest.mark.parametrize(
    ("before", "after", "risk"),
    [
        (None, 5, Risk.DANGEROUS),
        (0, 5, Risk.DANGEROUS),
        (9, 5, Risk.DANGEROUS),
        (5, 9, Risk.SAFE),
        (5, 0, Risk.SAFE),
    ],
)
def test_a_time_to_live(
    contract_of: MakeContract, clusters: MemoryClusters, before: int | None, after: int, risk: Risk
) -> None:
    clusters.pulsar("pulsar").tenants["acme"]["acme/shop"] = NamespaceState(ttl=before)
    (step,) = planned(contract_of({"p": channel(ttl=after)}), clusters).steps
    assert step.risk is risk


def test_deduplication_by_the_broker_is_turned_off_with_a_warning(
    contract_of: MakeContract, clusters: MemoryClusters
) -> None:
    clusters.pulsar("pulsar").defaults = Policies(deduplication=True, compaction=0)
    plan = planned(contract_of({"p": channel(deduplication=False)}), clusters)
    assert lines(plan) == ["~ acme/shop/p deduplication true -> false"]
    assert plan.steps[0].risk is Risk.CAUTION


# A policy of the topic goes before that of its namespace


@pytest.mark.parametrize(
    ("own", "says", "detail", "risk"),
    [
        ({"retention": FOREVER}, SHORT, "retention of its own -1 min, -1 MB -> 1 min, 1 MB", Risk.DANGEROUS),
        (
            {"retention": Retention(minutes=0, megabytes=0)},
            SHORT,
            "retention of its own 0 min, 0 MB -> 1 min, 1 MB",
            Risk.SAFE,
        ),
        ({"ttl": 9}, {"ttl": 5}, "ttl of its own 9 -> 5", Risk.DANGEROUS),
        ({"ttl": 1}, {"ttl": 5}, "ttl of its own 1 -> 5", Risk.SAFE),
        (
            {"replication": ("eu", "us")},
            {"geo-replication": ["eu"]},
            "replication of its own eu,us -> eu",
            Risk.DANGEROUS,
        ),
    ],
)
def test_a_policy_of_a_topic_is_removed(
    contract_of: MakeContract,
    clusters: MemoryClusters,
    own: dict[str, Any],
    says: dict[str, Any],
    detail: str,
    risk: Risk,
) -> None:
    twin, contract = clusters.pulsar("pulsar"), contract_of({"p": channel(**says)})
    first = planned(contract, clusters)
    assert execute(first.steps, clusters).error is None
    assert planned(contract, clusters).steps == ()
    twin.state["persistent://acme/shop/p"] = PulsarTopicState(partitions=2, **own)
    plan = planned(contract, clusters)
    assert plan.actual != first.actual
    assert lines(plan) == [f"~ acme/shop/p {detail} of the namespace"]
    (step,) = plan.steps
    assert step.risk is risk
    assert step_id(step) == f"remove-topic-policy:pulsar/acme/shop/p:{next(iter(own))}"
    assert step_id(step) in allowable(desired_state(contract))
    assert execute(plan.accepted([step_id(step)]), clusters).error is None
    assert planned(contract, clusters).steps == ()


def test_a_policy_of_a_topic_about_which_the_contract_says_nothing_stays(
    contract_of: MakeContract, clusters: MemoryClusters
) -> None:
    clusters.pulsar("pulsar").state["persistent://acme/shop/p"] = PulsarTopicState(partitions=2, ttl=5)
    assert planned(contract_of({"p": channel()}), clusters).steps == ()


# Partitions


@pytest.mark.parametrize("there", [0, 1, 7])
def test_a_topic_is_adopted_with_the_partitions_that_it_has(
    contract_of: MakeContract, clusters: MemoryClusters, there: int
) -> None:
    twin = clusters.pulsar("pulsar")
    twin.state["persistent://acme/shop/p"] = PulsarTopicState(partitions=there)
    assert planned(contract_of({"p": channel(), "q": channel("q")}), clusters).steps[0].kind == (
        "create-pulsar-topic"
    )
    assert lines(planned(contract_of({"p": channel(), "q": channel("q")}), clusters)) == [
        "+ acme/shop/q partitions 1"
    ]


def test_partitions_that_are_missing_are_created(contract_of: MakeContract, clusters: MemoryClusters) -> None:
    twin, contract = clusters.pulsar("pulsar"), contract_of({"p": channel()})
    twin.state["persistent://acme/shop/p"] = PulsarTopicState(partitions=4, missing=(1, 3))
    plan = planned(contract, clusters)
    assert lines(plan) == ["+ acme/shop/p partitions 1, 3"]
    assert plan.steps[0].risk is Risk.CAUTION
    assert execute(plan.accepted(), clusters).error is None
    assert planned(contract, clusters).steps == ()


# On a real broker


@dataclass(frozen=True)
class RealPulsar:
    admin: PulsarAdmin

    def kafka(self, server: str) -> KafkaPort:
        raise InternalError(f"no Kafka {server}")

    def pulsar(self, server: str) -> PulsarPort:
        return self.admin

    def registry(self, server: str) -> RegistryPort:
        raise InternalError(f"no registry {server}")


@dataclass(frozen=True)
class Shop:
    """A namespace of its own on a real broker, whose default is to keep everything."""

    admin: PulsarAdmin
    tenant: str
    contract_of: MakeContract

    @property
    def topic(self) -> str:
        return f"persistent://{self.tenant}/shop/p"

    def plan(self, **binding: Any) -> Plan:
        servers = {
            "pulsar": {
                "host": "pulsar.example:6650",
                "protocol": "pulsar",
                "bindings": {"pulsar": {"tenant": self.tenant}},
            }
        }
        contract = self.contract_of({"p": channel(**binding)}, servers=servers)
        return planned(contract, RealPulsar(self.admin))

    def until(self, expected: list[str], **binding: Any) -> Plan:
        """Plan until the steps are as expected: policies of topics take a moment."""
        end = monotonic() + 15
        while lines(plan := self.plan(**binding)) != expected and monotonic() < end:
            sleep(0.05)
        assert lines(plan) == expected
        return plan

    def execute(self, plan: Plan) -> None:
        assert execute(plan.steps, RealPulsar(self.admin)).error is None

    def set_own(self, policy: str, value: Any) -> None:
        """Set a policy of the topic behind the contract's back."""
        path = f"/persistent/{self.tenant}/shop/p/{policy}"
        assert self.admin._rest.call("POST", path, value).ok


@pytest.fixture
def shop(pulsar: Pulsar, contract_of: MakeContract) -> Iterator[Shop]:
    tenant = f"t{uuid.uuid4().hex[:12]}"
    with PulsarAdmin({"url": pulsar.admin_url}) as admin:
        admin.create_tenant(tenant)
        admin.create_namespace(f"{tenant}/shop")
        yield Shop(admin, tenant, contract_of)


@pytest.mark.server
def test_the_default_of_a_real_broker(shop: Shop) -> None:
    assert {step.risk for step in shop.plan(**SHORT).steps} == {Risk.SAFE}  # nothing is in it yet
    shop.admin.create_topic(shop.topic, 3)
    plan = shop.until([f"~ {shop.tenant}/shop retention -1 min, -1 MB -> 1 min, 1 MB"], **SHORT)
    assert plan.accepted() == ()
    shop.set_own("retention", {"retentionTimeInMinutes": 7, "retentionSizeInMB": 7})
    own = f"~ {shop.tenant}/shop/p retention of its own 7 min, 7 MB -> 1 min, 1 MB of the namespace"
    # The only topic has a policy of its own, so nobody tells the default: still nothing is done unasked.
    plan = shop.until([f"+ {shop.tenant}/shop retention 1 min, 1 MB", own], **SHORT)
    assert plan.accepted() == ()
    shop.execute(plan)
    shop.until([], **SHORT)
    assert shop.plan(retention={"time": 1, "size": 1}, ttl=0).steps == ()
    (step,) = shop.plan(ttl=60).steps
    assert step.risk is Risk.DANGEROUS


@pytest.mark.server
@pytest.mark.parametrize(
    ("policy", "own", "binding", "detail"),
    [
        (
            "retention",
            {"retentionTimeInMinutes": 9, "retentionSizeInMB": 9},
            SHORT,
            "retention of its own 9 min, 9 MB -> 1 min, 1 MB",
        ),
        ("messageTTL?messageTTL=9", None, {"ttl": 5}, "ttl of its own 9 -> 5"),
    ],
)
def test_policies_of_a_real_topic(
    shop: Shop, policy: str, own: Any, binding: dict[str, Any], detail: str
) -> None:
    shop.admin.create_topic(shop.topic, 2)
    shop.execute(shop.plan(**binding))
    shop.until([], **binding)
    shop.set_own(policy, own)
    plan = shop.until([f"~ {shop.tenant}/shop/p {detail} of the namespace"], **binding)
    assert plan.accepted() == ()
    shop.execute(plan)
    shop.until([], **binding)


@pytest.mark.server
def test_replication_and_deduplication_in_effect(shop: Shop) -> None:
    shop.admin.create_topic(shop.topic, 2)
    here = {"geo-replication": ["standalone"]}
    shop.set_own("replication", ["standalone"])
    end = monotonic() + 15
    while shop.admin.topics([shop.topic])[shop.topic] != PulsarTopicState(
        partitions=2, replication=("standalone",)
    ):
        assert monotonic() < end
        sleep(0.05)
    assert shop.plan(**here, deduplication=True, compaction=0).steps == ()  # the broker deduplicates
    plan = shop.until([f"~ {shop.tenant}/shop/p deduplication true -> false"], deduplication=False)
    shop.execute(plan)
    shop.until([], deduplication=False)


@pytest.mark.server
def test_a_partition_that_was_deleted(shop: Shop) -> None:
    shop.admin.create_topic(shop.topic, 3)
    assert shop.plan().steps == ()
    assert shop.admin._rest.call("DELETE", f"/persistent/{shop.tenant}/shop/p-partition-1").ok
    plan = shop.until([f"+ {shop.tenant}/shop/p partition 1"])
    shop.execute(plan)
    shop.until([])
    assert shop.plan(**{"x-penstock-partitions": 3}).steps == ()
