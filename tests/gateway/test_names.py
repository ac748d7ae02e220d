"""The name table of spec 001, and what Pulsar's own names mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ApiError
from penstock.gateway.pulsar.names import Names, partition_topic, without_partitions

PIECES = st.sampled_from(["-partition", "-", "=", "-partition-", "x", "0"])
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


@pytest.mark.parametrize(
    ("kafka", "local"),
    [
        ("x-partition-0", "x-partition=-0"),
        ("x-partition-0-partition-1", "x-partition=-0-partition=-1"),
        ("x-partition--partition-", "x-partition=--partition=-"),
        ("-partition-", "-partition=-"),
        ("x-partition", "x-partition"),
        ("x-partition0", "x-partition0"),
        ("x-partition=-0", "x-partition==-0"),
        ("other/ns/x-partition-0", None),
    ],
)
def test_a_name_with_the_mark_of_partitions_goes_there_and_back(kafka: str, local: str | None) -> None:
    pulsar = NAMES.to_pulsar(kafka)
    assert pulsar == f"persistent://{f'acme/shop/{local}' if local else 'other/ns/x-partition=-0'}"
    assert "-partition-" not in pulsar
    assert NAMES.to_kafka(pulsar) == kafka


@given(st.text("-=xpartion0", max_size=40) | st.lists(PIECES, max_size=8).map("".join))
def test_no_two_names_meet(name: str) -> None:
    if name:
        assert NAMES.to_kafka(NAMES.to_pulsar(name)) == name
        topic = f"persistent://acme/shop/{name}"
        assert NAMES.to_pulsar(NAMES.to_kafka(topic)) == topic


def test_a_full_name_means_what_it_says() -> None:
    topic = "persistent://acme/shop/x-partition-0"
    assert NAMES.to_pulsar(topic) == topic == NAMES.to_kafka(topic)


@pytest.mark.parametrize("name", ["__change_events", "__transaction_log_3", "t/n/__transaction_state"])
def test_the_topics_of_pulsar_itself_are_none(name: str) -> None:
    with pytest.raises(ApiError, match="Pulsar's own") as refused:
        NAMES.to_pulsar(name)
    assert refused.value.error_code == 17


def test_two_underscores_hide_a_topic() -> None:
    assert NAMES.is_hidden("persistent://acme/shop/__change_events")
    assert not NAMES.is_hidden("persistent://acme/shop/_seen")


def test_the_id_of_a_topic_is_the_same_on_every_gateway_of_a_cluster() -> None:
    topic = NAMES.to_pulsar("orders")
    assert NAMES.topic_id(topic) == Names(default_namespace="other/ns").topic_id(topic)
    assert NAMES.topic_id(topic) != Names(cluster="second").topic_id(topic)
    assert NAMES.topic_id(topic) != NAMES.topic_id(NAMES.to_pulsar("orders2"))
