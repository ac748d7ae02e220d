"""`penstock topics` without servers: a thousand topics cost no more than those that are shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.kafka_layout import TopicLayout
from penstock.brokers.pulsar_subscriptions import Cursor, TopicPart, TopicStats
from penstock.cli.app import main
from penstock.cli.clusters import Cluster
from penstock.cli.standing import pulsar_readers
from penstock.errors import AccessDenied, ClusterError


class Kafka:
    """A thousand topics of two partitions, and a note of what was looked into."""

    def __init__(self) -> None:
        self.looked_into: set[str] = set()

    def cluster(self, expected: Sequence[str] = ()) -> Any:
        layout = TopicLayout(partitions=2, replicas=(1,))
        topics = {f"k-{number:04}": layout for number in range(1000)}
        return SimpleNamespace(topics=topics, hidden={name for name in expected if "secret" in name})

    def groups(self) -> tuple[()]:
        return ()

    def commits(self, _names: list[str]) -> dict[str, Any]:
        return {}

    members = commits

    def places(self, parts: Iterable[tuple[str, int]], _start: Any) -> dict[tuple[str, int], int]:
        asked = list(parts)
        self.looked_into |= {topic for topic, _ in asked}
        return dict.fromkeys(asked, 0)


class Pulsar:
    """A thousand topics without partitions."""

    def __init__(self) -> None:
        self.looked_into: set[str] = set()

    def namespaces(self) -> tuple[str, ...]:
        return ("public/default",)

    hidden: tuple[str, ...] = ()

    def topic_names(self, _namespaces: Any, *, absent_ok: bool) -> tuple[Mapping[str, bool], tuple[str, ...]]:
        found = {f"persistent://public/default/p-{number:04}": False for number in range(1000)}
        return found, self.hidden

    def topics(self, names: Sequence[str], _policies: Sequence[str] = ()) -> Mapping[str, Any]:
        return {name: AccessDenied("may not") if "secret" in name else None for name in names}

    def stats(self, topics: Mapping[str, bool]) -> Mapping[str, TopicStats]:
        self.looked_into |= set(topics)
        return {
            name: TopicStats(topic=name, partitions=0, parts={0: TopicPart(topic=name, entries=1)})
            for name in topics
        }

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch, isolated_home: Path) -> tuple[Kafka, Pulsar]:
    (isolated_home / ".git").mkdir()
    (isolated_home / "penstock.yaml").write_text(
        "contexts:\n  dev:\n    servers:\n"
        "      kafka: {address: 'localhost:1'}\n      pulsar: {address: 'pulsar://localhost:1'}\n"
    )
    made = Kafka(), Pulsar()
    for name, client in zip(("kafka", "pulsar"), made, strict=True):
        monkeypatch.setattr(Cluster, name, property(lambda _self, client=client: client))
    return made


@pytest.mark.parametrize(
    ("words", "kafkas", "pulsars"),
    [((), 100, 0), (("p-00*",), 0, 100), (("*-099*", "--limit", "15"), 10, 5), (("--limit", "1"), 1, 0)],
)
def test_only_what_is_shown_is_looked_into(
    clusters: tuple[Kafka, Pulsar],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    kafkas: int,
    pulsars: int,
) -> None:
    assert main(["topics", *words, "-o", "json"]) == 0
    told = capsys.readouterr()
    assert [len(each.looked_into) for each in clusters] == [kafkas, pulsars]
    assert len(json.loads(told.out)) == kafkas + pulsars


def test_how_many_are_left_out_is_told(
    clusters: tuple[Kafka, Pulsar], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "--limit", "2"]) == 0
    assert "2 shown of 2000; narrow with a name" in capsys.readouterr().err


def test_a_namespace_that_may_not_be_listed_is_named_beside_the_rest(
    clusters: tuple[Kafka, Pulsar], capsys: pytest.CaptureFixture[str]
) -> None:
    clusters[1].hidden = ("acme/secret",)
    assert main(["topics", "--server", "pulsar", "--limit", "2"]) == 0
    said = capsys.readouterr()
    assert "pulsar: this user may not list the topics of acme/secret" in said.err
    assert "p-0000" in said.out


def test_who_may_not_list_namespaces_sees_those_of_the_contract(
    clusters: tuple[Kafka, Pulsar],
    isolated_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def refuse() -> tuple[str, ...]:
        raise ClusterError("pulsar refused: tenants")

    def note(namespaces: Iterable[str], *, absent_ok: bool) -> tuple[Mapping[str, bool], tuple[str, ...]]:
        assert absent_ok, "apply may not have made it yet"
        asked.extend(namespaces)
        return {}, ()

    monkeypatch.setattr(clusters[1], "namespaces", refuse)
    monkeypatch.setattr(clusters[1], "topic_names", note)
    assert main(["topics", "--server", "pulsar"]) == 1, "without a contract nothing is known"
    assert "pulsar refused: tenants" in capsys.readouterr().err
    (isolated_home / "asyncapi.yaml").write_text(
        "asyncapi: 3.0.0\ninfo: {title: shop, version: 1.0.0}\n"
        "servers:\n  pulsar: {host: 'localhost:1', protocol: pulsar}\n"
        "channels:\n  parcels:\n    address: parcels\n"
        "    bindings: {pulsar: {namespace: depot, persistence: persistent}}\n"
    )
    assert main(["topics", "--server", "pulsar"]) == 0
    assert asked == ["public/depot"]
    assert "not there, though in the contract: public/depot/parcels (pulsar)" in capsys.readouterr().err


def test_what_may_not_be_seen_is_not_called_missing(
    clusters: tuple[Kafka, Pulsar], isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (isolated_home / "asyncapi.yaml").write_text(
        "asyncapi: 3.0.0\ninfo: {title: shop, version: 1.0.0}\n"
        "servers:\n  pulsar: {host: 'localhost:1', protocol: pulsar}\n"
        "  kafka: {host: 'localhost:1', protocol: kafka}\n"
        "channels:\n  a: {address: k-secret}\n  b: {address: k-gone}\n"
    )
    assert main(["topics", "--limit", "1"]) == 0
    told = capsys.readouterr().err
    assert "may not be seen by this user: k-secret (kafka), k-secret (pulsar)" in told
    assert "not there, though in the contract: k-gone (kafka), k-gone (pulsar)" in told


def test_a_reader_of_our_own_is_told_from_a_subscription() -> None:
    names = ("penstock-1276be71d0fa18f5-0", "penstock-orders", "billing")
    part = TopicPart(topic="t", entries=1, cursors=tuple(Cursor(name=name, backlog=0) for name in names))
    cluster = SimpleNamespace(name="pulsar", kind="pulsar")
    readers = pulsar_readers(cluster, [TopicStats(topic="t", partitions=0, parts={0: part})])  # type: ignore[arg-type]
    assert {reader.name: reader.kind for reader in readers} == {
        "penstock-1276be71d0fa18f5-0": "reader",
        "penstock-orders": "subscription",
        "billing": "subscription",
    }
