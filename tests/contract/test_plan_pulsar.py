"""Plans for Pulsar compare what is in effect, whichever level said it, in memory and on a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import Any

import pytest

from penstock.brokers.pulsar_admin import (
    NamespaceState,
    Policies,
    PulsarAdmin,
    PulsarSchema,
    PulsarTopicState,
    Retention,
)
from penstock.contract import Contract
from penstock.contract.actual import _version_of, read_actual
from penstock.contract.apply import execute
from penstock.contract.desired import desired_state
from penstock.contract.memory import MemoryClusters, MemoryPulsar
from penstock.contract.plan import Plan, allowable, make_plan
from penstock.contract.plan_text import explanation, line_of, markdown, summary, text
from penstock.contract.ports import Clusters, KafkaPort, PulsarPort, RegistryPort
from penstock.contract.pulsar_schemas import same_definition
from penstock.contract.steps import Risk, step_id
from penstock.embedded.pulsar import Pulsar
from penstock.errors import AccessDenied, InternalError

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


# Schemas

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}],
}
ADDED = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]}
BROKEN = {**ORDER, "fields": [{"name": "id", "type": "int"}]}
AVRO = "application/vnd.apache.avro+json;version=1.11.0"


def carrying(*schemas: Any, format: str | None = AVRO, **message: Any) -> dict[str, Any]:
    payloads = [{"schemaFormat": format, "schema": each} if format else each for each in schemas]
    messages = {f"m{number}": {"payload": each, **message} for number, each in enumerate(payloads)}
    return {**channel(), "messages": messages}


def test_the_schema_of_a_topic_is_planned_and_applied(
    contract_of: MakeContract, clusters: MemoryClusters
) -> None:
    twin, contract = clusters.pulsar("pulsar"), contract_of({"p": carrying(ORDER)})
    plan = planned(contract, clusters)
    assert lines(plan) == ["+ acme/shop/p schema AVRO"]
    assert plan.steps[0].risk is Risk.CAUTION  # the topic is used by others already
    assert execute(plan.accepted(), clusters).error is None
    assert planned(contract, clusters).steps == ()
    assert json.loads(twin.state["persistent://acme/shop/p"].schema.definition) == ORDER  # type: ignore[union-attr]
    plan = planned(contract_of({"p": carrying(ADDED)}), clusters)
    assert lines(plan) == ["~ acme/shop/p schema v0 -> v1, AVRO"]
    twin.refusal = "a field was removed"
    plan = planned(contract_of({"p": carrying(ADDED)}), clusters)
    assert lines(plan) == ["! acme/shop/p schema v0, a new one is not compatible"]
    assert "a field was removed" in explanation(plan)


def test_an_earlier_version_of_the_schema_is_told_and_not_set_again(
    contract_of: MakeContract, clusters: MemoryClusters
) -> None:
    for schema in (ORDER, ADDED):
        execute(planned(contract_of({"p": carrying(schema)}), clusters).steps, clusters)
    plan = planned(contract_of({"p": carrying(ORDER)}), clusters)
    assert plan.steps == ()
    assert [note.text for note in plan.notes] == ["the contract has schema v0, the newest is v1"]


def test_of_versions_that_are_the_same_the_newest_counts() -> None:
    texts = (json.dumps(ORDER), json.dumps(ADDED), json.dumps({**ORDER, "doc": "an order"}))
    found = [PulsarSchema(type="AVRO", definition=text, version=n) for n, text in enumerate(texts)]
    assert _version_of(json.dumps(ORDER), found) == 2
    assert _version_of(json.dumps(ADDED), found) == 1
    assert _version_of(json.dumps(BROKEN), found) is None
    assert _version_of(json.dumps(ADDED), [replace(found[1], type="JSON")]) is None


def test_a_new_topic_gets_its_schema(contract_of: MakeContract) -> None:
    clusters, contract = MemoryClusters(), contract_of({"p": carrying(ORDER)})
    plan = planned(contract, clusters)
    assert lines(plan)[-2:] == ["+ acme/shop/p partitions 1", "+ acme/shop/p schema AVRO"]
    assert execute(plan.accepted(), clusters).error is None
    assert planned(contract, clusters).steps == ()


@pytest.mark.parametrize(
    ("there", "says", "expected"),
    [
        (
            "AVRO",
            carrying({"type": "object"}, format=None),
            ["! acme/shop/p schema AVRO, contract says JSON"],
        ),
        ("JSON", carrying(ORDER), ["! acme/shop/p schema JSON, contract says AVRO"]),
        ("JSON", carrying({"type": "object"}, format=None), []),
        ("AVRO", channel(), []),
        ("AVRO", carrying(ORDER, contentType="application/cloudevents+json"), []),
        ("AVRO", carrying(ORDER, {**ORDER, "name": "Other"}), []),
    ],
)
def test_a_schema_that_somebody_else_set(
    contract_of: MakeContract,
    clusters: MemoryClusters,
    there: str,
    says: dict[str, Any],
    expected: list[str],
) -> None:
    schema = PulsarSchema(type=there, definition=json.dumps(BROKEN))
    clusters.pulsar("pulsar").state["persistent://acme/shop/p"] = PulsarTopicState(
        partitions=2, schema=schema
    )
    assert lines(planned(contract_of({"p": says}), clusters)) == expected


# What may not be seen


class Restricted(MemoryPulsar):
    """A Pulsar for a user who may consume from acme/shop and administers nothing."""

    def has_tenant(self, tenant: str) -> bool:
        raise AccessDenied("no", why="not an administrator")

    def namespace(self, namespace: str, policies: Collection[str] = ()) -> NamespaceState | None:
        raise AccessDenied("no", why="not an administrator")

    def topics(
        self, names: Sequence[str], policies: Collection[str] = ()
    ) -> Mapping[str, PulsarTopicState | AccessDenied | None]:
        found = super().topics(names, policies)
        hidden = tuple(policies)
        return {
            name: AccessDenied("no", why="no right")
            if "/shop/" not in name
            else replace(state, hidden=hidden)
            if isinstance(state, PulsarTopicState)
            else None
            for name, state in found.items()
        }


def test_a_reader_plans_what_it_may_see(contract_of: MakeContract) -> None:
    twin = Restricted()
    twin.tenants["acme"] = {
        "acme/shop": NamespaceState(),
        "acme/closed": NamespaceState(),
        "acme/x": NamespaceState(),
    }
    twin.state["persistent://acme/shop/p"] = PulsarTopicState(partitions=4, missing=(2,))
    twin.state["persistent://acme/closed/p"] = PulsarTopicState(partitions=4)
    clusters = MemoryClusters(_pulsar={"pulsar": twin})
    channels = {
        "p": channel(deduplication=True, ttl=5),
        "new": channel("new"),
        "closed": channel(namespace="closed"),
    }
    plan = planned(contract_of(channels), clusters)
    assert lines(plan) == ["+ acme/shop/new partitions 1", "+ acme/shop/p partition 2"]
    assert [(each.noun, each.name, each.what) for each in plan.unseen] == [
        ("namespace", "acme/shop", ""),
        ("topic", "persistent://acme/closed/p", ""),
        ("topic", "persistent://acme/shop/p", "ttl, deduplication"),
    ]
    assert "? topic     acme/closed/p  pulsar  it may not be seen by this user" in text(plan)
    assert summary(plan) == "2 to add, 3 may not be seen"
    assert "| `?` | topic | `acme/closed/p`" in markdown(plan)
    assert "not an administrator" in explanation(plan)


class Consumer(MemoryPulsar):
    """A Pulsar for a user who may consume, and read schemas with that; the rest is for administrators."""

    def schema_refusal(self, topic: str, schema: PulsarSchema) -> str | None:
        raise AccessDenied("no", why="not an administrator")


def test_who_may_not_ask_about_a_new_schema_plans_it_all_the_same(contract_of: MakeContract) -> None:
    twin = Consumer()
    twin.tenants["acme"] = {"acme/shop": NamespaceState()}
    old = PulsarSchema(type="AVRO", definition=json.dumps(ORDER))
    twin.state["persistent://acme/shop/p"] = PulsarTopicState(partitions=4, schema=old)
    channels = {"p": carrying(ADDED), "new": channel("new")}
    plan = planned(contract_of(channels), MemoryClusters(_pulsar={"pulsar": twin}))
    assert lines(plan) == ["+ acme/shop/new partitions 1", "~ acme/shop/p schema v0 -> v1, AVRO"]
    assert [(each.name, each.what, each.why) for each in plan.unseen] == [
        ("persistent://acme/shop/p", "whether a new schema is compatible", "not an administrator")
    ]


def test_a_topic_that_is_declared_no_longer_and_may_not_be_seen_is_told(contract_of: MakeContract) -> None:
    twin = Restricted()
    twin.state["persistent://acme/closed/p"] = PulsarTopicState(partitions=4)
    before, now = contract_of({"p": channel(namespace="closed")}), contract_of({"q": channel("q")})
    plan = make_plan(
        desired := desired_state(now, servers=["pulsar"], previous=before),
        read_actual(desired, MemoryClusters(_pulsar={"pulsar": twin})),
    )
    assert ("topic", "persistent://acme/closed/p") in {(each.noun, each.name) for each in plan.unseen}
    assert not any(step.kind == "delete-pulsar-topic" for step in plan.steps)


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

    def plan(self, says: dict[str, Any] | None = None, **binding: Any) -> Plan:
        servers = {
            "pulsar": {
                "host": "pulsar.example:6650",
                "protocol": "pulsar",
                "bindings": {"pulsar": {"tenant": self.tenant}},
            }
        }
        contract = self.contract_of({"p": says or channel(**binding)}, servers=servers)
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


@pytest.mark.server
def test_two_applies_at_once(shop: Shop) -> None:
    binding = {"namespace": "late", "x-penstock-partitions": 2, **SHORT}
    plans = [shop.plan(**binding) for _ in range(2)]
    assert [step.kind for step in plans[0].steps] == [
        "create-namespace",
        "change-policy",
        "create-pulsar-topic",
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(shop.execute, plans))
    assert shop.plan(**binding).steps == ()
    shop.execute(plans[0])  # one that comes later still


@pytest.mark.server
def test_the_schema_of_a_real_topic(shop: Shop) -> None:
    shop.admin.create_topic(shop.topic, 2)
    name = f"{shop.tenant}/shop/p"
    plan = shop.plan(carrying(ORDER))
    assert lines(plan) == [f"+ {name} schema AVRO"]
    shop.execute(plan)
    assert shop.plan(carrying(ORDER)).steps == ()
    plan = shop.plan(carrying(ADDED))
    assert lines(plan) == [f"~ {name} schema v0 -> v1, AVRO"]
    shop.execute(plan)
    assert shop.plan(carrying(ADDED)).steps == ()
    plan = shop.plan(carrying(BROKEN))
    assert lines(plan) == [f"! {name} schema v1, a new one is not compatible"]
    assert "Unable to read schema" in explanation(plan)
    assert "at org.apache" not in explanation(plan)
    plan = shop.plan(carrying({"type": "object"}, format=None))
    assert lines(plan) == [f"! {name} schema AVRO, contract says JSON"]


@pytest.mark.server
def test_a_schema_that_a_real_topic_has_in_an_earlier_version_or_in_other_words(shop: Shop) -> None:
    shop.admin.create_topic(shop.topic, 2)
    for schema in (ORDER, ADDED):
        shop.execute(shop.plan(carrying(schema)))
    plan = shop.plan(carrying(ORDER))
    assert plan.steps == ()  # an apply would have no effect: Pulsar makes no new version of what it has
    assert [note.text for note in plan.notes] == ["the contract has schema v0, the newest is v1"]
    plan = shop.plan(carrying({**ADDED, "doc": "an order"}))
    assert (plan.steps, plan.notes) == ((), ())


KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "n", "type": "int", "default": 0},
    {"name": "kind", "type": KIND, "default": "A"},
    {"name": "other", "type": "Kind", "default": "A"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
]
FULL = {"type": "record", "name": "Order", "namespace": "com.acme", "fields": FIELDS}


def with_field(number: int, **changed: Any) -> dict[str, Any]:
    fields = [{**each, **changed} if at == number else each for at, each in enumerate(FIELDS)]
    return {**FULL, "fields": fields}


SAME: dict[str, dict[str, Any]] = {
    "documentation": {**FULL, "doc": "an order"},
    "documentation of a field": with_field(0, doc="an id"),
    "documentation of a type": with_field(0, type={"type": "string", "doc": "text"}),
    "aliases": {**FULL, "aliases": ["Old"]},
    "aliases of a field": with_field(0, aliases=["old"]),
    "full name": {"type": "record", "name": "com.acme.Order", "fields": FIELDS},
    "full name before another namespace": {**FULL, "name": "com.acme.Order", "namespace": "x.y"},
    "full name of a reference": with_field(3, type="com.acme.Kind"),
    "a type as an object": with_field(0, type={"type": "string"}),
    "another order of members": dict(reversed(FULL.items())),
    "the usual order of a field": with_field(0, order="ascending"),
    "the default of an enumeration": with_field(2, type={**KIND, "default": "B"}),
    "no default of an enumeration": with_field(2, type={k: v for k, v in KIND.items() if k != "default"}),
}
OTHER: dict[str, dict[str, Any]] = {
    "order of a field": with_field(0, order="descending"),
    "property": {**FULL, "x-note": "1"},
    "property of a field": with_field(0, **{"x-note": "1"}),
    "property of a type": with_field(0, type={"type": "string", "avro.java.string": "String"}),
    "default": with_field(1, default=1),
    "no logical type": with_field(4, type="long"),
    "order of symbols": with_field(2, type={**KIND, "symbols": ["B", "A"]}),
}
FORMS = [*((form, True) for form in SAME.values()), *((form, False) for form in OTHER.values())]


@pytest.mark.parametrize(("form", "same"), FORMS, ids=[*SAME, *OTHER])
def test_which_definitions_are_the_same(form: dict[str, Any], same: bool) -> None:
    assert same_definition(json.dumps(FULL), json.dumps(form)) is same


@pytest.mark.server
def test_a_real_broker_agrees_which_definitions_are_the_same(shop: Shop) -> None:
    path = f"/namespaces/{shop.tenant}/shop/schemaCompatibilityStrategy"
    assert shop.admin._rest.call("PUT", path, "ALWAYS_COMPATIBLE").ok
    for number, (form, same) in enumerate(FORMS):
        topic = f"{shop.topic}{number}"
        shop.admin.create_topic(topic, 0)
        for each in (FULL, form):
            shop.admin.set_schema(topic, PulsarSchema(type="AVRO", definition=json.dumps(each)))
        assert (len(shop.admin.schemas(topic)) == 1) is same, form
