"""Doing plans in memory: order, failure in the middle, plan files, stale and hostile ones."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.brokers.kafka_layout import TopicUsage
from penstock.contract import Contract, load
from penstock.contract.actual import read_actual
from penstock.contract.apply import execute
from penstock.contract.desired import Desired, desired_state
from penstock.contract.memory import MemoryClusters, MemoryKafka
from penstock.contract.plan import Plan, make_plan
from penstock.contract.plan_file import MAX_BYTES, PlanFile, load_plan, resume, save_plan
from penstock.contract.steps import Blocked, RegisterSchema, name_of, step_id
from penstock.errors import ClusterError, InternalError, Refused, Unreachable, UsageError

GOLDEN = Path(__file__).parent / "golden"
MakeContract = Callable[..., Contract]


def topic(address: str, settings: dict[str, Any] | None = None, **binding: Any) -> dict[str, Any]:
    kafka = {**binding, **({"topicConfiguration": settings} if settings else {})}
    return {"address": address, "servers": [{"$ref": "#/servers/kafka"}], "bindings": {"kafka": kafka}}


def pulsar(address: str, **binding: Any) -> dict[str, Any]:
    declared = {"namespace": "shop", "persistence": "persistent", **binding}
    return {"address": address, "servers": [{"$ref": "#/servers/pulsar"}], "bindings": {"pulsar": declared}}


def planned(desired: Desired, clusters: MemoryClusters) -> Plan:
    return make_plan(desired, read_actual(desired, clusters))


def state(clusters: MemoryClusters) -> set[str]:
    return set(clusters.kafka("kafka").cluster().topics)


class Fragile(MemoryKafka):
    """A Kafka that goes away before it creates one topic."""

    breaks_at = ""

    def create_topic(self, topic: str, **rest: Any) -> None:
        if topic == self.breaks_at:
            raise Unreachable("cannot reach kafka")
        super().create_topic(topic, **rest)


@pytest.fixture
def four(contract_of: MakeContract) -> Desired:
    return desired_state(contract_of({name: topic(name, partitions=2) for name in "abcd"}))


def fragile(breaks_at: str) -> MemoryClusters:
    kafka = Fragile()
    kafka.breaks_at = breaks_at
    return MemoryClusters(_kafka={"kafka": kafka})


def repair(clusters: MemoryClusters) -> None:
    kafka = clusters.kafka("kafka")
    assert isinstance(kafka, Fragile)
    kafka.breaks_at = ""


def test_a_failure_in_the_middle_tells_what_was_done(four: Desired) -> None:
    clusters = fragile("c")
    told: list[str] = []
    outcome = execute(planned(four, clusters).accepted(), clusters, lambda step: told.append(name_of(step)))
    assert [name_of(step) for step in outcome.done] == told == ["a", "b"]
    assert [name_of(step) for step in outcome.left] == ["c", "d"]
    assert isinstance(outcome.error, Unreachable)
    assert state(clusters) == {"a", "b"}


def test_the_next_plan_goes_on_where_the_last_one_stopped(four: Desired) -> None:
    clusters = fragile("c")
    execute(planned(four, clusters).accepted(), clusters)
    repair(clusters)
    rest = planned(four, clusters)
    assert [name_of(step) for step in rest.steps] == ["c", "d"]
    assert execute(rest.accepted(), clusters).error is None
    assert planned(four, clusters).steps == ()


# Two applies at once


def test_steps_that_another_apply_did_count_as_done(contract_of: MakeContract) -> None:
    channels = {
        "a": topic("a", partitions=2),
        "b": topic("b", partitions=4),
        "p": pulsar("p"),
        "q": pulsar("q"),
    }
    before = contract_of({**channels, "old": topic("old"), "older": pulsar("older")})
    desired = desired_state(contract_of(channels), previous=before)
    clusters = MemoryClusters()
    clusters.kafka("kafka").create_topic("b", partitions=1, replicas=1, settings={})
    clusters.kafka("kafka").create_topic("old", partitions=1, replicas=1, settings={})
    there = clusters.pulsar("pulsar")
    there.create_tenant("acme")
    there.create_namespace("acme/other")
    plan = planned(desired, clusters)
    there.create_namespace("acme/shop")
    there.create_topic("persistent://acme/shop/older", 1)
    late = planned(desired, clusters)
    assert {step.kind for step in (*plan.steps, *late.steps)} == {
        "create-namespace",
        "create-topic",
        "add-partitions",
        "delete-topic",
        "create-pulsar-topic",
        "delete-pulsar-topic",
    }
    steps = late.accepted([step_id(step) for step in late.dangerous])
    assert execute(steps, clusters).error is None
    told: list[str] = []
    again = execute(steps, clusters, lambda step: told.append(step_id(step)))
    assert (again.error, again.done, len(told)) == (None, steps, len(steps))
    assert execute([step for step in plan.steps if step.kind == "create-namespace"], clusters).error is None


def test_a_tenant_that_another_apply_created(contract_of: MakeContract) -> None:
    desired, clusters = desired_state(contract_of({"p": pulsar("p")})), MemoryClusters()
    steps = planned(desired, clusters).steps
    assert [step.kind for step in steps][:2] == ["create-tenant", "create-namespace"]
    clusters.pulsar("pulsar").create_tenant("acme")
    assert execute(steps, clusters).error is None


def test_what_a_cluster_refuses_and_does_not_have_is_a_failure(contract_of: MakeContract) -> None:
    clusters = MemoryClusters()
    steps = planned(desired_state(contract_of({"a": topic("a", replicas=3)})), clusters).steps
    clusters.kafka("kafka").brokers = 1
    outcome = execute(steps, clusters, agreeing=0.0)
    assert "Replication factor" in str(outcome.error)


def test_a_blocked_step_is_never_executed() -> None:
    step = Blocked(server="kafka", noun="topic", name="a", difference="", why="", next="")
    with pytest.raises(InternalError):
        execute([step], MemoryClusters())


# Plan files


def saved(path: Path, plan: Plan, **more: Any) -> PlanFile:
    save_plan(path, PlanFile(contract="asyncapi.yaml", plan=plan, **more))
    return load_plan(path)


def test_a_plan_file_brings_the_same_plan_back(contract_of: MakeContract, tmp_path: Path) -> None:
    channels = {
        "a": topic("a", {"retention.ms": 5}, partitions=2),
        "b": {**topic("b"), "messages": {"m": {"payload": {"type": "object"}}}},
        "p": pulsar("p", retention={"time": 5}, deduplication=True),
    }
    desired = desired_state(contract_of(channels), previous=contract_of({**channels, "old": topic("old")}))
    clusters = MemoryClusters()
    clusters.kafka("kafka").create_topic("a", partitions=1, replicas=1, settings={"retention.ms": "-1"})
    clusters.kafka("kafka").create_topic("old", partitions=1, replicas=1, settings={})
    plan = planned(desired, clusters)
    assert {step.kind for step in plan.steps} >= {"add-partitions", "change-settings", "delete-topic"}
    file = saved(tmp_path / "x.plan", plan, previous="old.yaml", servers=("kafka",))
    assert (file.plan, file.previous, file.servers) == (plan, "old.yaml", ("kafka",))
    assert file.plan.actual == plan.actual
    assert [step.risk for step in file.plan.steps] == [step.risk for step in plan.steps]
    assert resume(file, plan, tmp_path / "x.plan") == plan


def test_a_plan_is_stale_when_the_clusters_changed(four: Desired, tmp_path: Path) -> None:
    clusters = MemoryClusters()
    file = saved(tmp_path / "x.plan", planned(four, clusters))
    clusters.kafka("kafka").create_topic("a", partitions=2, replicas=1, settings={})
    with pytest.raises(Refused, match="the clusters changed") as refused:
        resume(file, planned(four, clusters), tmp_path / "x.plan")
    assert refused.value.exit_code == 4


def test_a_plan_is_stale_when_the_contract_changed(
    four: Desired, contract_of: MakeContract, tmp_path: Path
) -> None:
    clusters = MemoryClusters()
    file = saved(tmp_path / "x.plan", planned(four, clusters))
    other = desired_state(contract_of({name: topic(name, partitions=2) for name in "abc"}))
    with pytest.raises(Refused, match="the contract changed"):
        resume(file, planned(other, clusters), tmp_path / "x.plan")


def test_an_edited_plan_is_refused(four: Desired, tmp_path: Path) -> None:
    path = tmp_path / "x.plan"
    plan = planned(four, MemoryClusters())
    saved(path, plan)
    path.write_text(path.read_text().replace('"topic": "d"', '"topic": "evil"'))
    with pytest.raises(Refused, match="the file changed"):
        resume(load_plan(path), plan, path)


def test_things_nobody_declared_do_not_make_a_plan_stale(four: Desired, tmp_path: Path) -> None:
    clusters = MemoryClusters()
    file = saved(tmp_path / "x.plan", planned(four, clusters))
    clusters.kafka("kafka").create_topic("unmanaged", partitions=2, replicas=1, settings={})
    fresh = planned(four, clusters)
    assert resume(file, fresh, tmp_path / "x.plan") == fresh


def test_a_fuller_topic_does_not_make_a_plan_stale(contract_of: MakeContract, tmp_path: Path) -> None:
    now, before = contract_of({"a": topic("a")}), contract_of({"a": topic("a"), "old": topic("old")})
    desired = desired_state(now, previous=before)
    clusters = MemoryClusters()
    kafka = clusters.kafka("kafka")
    kafka.create_topic("old", partitions=1, replicas=1, settings={})
    file = saved(tmp_path / "x.plan", planned(desired, clusters))
    kafka.usages["old"] = TopicUsage(records=5, groups=("g",))
    kafka.brokers = 2
    fresh = planned(desired, clusters)
    assert resume(file, fresh, tmp_path / "x.plan") == fresh


def test_an_interrupted_plan_goes_on(four: Desired, tmp_path: Path) -> None:
    path = tmp_path / "x.plan"
    clusters = fragile("c")
    plan = planned(four, clusters)
    file = saved(path, plan)
    outcome = execute(plan.accepted(), clusters)
    save_plan(path, file.progressed(len(outcome.done)))
    repair(clusters)
    left = resume(load_plan(path), planned(four, clusters), path)
    assert [name_of(step) for step in left.steps] == ["c", "d"]


def test_an_interrupted_plan_does_nothing_that_was_not_shown(
    contract_of: MakeContract, tmp_path: Path
) -> None:
    path = tmp_path / "x.plan"
    channels = {"a": topic("a", {"retention.ms": 5000}), "b": topic("b")}
    desired = desired_state(contract_of(channels))
    clusters = MemoryClusters()
    clusters.kafka("kafka").create_topic("a", partitions=1, replicas=1, settings={"retention.ms": "1000"})
    file = saved(path, planned(desired, clusters), started=True)
    clusters.kafka("kafka").change_settings("a", {"retention.ms": "9000"})
    fresh = planned(desired, clusters)
    assert set(fresh.steps) == set(file.plan.steps)  # the same aim, but now events would be deleted
    with pytest.raises(Refused):
        resume(file, fresh, path)


def test_an_interrupted_namespace_goes_on(contract_of: MakeContract, tmp_path: Path) -> None:
    path = tmp_path / "x.plan"
    desired = desired_state(contract_of({"p": pulsar("p", retention={"time": 5}, ttl=7)}))
    clusters = MemoryClusters()
    plan = planned(desired, clusters)
    file = saved(path, plan, started=True)
    execute(plan.steps[:2], clusters)  # tenant and namespace, no policy yet
    left = resume(file, planned(desired, clusters), path)
    assert execute(left.accepted(), clusters).error is None
    assert planned(desired, clusters).steps == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"penstock_plan": 1, "contract": "x", "plan": 3}',
        b'{"contract": "x", "plan": {"title": "t", "version": "1", "steps": [{"kind": "rm -rf"}]}}',
        b'{"contract": "x", "plan": {"title": "t", "version": "1", "steps": [{"kind": "create-topic"}]}}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_a_file_that_is_no_plan(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.plan"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a plan") as refused:
        load_plan(path)
    assert not str(refused.value.why).startswith(":")


def test_a_plan_of_another_format(four: Desired, tmp_path: Path) -> None:
    path = tmp_path / "x.plan"
    save_plan(path, replace(PlanFile(contract="x", plan=planned(four, MemoryClusters())), penstock_plan=2))
    with pytest.raises(UsageError, match="format 2"):
        load_plan(path)


def test_a_file_that_cannot_be_read_or_written(four: Desired, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_plan(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot write"):
        save_plan(tmp_path / "no" / "x", PlanFile(contract="x", plan=planned(four, MemoryClusters())))
    huge = tmp_path / "huge"
    with huge.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(UsageError, match="larger than"):
        load_plan(huge)


def test_a_plan_file_is_on_the_disk_before_it_has_its_name(
    four: Desired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, done = tmp_path / "x.plan", list[str]()
    fsync, replace_file = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        assert os.fstat(descriptor).st_size > 0
        fsync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        done.append("rename")
        return replace_file(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    save_plan(path, PlanFile(contract="x", plan=planned(four, MemoryClusters())))
    assert done == ["file", "rename", "folder"]


def test_a_plan_that_does_not_fit_on_the_disk_leaves_the_former_one(
    four: Desired, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "x.plan"
    path.write_text("former")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        save_plan(path, PlanFile(contract="x", plan=planned(four, MemoryClusters())))
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"x.plan": "former"}


def test_a_plan_file_is_plain_json(four: Desired, tmp_path: Path) -> None:
    saved(tmp_path / "x.plan", planned(four, MemoryClusters()))
    data = json.loads((tmp_path / "x.plan").read_text())
    assert [step["topic"] for step in data["plan"]["steps"]] == ["a", "b", "c", "d"]


# The twins keep the rules of real clusters


def test_memory_refuses_what_a_cluster_refuses() -> None:
    clusters = MemoryClusters()
    kafka, pulsar_twin = clusters.kafka("k"), clusters.pulsar("p")
    kafka.create_topic("a", partitions=2, replicas=1, settings={})
    refused: list[Callable[[], object]] = [
        lambda: kafka.create_topic("a", partitions=1, replicas=1, settings={}),
        lambda: kafka.create_topic("b", partitions=1, replicas=9, settings={}),
        lambda: kafka.create_topic("b", partitions=1, replicas=1, settings={"foo": "1"}),
        lambda: kafka.add_partitions("a", 1),
        lambda: kafka.delete_topic("none"),
        lambda: pulsar_twin.create_namespace("none/x"),
        lambda: pulsar_twin.create_topic("persistent://public/none/x", 1),
        lambda: pulsar_twin.set_policy("public/none", "ttl", 1),
        lambda: pulsar_twin.delete_topic("persistent://public/default/x"),
        lambda: pulsar_twin.create_tenant("public"),
    ]
    for call in refused:
        with pytest.raises(ClusterError):
            call()


# What the version before wrote


BEFORE = GOLDEN / "before"
"""A plan file and its documents, made before steps had identities and schemas had references."""


def earlier_situation() -> tuple[Desired, MemoryClusters]:
    """The documents of that plan, and the clusters it was made for."""
    clusters = MemoryClusters()
    for name, partitions in (("old", 3), ("less", 2), ("g", 1)):
        clusters.kafka("kafka").create_topic(name, partitions=partitions, replicas=1, settings={})
    there = clusters.pulsar("pulsar")
    there.create_tenant("acme")
    there.create_namespace("acme/there")
    there.create_topic("persistent://acme/there/q", 2)
    there.create_topic("persistent://acme/there/h", 1)
    desired = desired_state(load(BEFORE / "asyncapi.json"), previous=load(BEFORE / "previous.json"))
    return desired, clusters


def test_a_plan_of_the_version_before_is_the_plan_of_this_one() -> None:
    desired, clusters = earlier_situation()
    file, fresh = load_plan(BEFORE / "plan.json"), planned(desired, clusters)
    assert [step_id(step) for step in file.plan.steps] == [step_id(step) for step in fresh.steps]
    assert (file.plan.document, file.plan.actual) == (fresh.document, fresh.actual)
    assert resume(file, fresh, BEFORE / "plan.json") is fresh


def test_a_plan_that_the_version_before_began_goes_on(tmp_path: Path) -> None:
    desired, clusters = earlier_situation()
    done = execute(planned(desired, clusters).accepted()[:4], clusters).done
    path = tmp_path / "x.plan"
    save_plan(path, load_plan(BEFORE / "plan.json").progressed(len(done)))
    rest = resume(load_plan(path), planned(desired, clusters), path)
    allowed = [step_id(step) for step in rest.dangerous]
    assert {"delete-topic:kafka/g", "delete-pulsar-topic:pulsar/acme/there/h"} < set(allowed)
    assert execute(rest.accepted(allowed), clusters).error is None
    assert [step.kind for step in planned(desired, clusters).steps] == ["blocked"]


@pytest.mark.parametrize(("versions", "referred"), [((1,), 1), ((None,), 2), ((), 2)])
def test_a_schema_refers_to_the_version_that_was_planned(
    versions: tuple[int | None, ...], referred: int
) -> None:
    clusters = MemoryClusters()
    registry = clusters.registry("registry")
    for schema in ('"int"', '"long"'):
        registry.register("shop.Item", "AVRO", schema)
    step = RegisterSchema(
        server="registry",
        subject="orders-value",
        schema_type="AVRO",
        schema='"string"',
        uses=("shop.Item",),
        versions=versions,
    )
    assert execute([step], clusters).error is None
    found = registry.latest("orders-value")
    assert found is not None and found.references == (("shop.Item", referred),)
