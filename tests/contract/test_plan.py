"""Plans from states in memory: golden texts, and the rules one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brokers.kafka_layout import TopicUsage
from penstock.brokers.pulsar_admin import NamespaceState, PulsarTopicState, PulsarUsage, Retention
from penstock.brokers.schema_registry import Registered, SchemaReference, Verdict
from penstock.contract import Contract, load, validate
from penstock.contract.actual import read_actual
from penstock.contract.apply import execute
from penstock.contract.desired import Desired, desired_state
from penstock.contract.memory import MemoryClusters
from penstock.contract.plan import Plan, allowable, make_plan
from penstock.contract.plan_text import as_data, explanation, line_of, markdown, text
from penstock.contract.steps import Risk, name_of, step_id
from penstock.contract.topic_settings import judge, same
from penstock.contract.topics import is_named_by
from penstock.errors import ContractError, UsageError

GOLDEN = Path(__file__).parent / "golden"
SHOP = Path(__file__).parents[2] / "examples" / "shop" / "asyncapi.yaml"
ON_KAFKA = [{"$ref": "#/servers/kafka"}]
ON_PULSAR = [{"$ref": "#/servers/pulsar"}]

MakeContract = Callable[..., Contract]


def topic(address: str | None, settings: dict[str, Any] | None = None, **binding: Any) -> dict[str, Any]:
    if settings is not None:
        binding["topicConfiguration"] = settings
    return {"address": address, "servers": ON_KAFKA, "bindings": {"kafka": binding}}


def pulsar_topic(address: str, **binding: Any) -> dict[str, Any]:
    declared = {"namespace": "shop", "persistence": "persistent", **binding}
    return {"address": address, "servers": ON_PULSAR, "bindings": {"pulsar": declared}}


def planned(desired: Desired, clusters: MemoryClusters, context: str = "staging") -> Plan:
    return make_plan(desired, read_actual(desired, clusters), context=context)


def lines(plan: Plan) -> list[str]:
    return [" ".join((row.mark, row.name, row.detail)).rstrip() for row in map(line_of, plan.steps)]


def described(shown: str) -> str:
    """Fingerprints and places are no part of a golden text; everything else is."""
    return re.sub(r"  --> \S+:\d+:\d+", "  --> FILE", shown)


# Golden texts


def changed_cluster(contract_of: MakeContract) -> tuple[Desired, MemoryClusters]:
    """The plan of style.md: one topic new, one with less retention, one schema new, one topic gone."""
    value = {"type": "object", "title": "Paid", "properties": {"id": {"type": "string"}}}
    paid = topic("orders.paid", {"retention.ms": 259200000}, partitions=12)
    paid["messages"] = {"paid": {"payload": value}}
    kept = {f"kept{n}": topic(f"kept.{n}", partitions=3) for n in range(10)}
    channels = {
        "created": topic("orders.created", {"cleanup.policy": ["compact"]}, partitions=12),
        "paid": paid,
    }
    now = contract_of({**channels, **kept})
    before = contract_of({**channels, **kept, "old": topic("orders.old")})
    clusters = MemoryClusters()
    kafka = clusters.kafka("kafka")
    kafka.create_topic("orders.paid", partitions=12, replicas=3, settings={})
    kafka.create_topic("orders.old", partitions=1, replicas=3, settings={})
    kafka.create_topic("unmanaged", partitions=1, replicas=3, settings={"retention.ms": "1"})
    for number in range(10):
        kafka.create_topic(f"kept.{number}", partitions=3, replicas=1, settings={})
    kafka.usages["orders.old"] = TopicUsage(records=18204, groups=("billing",))
    for version in ("1", "2", "3"):
        clusters.registry("kafka").register("orders.paid-value", "JSON", json.dumps({"title": version}))
    return desired_state(now, previous=before), clusters


def test_golden_changes(contract_of: MakeContract) -> None:
    plan = planned(*changed_cluster(contract_of))
    assert text(plan) == (GOLDEN / "plan_changes.txt").read_text().rstrip("\n")


def test_golden_markdown(contract_of: MakeContract) -> None:
    plan = planned(*changed_cluster(contract_of))
    assert markdown(plan) == (GOLDEN / "plan_changes.md").read_text().rstrip("\n")


def test_golden_explanation(contract_of: MakeContract) -> None:
    plan = planned(*changed_cluster(contract_of))
    assert described(explanation(plan)) == (GOLDEN / "plan_explained.txt").read_text().rstrip("\n")


def test_golden_shop() -> None:
    clusters = MemoryClusters()
    plan = planned(desired_state(load(SHOP)), clusters, "production")
    assert text(plan) == (GOLDEN / "plan_shop.txt").read_text().rstrip("\n")
    execute(plan.accepted(), clusters)
    again = planned(desired_state(load(SHOP)), clusters, "production")
    assert text(again) == (GOLDEN / "plan_shop_again.txt").read_text().rstrip("\n")


def test_twenty_topics_fit_on_one_screen(contract_of: MakeContract) -> None:
    settings = {"cleanup.policy": ["delete"], "retention.ms": 604800000, "max.message.bytes": 2000000}
    contract = contract_of({f"c{n}": topic(f"shop.orders.{n}", settings, partitions=12) for n in range(20)})
    shown = text(planned(desired_state(contract), MemoryClusters())).splitlines()
    assert len(shown) <= 25
    assert max(map(len, shown)) <= 120
    clusters = MemoryClusters()
    execute(planned(desired_state(contract), clusters).steps, clusters)
    assert len(text(planned(desired_state(contract), clusters)).splitlines()) <= 6


def test_data_has_every_step_with_its_verdict(contract_of: MakeContract) -> None:
    plan = planned(*changed_cluster(contract_of))
    data = json.loads(json.dumps(as_data(plan)))
    assert [(step["mark"], step["name"], step["refused"]) for step in data["steps"]] == [
        ("+", "orders.created", False),
        ("~", "orders.paid", True),
        ("~", "orders.paid-value", False),
        ("-", "orders.old", True),
    ]
    assert data["unchanged"] == 10
    assert [step["id"] for step in data["steps"]] == [
        "create-topic:kafka/orders.created",
        "change-settings:kafka/orders.paid:retention.ms",
        "register-schema:kafka/orders.paid-value",
        "delete-topic:kafka/orders.old",
    ]
    allowed = as_data(plan, allow=("delete-topic:kafka/orders.old",))
    assert [step["refused"] for step in allowed["steps"]] == [False, True, False, False]


# Kafka


@pytest.mark.parametrize(
    ("key", "before", "after", "risk"),
    [
        ("retention.ms", "604800000", "259200000", Risk.DANGEROUS),
        ("retention.ms", "-1", "604800000", Risk.DANGEROUS),
        ("retention.ms", "604800000", "-1", Risk.SAFE),
        ("retention.ms", "1", "2", Risk.SAFE),
        ("retention.bytes", "-1", "5", Risk.DANGEROUS),
        ("cleanup.policy", "compact", "delete", Risk.DANGEROUS),
        ("cleanup.policy", "compact,delete", "delete", Risk.DANGEROUS),
        ("cleanup.policy", "compact", "compact,delete", Risk.DANGEROUS),
        ("cleanup.policy", "delete", "compact", Risk.DANGEROUS),
        ("cleanup.policy", "delete,compact", "compact", Risk.SAFE),
        ("max.message.bytes", "2", "1", Risk.CAUTION),
        ("max.message.bytes", "1", "2", Risk.SAFE),
        ("min.insync.replicas", "1", "2", Risk.CAUTION),
        ("unclean.leader.election.enable", "false", "true", Risk.CAUTION),
        ("compression.type", "producer", "zstd", Risk.SAFE),
    ],
)
def test_risk_of_a_setting(key: str, before: str, after: str, risk: Risk) -> None:
    found, warning = judge(key, before, after)
    assert found is risk
    assert bool(warning) is (risk is not Risk.SAFE)


@pytest.mark.parametrize(
    ("key", "left", "right", "equal"),
    [
        ("cleanup.policy", "compact,delete", "delete, compact", True),
        ("cleanup.policy", "compact", "delete", False),
        ("min.cleanable.dirty.ratio", "0.5", "0.50", True),
        ("preallocate", "True", "true", True),
        ("compression.type", "zstd", "gzip", False),
        ("retention.ms", "1", "2", False),
    ],
)
def test_values_compare_by_meaning(key: str, left: str, right: str, equal: bool) -> None:
    assert same(key, left, right) is equal


def test_only_declared_keys_are_compared(contract_of: MakeContract) -> None:
    contract = contract_of({"a": topic("a", {"retention.ms": 604800000})})
    clusters = MemoryClusters()
    clusters.kafka("kafka").create_topic(
        "a", partitions=7, replicas=3, settings={"segment.bytes": "5", "cleanup.policy": "compact"}
    )
    assert planned(desired_state(contract), clusters).steps == ()


@pytest.mark.parametrize(
    ("binding", "shown"),
    [
        ({"partitions": 6}, ["~ a partitions 4 -> 6"]),
        ({"partitions": 3}, ["! a partitions 4, contract says 3"]),
        ({"replicas": 3}, ["! a replicas 2, contract says 3"]),
        ({"partitions": 4, "replicas": 2}, []),
        ({"partitions": 5, "replicas": 1}, ["~ a partitions 4 -> 5", "! a replicas 2, contract says 1"]),
    ],
)
def test_partitions_only_grow_and_replicas_stay(
    contract_of: MakeContract, binding: dict[str, Any], shown: list[str]
) -> None:
    clusters = MemoryClusters()
    clusters.kafka("kafka").create_topic("a", partitions=4, replicas=2, settings={})
    plan = planned(desired_state(contract_of({"a": topic("a", **binding)})), clusters)
    assert lines(plan) == shown
    assert [step.risk for step in plan.accepted()] == [Risk.CAUTION] * sum(row[0] == "~" for row in shown)
    assert all("order breaks" in step.warning for step in plan.accepted())


def test_more_replicas_than_brokers_cannot_be(contract_of: MakeContract) -> None:
    plan = planned(desired_state(contract_of({"a": topic("a", replicas=5)})), MemoryClusters())
    assert lines(plan) == ["! a replicas 5, cluster has 3 brokers"]
    assert plan.accepted() == ()


@pytest.mark.parametrize("exists", [True, False])
def test_settings_that_the_broker_does_not_know(contract_of: MakeContract, exists: bool) -> None:
    settings = {"confluent.value.schema.validation": True, "retention.ms": 604800000, "foo": 1}
    desired = desired_state(contract_of({"a": topic("a", settings)}))
    clusters = MemoryClusters()
    if exists:
        clusters.kafka("kafka").create_topic("a", partitions=1, replicas=1, settings={})
    plan = planned(desired, clusters)
    created = [] if exists else ["+ a retention.ms 604800000"]
    assert lines(plan) == [*created, "! a foo 1"]
    assert [note.text for note in plan.notes] == [
        "confluent.value.schema.validation is not known to this broker and left out"
    ]


def test_settings_of_a_vendor_are_applied_where_they_are_known(contract_of: MakeContract) -> None:
    desired = desired_state(contract_of({"a": topic("a", {"confluent.value.schema.validation": True})}))
    clusters = MemoryClusters()
    kafka = clusters.kafka("kafka")
    kafka.defaults = {**kafka.defaults, "confluent.value.schema.validation": "false"}
    kafka.create_topic("a", partitions=1, replicas=1, settings={})
    plan = planned(desired, clusters)
    assert lines(plan) == ["~ a confluent.value.schema.validation false -> true"]
    assert plan.notes == ()


def test_topics_that_only_the_earlier_contract_declares(contract_of: MakeContract) -> None:
    now, before = (
        contract_of({"a": topic("a")}),
        contract_of({"a": topic("a"), "b": topic("b"), "c": topic("c")}),
    )
    clusters = MemoryClusters()
    for name in ("a", "b", "unmanaged"):
        clusters.kafka("kafka").create_topic(name, partitions=1, replicas=1, settings={})
    assert planned(desired_state(now), clusters).steps == ()
    plan = planned(desired_state(now, previous=before), clusters)
    assert lines(plan) == ["- b holds 0 events, nobody reads it"]
    assert plan.accepted() == ()
    for other in ("a", "b", "delete-topic:kafka/a", "change-settings:kafka/b", "delete-topic:pulsar/b"):
        assert plan.accepted([other]) == ()
    execute(plan.accepted(["delete-topic:kafka/b"]), clusters)
    assert set(clusters.kafka("kafka").cluster().topics) == {"a", "unmanaged"}


def test_a_step_is_allowed_by_its_kind_server_and_setting(contract_of: MakeContract) -> None:
    servers = {name: {"host": f"{name}:9092", "protocol": "kafka"} for name in ("prod", "staging")}
    settings = {"retention.ms": 5, "cleanup.policy": ["delete"]}
    bound = {"address": "orders", "bindings": {"kafka": {"topicConfiguration": settings}}}
    old = {"address": "orders.old"}
    now = contract_of({"orders": bound}, servers=servers)
    before = contract_of({"orders": bound, "old": old}, servers=servers)
    clusters = MemoryClusters()
    for server in servers:
        clusters.kafka(server).create_topic(
            "orders", partitions=1, replicas=1, settings={"retention.ms": "-1", "cleanup.policy": "compact"}
        )
        clusters.kafka(server).create_topic("orders.old", partitions=1, replicas=1, settings={})
    desired = desired_state(now, previous=before)
    plan = planned(desired, clusters)
    ids = [step_id(step) for step in plan.dangerous]
    assert sorted(ids) == [
        "change-settings:prod/orders:cleanup.policy",
        "change-settings:prod/orders:retention.ms",
        "change-settings:staging/orders:cleanup.policy",
        "change-settings:staging/orders:retention.ms",
        "delete-topic:prod/orders.old",
        "delete-topic:staging/orders.old",
    ]
    for each in ids:
        assert [step_id(step) for step in plan.accepted([each])] == [each]
        assert f"refused without --allow {each}\n" in f"{text(plan)}\n"
    # What may be allowed is known from the documents, so that a step that is done is still known.
    assert set(ids) <= allowable(desired)
    execute(plan.accepted(ids), clusters)
    after = desired_state(now, previous=before)
    assert planned(after, clusters).steps == ()
    assert set(ids) <= allowable(after)


def test_what_may_be_allowed_on_pulsar(contract_of: MakeContract) -> None:
    channel = pulsar_topic("a", retention={"time": 5}, ttl=5, compaction=1, **{"geo-replication": ["x"]})
    before = contract_of({"a": channel, "b": pulsar_topic("b")})
    desired = desired_state(contract_of({"a": channel}), previous=before)
    assert allowable(desired) == {
        "change-policy:pulsar/acme/shop:retention",
        "change-policy:pulsar/acme/shop:ttl",
        "change-policy:pulsar/acme/shop:replication",
        "change-topic-policy:pulsar/acme/shop/a:compaction",
        "remove-topic-policy:pulsar/acme/shop/a:retention",
        "remove-topic-policy:pulsar/acme/shop/a:ttl",
        "remove-topic-policy:pulsar/acme/shop/a:replication",
        "delete-pulsar-topic:pulsar/acme/shop/b",
    }


# Channels, environments, dead letters


def test_environment_overrides(contract_of: MakeContract) -> None:
    override = {"partitions": 1, "replicas": 1, "topicConfiguration": {"retention.ms": 1000}}
    binding = {
        "topicConfiguration": {"retention.ms": 5000, "cleanup.policy": ["delete"]},
        "partitions": 12,
        "replicas": 3,
        "x-penstock-environments": {"dev": override},
    }
    contract = contract_of({"a": topic("a", **binding)})
    (wanted,) = desired_state(contract, environment="dev").kafka_topics
    assert (wanted.partitions, wanted.replicas) == (1, 1)
    assert dict(wanted.settings) == {"retention.ms": "1000", "cleanup.policy": "delete"}
    (plain,) = desired_state(contract).kafka_topics
    assert (plain.partitions, plain.replicas, dict(plain.settings)["retention.ms"]) == (12, 3, "5000")
    with pytest.raises(UsageError, match="no environment 'prod'"):
        desired_state(contract, environment="prod")


def test_an_environment_may_not_make_channels_disagree(contract_of: MakeContract) -> None:
    one = topic("a", partitions=3, **{"x-penstock-environments": {"dev": {"partitions": 1}}})
    contract = contract_of({"one": one, "two": topic("a", partitions=3)})
    assert len(desired_state(contract).kafka_topics) == 1
    with pytest.raises(ContractError, match="partitions of topic a: 1 and 3"):
        desired_state(contract, environment="dev")


def test_channels_of_one_topic_complete_each_other(contract_of: MakeContract) -> None:
    contract = contract_of({"one": topic("a", partitions=3), "two": topic("a", {"retention.ms": 5})})
    (wanted,) = desired_state(contract).kafka_topics
    assert (wanted.partitions, wanted.settings) == (3, (("retention.ms", "5"),))


def test_addresses_with_parameters(contract_of: MakeContract) -> None:
    channel = topic("orders.{region}.{kind}")
    channel["parameters"] = {"region": {"enum": ["eu", "us"]}, "kind": {"default": "web"}}
    free = topic("free.{x}")
    free["parameters"] = {"x": {}}
    desired = desired_state(contract_of({"c": channel, "free": free, "none": topic(None)}))
    assert [wanted.topic for wanted in desired.kafka_topics] == ["orders.eu.web", "orders.us.web"]
    assert [(note.name, note.text) for note in desired.notes] == [
        ("free", "channel is left out: free.{x} has parameters without values"),
        ("none", "channel is left out: its address is not known"),
    ]


def by_enums(**enums: list[str] | None) -> dict[str, Any]:
    """A channel whose address has one parameter per enum; None is a parameter without values."""
    channel = topic(".".join(("orders", *(f"{{{name}}}" for name in enums))))
    channel["parameters"] = {
        name: {} if values is None else {"enum": values} for name, values in enums.items()
    }
    return channel


def test_every_address_of_a_large_enum_is_wanted_and_none_is_deleted(contract_of: MakeContract) -> None:
    values = [f"v{n}" for n in range(40)]
    before = contract_of({"c": by_enums(a=values, b=values)})
    clusters = MemoryClusters()
    execute(planned(desired_state(before), clusters).steps, clusters)
    assert len(clusters.kafka("kafka").state) == 1600
    reversed_ = contract_of({"c": by_enums(a=values[::-1], b=values[::-1])})
    desired = desired_state(reversed_, previous=before)
    assert len(desired.kafka_topics) == 1600
    assert planned(desired, clusters).steps == ()


def addresses_of(*channels: dict[str, Any]) -> list[str]:
    """The findings about the number of addresses."""
    document = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1"},
        "servers": {"kafka": {"host": "kafka.example:9092", "protocol": "kafka"}},
        "channels": {f"c{number}": channel for number, channel in enumerate(channels)},
    }
    found = validate("asyncapi.json", raw=json.dumps(document).encode()).findings
    return [finding.message for finding in found if finding.rule.id == "PK203"]


def test_too_many_addresses_are_a_finding_and_never_a_cut() -> None:
    hundred = [f"v{n}" for n in range(100)]
    assert addresses_of(by_enums(a=hundred, b=hundred)) == []
    assert addresses_of(by_enums(a=hundred, b=[*hundred, "more"])) == [
        "the document is too large: channel c0 stands for 10100 topics, at most 10000 are read"
    ]
    # A number with thousands of digits is neither made nor printed.
    (huge,) = addresses_of(by_enums(**{f"p{n}": ["a", "b"] for n in range(15_000)}))
    assert "channel c0 stands for 1000000000 topics" in huge
    # A value that is written twice is one topic, and a parameter without values makes none.
    assert addresses_of(by_enums(a=hundred * 2, b=hundred)) == []
    assert addresses_of(by_enums(a=hundred, b=[*hundred, "more"], c=None)) == []


def test_the_addresses_of_all_channels_together_are_bounded() -> None:
    hundred = [f"v{n}" for n in range(100)]
    channels = []
    for number in range(6):
        channel = by_enums(a=hundred, b=hundred)
        channels.append({**channel, "address": f"{number}.{channel['address']}"})
    assert addresses_of(*channels[:5]) == []
    assert addresses_of(*channels) == [
        "the document is too large: its channels stand for 60000 topics, at most 50000 are read"
    ]


def test_a_contract_that_was_not_checked_is_not_cut_either(contract_of: MakeContract) -> None:
    contract = contract_of({"c": by_enums(a=["x"])})
    many = tuple(f"v{n}" for n in range(10_001))
    parameter = replace(contract.channels["c"].parameters["a"], enum=many)
    channel = replace(contract.channels["c"], parameters={"a": parameter})
    with pytest.raises(ContractError, match="more than 10000 topics"):
        desired_state(replace(contract, channels={"c": channel}))


@given(
    st.lists(st.sampled_from(["{a}", "{b}", "x", ".", "xx"]), min_size=1, max_size=6).map("".join),
    st.text("x./", max_size=8),
)
def test_a_template_names_what_its_pattern_matches(template: str, name: str) -> None:
    pattern = "[^/]+".join(re.escape(text) for text in re.split(r"\{[^{}]*\}", template))
    assert is_named_by(template, name) == bool(re.fullmatch(pattern, name))


def test_a_template_of_many_parameters_is_matched_at_once() -> None:
    assert not is_named_by("{p}-" * 100 + "end", "-" * 249)


@pytest.mark.parametrize("parameters", [{"region": {}}, {"region": {"default": "eu"}}])
def test_topics_that_the_contract_may_still_name_are_not_deleted(
    contract_of: MakeContract, parameters: dict[str, Any]
) -> None:
    before = contract_of({"c": by_enums(region=["eu", "us"]), "gone": topic("gone")})
    now = {**by_enums(region=None), "parameters": parameters}
    clusters = MemoryClusters()
    execute(planned(desired_state(before), clusters).steps, clusters)
    desired = desired_state(contract_of({"c": now}), previous=before)
    assert lines(planned(desired, clusters)) == ["- gone holds 0 events, nobody reads it"]
    assert any("orders.us" in note.text and "orders.{region}" in note.text for note in desired.notes)


def test_dead_letter_channels_are_part_of_the_plan(contract_of: MakeContract) -> None:
    source = {**topic("a", partitions=1), "x-penstock-dead-letter": {"$ref": "#/channels/dead"}}
    plan = planned(desired_state(contract_of({"a": source, "dead": topic("a.dead")})), MemoryClusters())
    assert lines(plan) == ["+ a partitions 1", "+ a.dead dead letters of a"]


def test_only_the_chosen_servers_are_looked_at(contract_of: MakeContract) -> None:
    contract = contract_of({"a": topic("a"), "p": pulsar_topic("p")})
    desired = desired_state(contract, servers=["kafka"])
    assert desired.servers == {"kafka": "kafka"}
    assert (desired.pulsar_topics, desired.namespaces) == ((), ())
    with pytest.raises(UsageError, match="no server 'nope'"):
        desired_state(contract, servers=["nope"])


# Pulsar


def test_pulsar_from_nothing(contract_of: MakeContract) -> None:
    binding = {
        "retention": {"time": 60},
        "ttl": 5,
        "deduplication": True,
        "compaction": 2,
        "geo-replication": ["eu"],
    }
    desired = desired_state(
        contract_of(
            {
                "p": pulsar_topic("p", **binding, **{"x-penstock-partitions": 3}),
                "q": pulsar_topic("q", **{"x-penstock-partitions": 0}),
            }
        )
    )
    clusters = MemoryClusters()
    plan = planned(desired, clusters)
    assert lines(plan) == [
        "+ acme",
        "+ acme/shop",
        "+ acme/shop retention 60 min, -1 MB",
        "+ acme/shop ttl 5",
        "+ acme/shop replication eu",
        "+ acme/shop/p partitions 3",
        "+ acme/shop/p deduplication true",
        "+ acme/shop/p compaction 2097152",
        "+ acme/shop/q without partitions",
    ]
    assert {step.risk for step in plan.steps} == {Risk.SAFE}
    assert execute(plan.accepted(), clusters).error is None
    pulsar = clusters.pulsar("pulsar")
    assert pulsar.namespace("acme/shop") == NamespaceState(
        retention=Retention(minutes=60, megabytes=-1), ttl=5, replication=("eu",)
    )
    assert planned(desired, clusters).steps == ()


def kept(minutes: int, megabytes: int) -> NamespaceState:
    return NamespaceState(retention=Retention(minutes=minutes, megabytes=megabytes))


@pytest.mark.parametrize(
    ("before", "binding", "risk"),
    [
        (kept(60, 5), {"retention": {"time": 30, "size": 5}}, Risk.DANGEROUS),
        (kept(-1, -1), {"retention": {"time": 30}}, Risk.DANGEROUS),
        (kept(60, 5), {"retention": {"time": 90, "size": 5}}, Risk.SAFE),
        (NamespaceState(), {"retention": {"time": 30}}, Risk.SAFE),
        (NamespaceState(ttl=10), {"ttl": 5}, Risk.DANGEROUS),
        (NamespaceState(ttl=10), {"ttl": 0}, Risk.SAFE),
        (NamespaceState(), {"ttl": 5}, Risk.DANGEROUS),
        (NamespaceState(replication=("eu", "us")), {"geo-replication": ["eu"]}, Risk.DANGEROUS),
        (NamespaceState(replication=("eu",)), {"geo-replication": ["us", "eu"]}, Risk.SAFE),
    ],
)
def test_risk_of_a_namespace_policy(
    contract_of: MakeContract, before: NamespaceState, binding: dict[str, Any], risk: Risk
) -> None:
    clusters = MemoryClusters()
    pulsar = clusters.pulsar("pulsar")
    pulsar.tenants["acme"] = {"acme/shop": before}
    pulsar.create_topic("persistent://acme/shop/p", 1)
    (step,) = planned(desired_state(contract_of({"p": pulsar_topic("p", **binding)})), clusters).steps
    assert (name_of(step), step.risk) == ("acme/shop", risk)


@pytest.mark.parametrize(
    ("state", "binding", "shown", "risk"),
    [
        ({"partitions": 2}, {"x-penstock-partitions": 4}, "~ partitions 2 -> 4", Risk.CAUTION),
        ({"partitions": 4}, {"x-penstock-partitions": 2}, "! partitions 4, contract says 2", Risk.IMPOSSIBLE),
        ({"partitions": 0}, {"x-penstock-partitions": 2}, "! partitions 0, contract says 2", Risk.IMPOSSIBLE),
        ({"compaction": 5}, {"compaction": 0}, "~ compaction 5 -> 0", Risk.DANGEROUS),
        ({"deduplication": True}, {"deduplication": False}, "~ deduplication true -> false", Risk.CAUTION),
    ],
)
def test_pulsar_topics_that_differ(
    contract_of: MakeContract, state: dict[str, Any], binding: dict[str, Any], shown: str, risk: Risk
) -> None:
    clusters = MemoryClusters()
    pulsar = clusters.pulsar("pulsar")
    pulsar.create_tenant("acme")
    pulsar.create_namespace("acme/shop")
    pulsar.state["persistent://acme/shop/p"] = PulsarTopicState(**{"partitions": 1, **state})
    plan = planned(desired_state(contract_of({"p": pulsar_topic("p", **binding)})), clusters)
    assert lines(plan) == [f"{shown[0]} acme/shop/p{shown[1:]}"]
    assert plan.steps[0].risk is risk


def test_pulsar_topics_that_are_declared_no_longer(contract_of: MakeContract) -> None:
    now, before = (
        contract_of({"p": pulsar_topic("p")}),
        contract_of({"p": pulsar_topic("p"), "q": pulsar_topic("q")}),
    )
    clusters = MemoryClusters()
    execute(planned(desired_state(before), clusters).accepted(), clusters)
    clusters.pulsar("pulsar").usages["persistent://acme/shop/q"] = PulsarUsage(
        entries=1, subscriptions=("s", "t")
    )
    plan = planned(desired_state(now, previous=before), clusters)
    assert lines(plan) == ["- acme/shop/q holds 1 entry, subscriptions s, t read it"]
    assert [step.risk for step in plan.steps] == [Risk.DANGEROUS]


# Registries

RECORD = {"type": "record", "name": "Paid", "namespace": "shop", "fields": [{"name": "id", "type": "string"}]}
AVRO = {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": RECORD}


def with_messages(
    contract_of: MakeContract, settings: dict[str, Any] | None = None, **messages: Any
) -> Desired:
    channel = {**topic("t", settings), "messages": messages}
    return desired_state(contract_of({"c": channel}), servers=["kafka"])


@pytest.mark.parametrize(
    ("strategy", "subjects"),
    [
        (None, ["t-key", "t-value"]),
        ("TopicNameStrategy", ["t-key", "t-value"]),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", ["shop.Key", "shop.Paid"]),
        ("TopicRecordNameStrategy", ["t-shop.Key", "t-shop.Paid"]),
        ("QualifiedRecordIdStrategy", ["shop.Key", "shop.Paid"]),
    ],
)
def test_subjects_are_named_by_the_strategy(
    contract_of: MakeContract, strategy: str | None, subjects: list[str]
) -> None:
    kafka: dict[str, Any] = {"key": {**RECORD, "name": "Key"}}
    if strategy is not None:
        kafka["schemaLookupStrategy"] = strategy
    desired = with_messages(contract_of, paid={"payload": AVRO, "bindings": {"kafka": kafka}})
    assert [(wanted.subject, wanted.schema_type) for wanted in desired.subjects] == [
        (subject, "AVRO") for subject in subjects
    ]


def test_the_topic_may_name_the_strategy(contract_of: MakeContract) -> None:
    settings = {"confluent.value.subject.name.strategy": "io.confluent.TopicRecordNameStrategy"}
    desired = with_messages(contract_of, settings, paid={"payload": AVRO})
    assert [wanted.subject for wanted in desired.subjects] == ["t-shop.Paid"]


def test_a_plain_key_needs_no_schema(contract_of: MakeContract) -> None:
    message = {"payload": AVRO, "bindings": {"kafka": {"key": {"type": "string"}}}}
    assert [w.subject for w in with_messages(contract_of, paid=message).subjects] == ["t-value"]


def test_messages_of_one_topic_share_a_subject(contract_of: MakeContract) -> None:
    item = {"type": "object", "properties": {"self": {"$ref": "#/components/schemas/item"}}}
    one = {
        "type": "object",
        "properties": {"item": {"$ref": "#/components/schemas/item"}, "enum": {"type": "string"}},
    }
    channel = {
        **topic("t"),
        "messages": {"one": {"payload": one}, "two": {"payload": {"type": "object", "required": ["x"]}}},
    }
    contract = contract_of({"c": channel}, components={"schemas": {"item": item}})
    (wanted,) = desired_state(contract, servers=["kafka"]).subjects
    schema = json.loads(wanted.schema)
    assert schema["oneOf"] == [{"$ref": "#/definitions/one"}, {"$ref": "#/definitions/two"}]
    (name,) = set(schema["definitions"]) - {"one", "two"}
    assert schema["definitions"]["one"]["properties"]["item"] == {"$ref": f"#/definitions/{name}"}
    assert schema["definitions"][name]["properties"]["self"] == {"$ref": f"#/definitions/{name}"}
    import jsonschema_rs

    validator = jsonschema_rs.Draft7Validator(schema)
    assert validator.is_valid({"item": {"self": {}}})
    assert not validator.is_valid({"item": {"self": 3}})


def test_avro_messages_share_a_union(contract_of: MakeContract) -> None:
    import fastavro

    shared = {"type": "enum", "name": "Kind", "namespace": "shop", "symbols": ["A"]}

    def record(name: str) -> dict[str, Any]:
        fields = [{"name": "kind", "type": shared}]
        return {**AVRO, "schema": {"type": "record", "name": name, "namespace": "shop", "fields": fields}}

    (wanted,) = with_messages(
        contract_of, one={"payload": record("One")}, two={"payload": record("Two")}
    ).subjects
    schema = json.loads(wanted.schema)
    assert schema[1]["fields"][0]["type"] == "shop.Kind"
    assert fastavro.parse_schema(schema)


def test_a_union_keeps_the_namespaces_of_nested_types(contract_of: MakeContract) -> None:
    import fastavro

    def record(namespace: str, symbols: list[str]) -> dict[str, Any]:
        fields = [{"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": symbols}}]
        return {**AVRO, "schema": {"type": "record", "name": "R", "namespace": namespace, "fields": fields}}

    one, two = {"payload": record("a", ["A"])}, {"payload": record("b", ["B"])}
    (wanted,) = with_messages(contract_of, one=one, two=two).subjects
    assert fastavro.parse_schema(json.loads(wanted.schema))
    clash = {"payload": record("a", ["B"])}
    (blocked,) = with_messages(contract_of, one=one, two=clash).subjects
    assert blocked.problem == "messages one, two have schemas that one subject cannot hold"


def test_schemas_that_one_subject_cannot_hold(contract_of: MakeContract) -> None:
    desired = with_messages(contract_of, one={"payload": AVRO}, two={"payload": {"type": "object"}})
    plan = planned(desired, MemoryClusters())
    assert lines(plan)[1:] == ["! t-value messages one, two have schemas that one subject cannot hold"]


def test_a_strategy_that_names_no_subject(contract_of: MakeContract) -> None:
    kafka = {"schemaLookupStrategy": "RecordNameStrategy"}
    desired = with_messages(contract_of, one={"payload": {"type": "object"}, "bindings": {"kafka": kafka}})
    (_, blocked) = planned(desired, MemoryClusters()).steps
    assert line_of(blocked).detail == "RecordNameStrategy gives no subject for message one"


def test_a_refusal_shows_the_reason_of_the_registry(contract_of: MakeContract) -> None:
    desired = with_messages(contract_of, paid={"payload": AVRO})
    clusters = MemoryClusters()
    registry = clusters.registry("kafka")
    registry.register("t-value", "AVRO", '"string"')
    registry.judge = lambda latest, _schema: Verdict(compatible=False, reason=f"not after v{latest.version}")
    plan = planned(desired, clusters)
    assert lines(plan)[1:] == ["! t-value v1, BACKWARD refused"]
    assert "not after v1" in explanation(plan)
    assert plan.refused() == plan.steps[1:]


def test_a_newer_version_by_somebody_else_is_a_note(contract_of: MakeContract) -> None:
    desired = with_messages(contract_of, paid={"payload": AVRO})
    clusters = MemoryClusters()
    execute(planned(desired, clusters).accepted(), clusters)
    clusters.registry("kafka").state["t-value"].append(
        Registered(version=2, schema_type="AVRO", schema='"int"')
    )
    plan = planned(desired, clusters)
    assert plan.steps == ()
    assert [(note.name, note.text) for note in plan.notes] == [
        ("t-value", "the contract has v1, the newest version is v2")
    ]


ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "com.shop",
    "fields": [{"name": "s", "type": "string"}],
}
FIELDS = ({"name": "to", "type": ADDRESS}, {"name": "from", "type": ["null", "com.shop.Address"]})
INLINE = {"type": "record", "name": "Order", "namespace": "com.shop", "fields": list(FIELDS)}
REFERRING = {
    "type": "record",
    "name": "com.shop.Order",
    "fields": [{"name": "to", "type": "Address"}, {"name": "from", "type": ["null", "com.shop.Address"]}],
}


def avro_topic(schema: Any) -> dict[str, Any]:
    payload = {"schemaFormat": "application/vnd.apache.avro+json;version=1.11.0", "schema": schema}
    return {**topic("o"), "messages": {"m": {"payload": payload}}}


@pytest.mark.parametrize(("address", "steps"), [(ADDRESS, 0), ({**ADDRESS, "fields": []}, 1)])
def test_a_schema_with_references_is_the_same_as_one_that_is_complete(
    contract_of: MakeContract, address: dict[str, Any], steps: int
) -> None:
    clusters = MemoryClusters()
    registry = clusters.registry("kafka")
    registry.register("com.shop.Address", "AVRO", json.dumps(address))
    reference = SchemaReference(name="com.shop.Address", subject="com.shop.Address", version=1)
    registry.register("o-value", "AVRO", json.dumps(REFERRING), [reference])
    clusters.kafka("kafka").create_topic("o", partitions=1, replicas=1, settings={})
    plan = planned(desired_state(contract_of({"o": avro_topic(INLINE)})), clusters)
    assert [step.kind for step in plan.steps] == ["register-schema"] * steps


def test_a_registry_that_checks_nothing_is_told(contract_of: MakeContract) -> None:
    clusters = MemoryClusters()
    desired = desired_state(contract_of({"o": avro_topic(INLINE)}))
    assert execute(planned(desired, clusters).accepted(), clusters).error is None
    assert planned(desired, clusters).notes == ()
    clusters.registry("kafka").level = "NONE"
    plan = planned(desired, clusters)
    assert plan.steps == ()
    assert [note.text for note in plan.notes] == ["its compatibility is NONE: the registry takes any schema"]
    changed = {**INLINE, "fields": [FIELDS[0]]}
    (step,) = planned(desired_state(contract_of({"o": avro_topic(changed)})), clusters).steps
    assert (step.risk, line_of(step).detail) == (Risk.CAUTION, "v1 -> v2, not checked")


def test_more_replicas_in_sync_than_there_are_is_refused(contract_of: MakeContract) -> None:
    clusters = MemoryClusters()
    says = desired_state(contract_of({"a": topic("a", {"min.insync.replicas": 5, "retention.ms": 7})}))
    clusters.kafka("kafka").create_topic("a", partitions=1, replicas=1, settings={})
    assert lines(planned(says, clusters)) == [
        "~ a retention.ms 604800000 -> 7",
        "! a min.insync.replicas 5, topic has 1 replica",
    ]
    both = desired_state(contract_of({"b": topic("b", {"min.insync.replicas": 3}, replicas=2)}))
    assert lines(planned(both, clusters)) == ["! b min.insync.replicas 3, topic has 2 replicas"]


def test_policies_of_what_is_not_stored_are_left_out(contract_of: MakeContract) -> None:
    channel = pulsar_topic("p", persistence="non-persistent", compaction=1, deduplication=True)
    assert not any(
        "deduplication" in line or "compaction" in line
        for line in lines(planned(desired_state(contract_of({"p": channel})), MemoryClusters()))
    )
