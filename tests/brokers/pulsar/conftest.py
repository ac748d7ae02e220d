"""What the tests of the Pulsar client share: a loop that must end clean, batches, a broker that lies."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest

from penstock.brokers.pulsar import Options, Producer, Receipt
from penstock.wire.framing import FrameBuffer
from penstock.wire.pulsar import Command, decode_command, encode_command
from penstock.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandLookupTopicResponse,
    CommandPong,
    CommandProducerSuccess,
    CommandSendReceipt,
    CommandSuccess,
    MessageIdData,
    SingleMessageMetadata,
)

T = TypeVar("T")
Main = Callable[[], Coroutine[Any, Any, T]]
ROOM = 512


@pytest.fixture
def run() -> Callable[[Main[Any]], Any]:
    """Run a coroutine function to its end, which must leave no task behind and no error unseen."""

    def go(main: Main[Any], *, timeout: float = 120, uvloop: bool = False) -> Any:
        unseen: list[dict[str, Any]] = []

        async def checked() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
            async with asyncio.timeout(timeout):
                result = await main()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left behind: {left}"
            return result

        with asyncio.Runner(loop_factory=_uvloop if uvloop else None) as runner:
            result = runner.run(checked())
        assert not unseen
        return result

    return go


def _uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


@pytest.fixture
def topic() -> str:
    """A topic of the test's own."""
    return f"persistent://public/default/test-{secrets.token_hex(6)}"


@pytest.fixture
def send() -> Callable[..., Awaitable[asyncio.Future[Receipt]]]:
    """Send values as one batch entry, built by hand."""

    async def go(producer: Producer, *values: bytes, **said: Any) -> asyncio.Future[Receipt]:
        out = bytearray(ROOM)
        for value in values:
            head = SingleMessageMetadata(payload_size=len(value)).SerializeToString()
            out += len(head).to_bytes(4, "big") + head + value
        return await producer.send(
            np.frombuffer(out, np.uint8),
            ROOM,
            len(out),
            num_messages=len(values),
            publish_time=time.time_ns() // 1_000_000,
            **said,
        )

    return go


class FakeBroker:
    """A server that answers as a small broker does, or as a test tells it to; see `on`."""

    def __init__(self) -> None:
        self.heard: list[Command] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.on: dict[int, Callable[[Any, asyncio.StreamWriter], None]] = {
            BaseCommand.CONNECT: self._connected,
            BaseCommand.LOOKUP: self._lookup,
            BaseCommand.PRODUCER: self._producer,
            BaseCommand.SUBSCRIBE: self._success,
            BaseCommand.CLOSE_PRODUCER: self._success,
            BaseCommand.CLOSE_CONSUMER: self._success,
            BaseCommand.SEND: self._receipt,
            BaseCommand.PING: lambda body, writer: writer.write(encode_command(CommandPong())),
        }
        self.greeting = b""
        self.port = 0
        """Where it listens; 0 takes a free one."""
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> FakeBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"pulsar://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self.connections:
            writer.close()
        await asyncio.gather(*self._serving)

    def types(self) -> list[int]:
        return [command.type for command in self.heard]

    def count(self, kind: int) -> int:
        return self.types().count(kind)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        writer.write(self.greeting)
        frames = FrameBuffer(limit=1 << 24)
        try:
            while data := await reader.read(1 << 16):
                frames.receive(data)
                for frame in frames.frames():
                    command = decode_command(frame)
                    assert isinstance(command, Command)
                    self.heard.append(command)
                    handler = self.on.get(command.type)
                    if handler is not None:
                        handler(command.body, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _connected(self, body: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_command(CommandConnected(server_version="fake", max_message_size=1 << 20)))

    def _lookup(self, body: Any, writer: asyncio.StreamWriter) -> None:
        answer = CommandLookupTopicResponse(
            request_id=body.request_id,
            response=CommandLookupTopicResponse.CONNECT,
            broker_service_url=self.url,
        )
        writer.write(encode_command(answer))

    def _producer(self, body: Any, writer: asyncio.StreamWriter) -> None:
        name = body.producer_name or "fake-1"
        writer.write(encode_command(CommandProducerSuccess(request_id=body.request_id, producer_name=name)))

    def _success(self, body: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_command(CommandSuccess(request_id=body.request_id)))

    def _receipt(self, body: Any, writer: asyncio.StreamWriter) -> None:
        self.receipt(writer, body.producer_id, body.sequence_id)

    def receipt(self, writer: asyncio.StreamWriter, producer_id: int, sequence_id: int) -> None:
        place = MessageIdData(ledger_id=7, entry_id=sequence_id)
        writer.write(
            encode_command(
                CommandSendReceipt(producer_id=producer_id, sequence_id=sequence_id, message_id=place)
            )
        )


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    yield FakeBroker()


@pytest.fixture
def hasty() -> Options:
    """Options for tests with a broker that does not answer."""
    return Options(
        connect_timeout=0.5,
        request_timeout=0.5,
        open_timeout=0.5,
        send_timeout=0.5,
        first_delay=0.01,
        longest_delay=0.05,
        barrier_timeout=0.2,
    )
