"""What `penstock doctor` asks Pulsar about the topics of a contract."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.brokers.pulsar.refusal import refusal
from penstock.cli import cluster_checks
from penstock.errors import AccessDenied, PulsarRefused
from penstock.wire.pulsar.pulsar_pb2 import ServerError


class Client:
    """A Pulsar that refuses to count the partitions of topics by what they are named."""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        pass

    async def check(self) -> None:
        pass

    async def partitions(self, topic: str) -> int:
        if topic in ("there", "other"):
            return 1
        raise refusal(ServerError.Value(topic.upper().partition(".")[0]), "no")


def asked(monkeypatch: pytest.MonkeyPatch, *topics: str) -> list[str]:
    monkeypatch.setattr("penstock.cli.places.pulsar_client", lambda connection, options: Client())
    connection: Any = None
    return asyncio.run(cluster_checks._pulsar_topics(connection, topics, 1.0))


def test_a_topic_that_is_not_there_yet_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "topic_not_found", "there") == []
    assert asked(monkeypatch, "topic_not_found") == []


def test_a_topic_that_may_not_be_seen_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "authorization_error", "there", "other") == ["authorization_error"]


def test_no_right_at_all_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AccessDenied):
        asked(monkeypatch, "authorization_error.1", "authorization_error.2")


def test_another_refusal_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PulsarRefused):
        asked(monkeypatch, "there", "metadata_error")
