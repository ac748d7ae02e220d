"""Topics and subscriptions as Pulsar's REST interface tells them; also answers that no real broker gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.brokers.pulsar_subscriptions import Consumer, Cursor, PulsarSubscriptions, TopicPart
from penstock.brokers.rest import Answer, Rest
from penstock.brokers.start import Start
from penstock.errors import AccessDenied, ClusterError, UsageError

ORDERS = "persistent://acme/shop/orders"
STATS = {
    "metadata": {"partitions": 2},
    "partitions": {
        f"{ORDERS}-partition-1": {"subscriptions": {"__compaction": {"msgBacklog": 9}}},
        f"{ORDERS}-partition-0": {
            "subscriptions": {
                "a/b c": {
                    "msgBacklog": 3,
                    "consumers": [{"consumerName": "c1", "clientVersion": "x", "address": "/1.2.3.4:5"}],
                }
            }
        },
    },
}
LEDGERS = {
    "partitions": {
        f"{ORDERS}-partition-0": {
            "numberOfEntries": 7,
            "cursors": {"a%2Fb+c": {"markDeletePosition": "12:3"}},
        }
    }
}


class Broker:
    """Answers by path, and the requests that came."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, str, Any]] = []

    def call(self, method: str, path: str, value: Any = None) -> Answer:
        self.asked.append((method, path, value))
        found = self.answers.get(path.partition("?")[0], KeyError)
        if isinstance(found, Answer):
            return found
        return Answer(404, None) if found is KeyError else Answer(200, found)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(Rest, "call", lambda _self, *given: made.call(*given))
    return made


@pytest.fixture
def client(broker: Broker) -> Iterator[PulsarSubscriptions]:
    with PulsarSubscriptions({"url": "http://localhost:1"}) as made:
        yield made


def test_a_partitioned_topic_is_named_once(client: PulsarSubscriptions, broker: Broker) -> None:
    broker.answers = {
        "/tenants": ["acme"],
        "/namespaces/acme": ["acme/shop"],
        "/persistent/acme/shop/partitioned": [ORDERS],
        "/non-persistent/acme/shop/partitioned": [],
        "/namespaces/acme/shop/topics": [f"{ORDERS}-partition-0", f"{ORDERS}-partition-1", f"{ORDERS}-x-1"],
    }
    assert client.topic_names(client.namespaces()) == ({ORDERS: True, f"{ORDERS}-x-1": False}, ())


DENIED = Answer(403, {"reason": "Unauthorized to validateNamespaceOperation"})


def test_a_namespace_that_may_not_be_listed_hides_no_other(
    client: PulsarSubscriptions, broker: Broker
) -> None:
    broker.answers = {
        "/persistent/acme/shop/partitioned": [ORDERS],
        "/non-persistent/acme/shop/partitioned": [],
        "/namespaces/acme/shop/topics": [],
        "/persistent/acme/secret/partitioned": DENIED,
    }
    assert client.topic_names(["acme/shop", "acme/secret"]) == ({ORDERS: True}, ("acme/secret",))
    with pytest.raises(AccessDenied):
        client.topic_names(["acme/secret"])


def test_a_namespace_that_is_not_there_is_an_error_unless_it_may_be_absent(
    client: PulsarSubscriptions, broker: Broker
) -> None:
    assert client.topic_names(["acme/none"], absent_ok=True) == ({}, ())
    with pytest.raises(ClusterError, match="namespace acme/none"):
        client.topic_names(["acme/none"])


def test_what_a_topic_holds_and_who_reads_it(client: PulsarSubscriptions, broker: Broker) -> None:
    path = "/persistent/acme/shop/orders"
    broker.answers = {
        f"{path}/partitions": {"partitions": 2},
        f"{path}/partitioned-stats": STATS,
        f"{path}/partitioned-internalStats": LEDGERS,
    }
    found = client.look([ORDERS, "persistent://acme/shop/none"])
    assert list(found) == [ORDERS]
    stats = found[ORDERS]
    reader = Consumer(name="c1", client="x", address="1.2.3.4:5")
    cursor = Cursor(name="a/b c", backlog=3, consumers=(reader,), mark="12:3")
    assert (stats.partitions, stats.entries, stats.backlogs()) == (2, 7, {"a/b c": 3})
    assert stats.parts == {
        0: TopicPart(topic=f"{ORDERS}-partition-0", entries=7, cursors=(cursor,)),
        1: TopicPart(topic=f"{ORDERS}-partition-1", entries=0),
    }
    assert client.stats({ORDERS: True}, ledgers=False)[ORDERS].entries == 0
    assert broker.asked[-1][1].endswith("stats?perPartition=true"), "the ledgers were asked for"


@pytest.mark.parametrize("answer", [None, 5, {"a": 1}, "text"])
def test_a_list_that_is_none(client: PulsarSubscriptions, broker: Broker, answer: Any) -> None:
    broker.answers = {"/tenants": answer}
    with pytest.raises(ClusterError, match="no list for tenants"):
        client.namespaces()


@pytest.mark.parametrize(
    "stats",
    [
        [],
        None,
        {"partitions": {"persistent://acme/shop/orders-partition-x": {}}},
        {"partitions": {"strange": 1}},
    ],
)
def test_statistics_that_are_none(client: PulsarSubscriptions, broker: Broker, stats: Any) -> None:
    broker.answers = {"/persistent/acme/shop/orders/partitioned-stats": stats}
    with pytest.raises(ClusterError):
        client.stats({ORDERS: True})


@pytest.mark.parametrize("inner", [5, {"subscriptions": []}, {"subscriptions": {"s": {"consumers": 3}}}])
def test_parts_that_are_not_what_they_should_be(
    client: PulsarSubscriptions, broker: Broker, inner: Any
) -> None:
    broker.answers = {
        "/persistent/acme/shop/orders/stats": inner if isinstance(inner, dict) else {"subscriptions": inner},
        "/persistent/acme/shop/orders/internalStats": inner,
    }
    assert client.stats({ORDERS: False})[ORDERS].entries == 0


def test_a_backlog_that_is_too_long_to_count(client: PulsarSubscriptions, broker: Broker) -> None:
    path = "/persistent/acme/shop/orders/subscription/a%2Fb%20c/analyzeBacklog"
    broker.answers = {path: {"messages": 10, "aborted": True}}
    assert client.messages_left(ORDERS, "a/b c") is None
    broker.answers = {path: {"messages": 10, "aborted": False}}
    assert client.messages_left(ORDERS, "a/b c") == 10


def test_the_messages_that_a_topic_has_got_are_counted(client: PulsarSubscriptions, broker: Broker) -> None:
    path = "/persistent/acme/shop/orders/partitioned-stats"
    broker.answers = {path: {"msgInCounter": 49631, "partitions": {}}}
    assert client.messages_in(ORDERS) == 49631
    broker.answers = {path: {}}
    assert client.messages_in(ORDERS) == 0
    broker.answers = {}
    with pytest.raises(ClusterError):
        client.messages_in(ORDERS)


def test_where_a_subscription_is_moved_to(client: PulsarSubscriptions, broker: Broker) -> None:
    path = "/persistent/acme/shop/orders/subscription/s/resetcursor"
    broker.answers = {path: None, f"{path}/1000": None}
    last = 2**63 - 1
    for text in ("earliest", "latest", "1970-01-01T00:00:01Z"):
        client.reset(ORDERS, "s", Start.parse(text))
    assert broker.asked == [
        ("POST", path, {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}),
        ("POST", path, {"ledgerId": last, "entryId": last, "partitionIndex": -1}),
        ("POST", f"{path}/1000", None),
    ]
    with pytest.raises(UsageError, match="no offsets"):
        client.reset(ORDERS, "s", Start.parse("17"))
