"""What `publish` of Pulsar waits for, with a producer that acknowledges late."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.brokers.pulsar_messages import publish
from penstock.errors import ClusterError, UsageError
from penstock.record import PulsarMessage


class Client:
    """A Pulsar with one topic, and its only producer."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.acknowledged = 0

    async def partitions(self, topic: str) -> int:
        return 0

    async def producer(self, topic: str, **_options: object) -> Client:
        return self

    async def send_message(self, metadata: object, payload: bytes) -> asyncio.Future[None]:
        receipt = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, self._answer, receipt, payload)
        return receipt

    def _answer(self, receipt: asyncio.Future[None], payload: bytes) -> None:
        if self.refuses and payload == b"bad":
            receipt.set_exception(ClusterError("refused"))
        else:
            self.acknowledged += 1
            receipt.set_result(None)


def sent(client: Any, messages: Iterator[PulsarMessage | None]) -> int:
    return asyncio.run(publish(client, "persistent://a/b/t", messages))


def test_what_was_read_before_an_error_of_the_source_is_sent() -> None:
    def messages() -> Iterator[PulsarMessage | None]:
        yield PulsarMessage(payload=b"1")
        yield PulsarMessage(payload=b"2")
        raise UsageError("a line is too long")

    client = Client()
    with pytest.raises(UsageError, match="a line is too long"):
        sent(client, messages())
    assert client.acknowledged == 2


def test_a_refusal_is_raised_when_the_others_are_acknowledged() -> None:
    client = Client(refuses=True)
    with pytest.raises(ClusterError, match="refused"):
        sent(client, iter([PulsarMessage(payload=each) for each in (b"bad", b"1", b"2")]))
    assert client.acknowledged == 2
