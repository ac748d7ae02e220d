"""What `publish` of Pulsar waits for, with a producer that acknowledges late."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from penstock.brokers.pulsar_messages import publish
from penstock.errors import ClusterError, PulsarRefused, RecordRefused, UsageError
from penstock.record import PulsarMessage
from penstock.wire.pulsar.pulsar_pb2 import ServerError


class Client:
    """A Pulsar with one topic, and its only producer."""

    def __init__(self, *, refuses: bool = False, code: int | None = None) -> None:
        """With a `code` bad messages are refused as Pulsar does."""
        self.refuses, self.code = refuses, code
        self.acknowledged = 0
        self.payloads: list[bytes] = []

    async def partitions(self, topic: str) -> int:
        return 0

    async def producer(self, topic: str, **_options: object) -> Client:
        return self

    async def send_message(self, metadata: object, payload: bytes) -> asyncio.Future[None]:
        receipt = asyncio.get_running_loop().create_future()
        self.payloads.append(payload)
        asyncio.get_running_loop().call_later(0.01, self._answer, receipt, payload)
        return receipt

    def _answer(self, receipt: asyncio.Future[None], payload: bytes) -> None:
        if self.refuses and payload == b"bad":
            refused = (
                PulsarRefused("not so", server_error=self.code, retriable=False)
                if self.code
                else ClusterError("refused")
            )
            receipt.set_exception(refused)
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


@pytest.mark.parametrize("code", [ServerError.NOT_ALLOWED_ERROR, ServerError.INCOMPATIBLE_SCHEMA])
def test_a_message_that_its_topic_does_not_take_is_named_with_how_many_were_written(code: int) -> None:
    client: Any = Client(refuses=True, code=code)
    messages = [PulsarMessage(payload=each) for each in (b"1", b"bad", b"2", b"3", b"late")]

    def given() -> Iterator[PulsarMessage | None]:
        yield from messages[:4]
        for _ in range(10):  # the refusal comes meanwhile
            yield None
        yield messages[4]

    named = partial("message {0.payload!r}".format)
    with pytest.raises(RecordRefused, match=r"message b'bad' was refused \(3 written\)") as caught:
        asyncio.run(publish(client, "persistent://a/b/t", given(), named=named))
    assert caught.value.record is messages[1]
    assert client.payloads == [b"1", b"bad", b"2", b"3"]


def test_a_refusal_that_is_not_for_the_sake_of_a_message_is_told_as_it_is() -> None:
    client = Client(refuses=True, code=ServerError.AUTHORIZATION_ERROR)
    with pytest.raises(PulsarRefused, match="not so"):
        sent(client, iter([PulsarMessage(payload=each) for each in (b"1", b"bad", b"2")]))
    assert client.acknowledged == 2
