"""The name table of spec 001, and what Pulsar's own names mean."""

from __future__ import annotations

import pytest

from penstock.errors import ApiError
from penstock.gateway.pulsar.names import Names, partition_topic, without_partitions

NAMES = Names(default_namespace="acme/shop")


@pytest.mark.parametrize(
    ("kafka", "pulsar"),
    [
        ("my-topic", "persistent://acme/shop/my-topic"),
        ("my-tenant/my-ns/my-topic", "persistent://my-tenant/my-ns/my-topic"),
        ("persistent://my-tenant/my-ns/my-topic", "persistent://my-tenant/my-ns/my-topic"),
    ],
)
def test_the_rows_of_the_spec(kafka: str, pulsar: str) -> None:
    assert NAMES.to_pulsar(kafka) == pulsar
    assert NAMES.to_pulsar(NAMES.to_kafka(pulsar)) == pulsar


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a b",
        "a/b",
        "a/b/c/d",
        "persistent://x",
        "non-persistent://a/b/c",
        "é",
        "a/b/",
        "x" * 250,
        "a/../c",
        "../b/c",
    ],
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        NAMES.to_pulsar(name)
    assert refused.value.error_code == 17


def test_the_shortest_name_is_shown() -> None:
    assert NAMES.to_kafka("persistent://acme/shop/orders") == "orders"
    assert NAMES.to_kafka("persistent://acme/other/orders") == "acme/other/orders"


def test_partitions_are_left_out_and_a_topic_merely_named_so_is_not() -> None:
    prefix = "persistent://acme/shop/"
    topics = (f"{prefix}x-partition-0", f"{prefix}x-partition-1", f"{prefix}y-partition-0", f"{prefix}z")
    assert without_partitions(topics, frozenset({f"{prefix}x"})) == [f"{prefix}y-partition-0", f"{prefix}z"]
    assert partition_topic(f"{prefix}x", 1) == topics[1]


def test_two_underscores_hide_a_topic() -> None:
    assert NAMES.is_hidden("persistent://acme/shop/__change_events")
    assert not NAMES.is_hidden("persistent://acme/shop/_seen")


def test_the_id_of_a_topic_is_the_same_on_every_gateway_of_a_cluster() -> None:
    topic = NAMES.to_pulsar("orders")
    assert NAMES.topic_id(topic) == Names(default_namespace="other/ns").topic_id(topic)
    assert NAMES.topic_id(topic) != Names(cluster="second").topic_id(topic)
    assert NAMES.topic_id(topic) != NAMES.topic_id(NAMES.to_pulsar("orders2"))
