"""Sessions that a broker ends after a time (KIP-368): renewed on their connection, with nothing under way."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.brokers.kafka_raw import login as login_module
from penstock.brokers.kafka_raw.calls import METADATA
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.connection import Connection
from penstock.brokers.kafka_raw.metadata import metadata_request
from penstock.brokers.kafka_raw.settings import Settings
from penstock.errors import KafkaDenied, Unreachable

HANDSHAKE, AUTHENTICATE, METADATA_KEY, VERSIONS = 17, 36, 3, 18
LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "hunter2"}


def session(milliseconds: int, code: int = 0) -> bytes:
    return struct.pack(">hhiq", code, -1, 0, milliseconds)


@pytest.fixture
def lifetimes(broker: Any) -> list[int]:
    """The lifetimes of the next sessions, in milliseconds; those behind them do not end."""
    found: list[int] = []
    broker.answers[HANDSHAKE] = lambda _: struct.pack(">hi", 0, 0)
    broker.answers[AUTHENTICATE] = lambda _: session(found.pop(0) if found else 0)
    return found


@pytest.fixture
def cluster(broker: Any, lifetimes: list[int]) -> Iterator[Cluster]:
    with Cluster(Settings.of({"bootstrap.servers": broker.bootstrap, **LOGIN}, deadline=5.0)) as made:
        yield made


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is due for renewal at once."""
    monkeypatch.setattr(login_module, "_RENEWED_BETWEEN", (0.0, 0.0))


def keys(broker: Any) -> list[int]:
    return [key for key, _, _ in broker.requests]


def test_a_session_without_an_end_is_not_renewed(broker: Any, cluster: Cluster) -> None:
    for _ in range(3):
        cluster.refresh()
    assert keys(broker) == [VERSIONS, HANDSHAKE, AUTHENTICATE, *[METADATA_KEY] * 3]


def test_a_session_is_renewed_before_it_ends(broker: Any, cluster: Cluster, lifetimes: list[int]) -> None:
    lifetimes += [2000, 0]
    began = time.monotonic()
    while keys(broker).count(AUTHENTICATE) < 2:
        cluster.refresh()
        assert time.monotonic() - began < 60
        time.sleep(0.02)
    second = [at for key, at, _ in broker.requests if key == HANDSHAKE][1]
    assert second - began > 1.5
    assert keys(broker).count(VERSIONS) == 1, "it is the same connection"


def test_a_session_that_is_too_short_is_not_renewed(
    broker: Any, cluster: Cluster, lifetimes: list[int], soon: None
) -> None:
    lifetimes += [1999]
    for _ in range(3):
        cluster.refresh()
    assert keys(broker).count(HANDSHAKE) == 1


def test_a_renewal_waits_for_what_is_under_way(
    broker: Any, cluster: Cluster, lifetimes: list[int], soon: None
) -> None:
    lifetimes += [0, 60_000]
    cluster.refresh()
    connection: Connection = cluster.dial(1)
    request = metadata_request(["t"])
    seen = len(broker.requests)
    connection.send(METADATA, request)  # renewed before it, with a session that does not end
    assert not connection.renewal_due
    calls: list[int] = []
    connection.renew_after(0.0, lambda: calls.append(connection.under_way))
    assert connection.renewal_due
    connection.send(METADATA, request)
    assert calls == []
    for _ in range(2):
        connection.receive()
    connection.send(METADATA, request)
    assert calls == [0]
    connection.receive()
    connection.close()
    assert keys(broker)[seen:] == [HANDSHAKE, AUTHENTICATE, *[METADATA_KEY] * 3]


def test_a_renewal_that_is_refused_closes_the_connection(
    broker: Any, cluster: Cluster, lifetimes: list[int], soon: None
) -> None:
    lifetimes += [60_000, 60_000]
    cluster.refresh()
    broker.answers[AUTHENTICATE] = lambda _: session(0, code=58)
    with pytest.raises(Unreachable, match="did not renew our session") as caught:
        cluster.refresh()
    assert "hunter2" not in str(caught.value)
    # The next connection finds that the login is refused for good.
    with pytest.raises(KafkaDenied):
        cluster.refresh()


def test_what_retries_gets_over_a_renewal_that_failed(
    broker: Any, cluster: Cluster, lifetimes: list[int], soon: None
) -> None:
    lifetimes += [60_000, 60_000]
    cluster.refresh()
    good: Callable[[bytes], bytes] = broker.answers[AUTHENTICATE]

    def once(body: bytes) -> None:
        broker.answers[AUTHENTICATE] = good  # and hangs up

    broker.answers[AUTHENTICATE] = once
    cluster.retrying(cluster.refresh)
    assert keys(broker).count(VERSIONS) == 2
