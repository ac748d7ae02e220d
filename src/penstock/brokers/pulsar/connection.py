"""One TCP connection to a broker: handshake, requests with their answers, keep-alive, dispatch of frames.

Frames are read in place (`asyncio.BufferedProtocol` on a FrameBuffer): what a consumer is handed is a
view that dies when its method returns. There is no task in here, only timers and callbacks.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple, Protocol, cast

from penstock.brokers.conditions import tls_error
from penstock.brokers.pulsar.options import Options
from penstock.brokers.pulsar.refusal import login_refusal, refusal
from penstock.brokers.pulsar.service_url import Broker
from penstock.config.secret import Secret
from penstock.errors import ClusterError, PenstockError, Unreachable, WireError
from penstock.wire.buffer import Buffer
from penstock.wire.framing import FrameBuffer
from penstock.wire.pulsar import Command, Message, SendReceipt, decode_command, encode_command
from penstock.wire.pulsar.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandPing,
    CommandPong,
    FeatureFlags,
)

__all__ = ["Connection", "ConsumerEnd", "Credentials", "ProducerEnd"]

PROTOCOL_VERSION: Final = 21
CLIENT_VERSION: Final = "penstock"
FRAME_PADDING: Final = 10 * 1024
"""What a broker allows around a message in its frame."""
RECEIVE_BYTES: Final = 1024 * 1024
_PING: Final = encode_command(CommandPing())
_PONG: Final = encode_command(CommandPong())


class Credentials(NamedTuple):
    """Who we are: the name of Pulsar's authentication method and its data; a token is read when needed."""

    method: str
    data: Secret


class ProducerEnd(Protocol):
    """What a connection tells a producer."""

    def on_receipt(self, receipt: SendReceipt) -> None:
        """Hear that an entry is stored."""

    def on_send_error(self, error: Any) -> None:
        """Hear that an entry is not stored (CommandSendError)."""

    def on_lost(self, connection: Connection, error: PenstockError) -> None:
        """Hear that the broker has closed the producer, or that the connection is gone."""


class ConsumerEnd(Protocol):
    """What a connection tells a reader or consumer."""

    def on_message(self, message: Message) -> None:
        """Take an entry; its bytes are gone when this returns."""

    def on_end_of_topic(self) -> None:
        """Hear that the topic was terminated and everything was delivered."""

    def on_lost(self, connection: Connection, error: PenstockError) -> None:
        """Hear that the broker has closed the consumer, or that the connection is gone."""


class _Request(NamedTuple):
    answer: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class Connection(asyncio.BufferedProtocol):
    """A connection after `connect`; `error` says why it ended, None while it lives."""

    def __init__(self, broker: Broker, options: Options, credentials: Credentials | None = None) -> None:
        self.broker = broker
        self.error: PenstockError | None = None
        self.max_message_bytes = 0
        self.producers: dict[int, ProducerEnd] = {}
        self.consumers: dict[int, ConsumerEnd] = {}
        self._options = options
        self._credentials = credentials
        self._loop = asyncio.get_running_loop()
        self._frames: FrameBuffer
        """Made with the transport: a connect that is refused must not take a mebibyte for it."""
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        """What goes out together when the loop comes round."""
        self._ids = count()
        self._requests: dict[int, _Request] = {}
        self._pings: deque[asyncio.Future[None]] = deque()
        self._heard = True
        self._silent_ticks = 0
        self._tick: asyncio.TimerHandle | None = None
        self._connected: asyncio.Future[Any] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def where(self) -> str:
        """The address for error texts."""
        return str(self.broker.host)

    # The life

    async def shake_hands(self) -> None:
        """Introduce ourselves (CONNECT) and hear what the broker offers (CONNECTED)."""
        connect = CommandConnect(
            client_version=CLIENT_VERSION,
            protocol_version=PROTOCOL_VERSION,
            feature_flags=FeatureFlags(
                supports_auth_refresh=True,
                supports_broker_entry_metadata=True,
                supports_partial_producer=True,
                supports_get_partitioned_metadata_without_auto_creation=True,
            ),
        )
        if self._credentials is not None:
            connect.auth_method_name = self._credentials.method
            connect.auth_data = self._credentials.data.reveal().encode()
        if self.broker.behind is not None:
            connect.proxy_to_broker_url = str(self.broker.behind)
        self.write(encode_command(connect))
        answer = await self._connected
        self.max_message_bytes = answer.max_message_size or self._options.max_message_bytes
        if self.max_message_bytes > self._options.max_message_bytes:
            raise ClusterError(
                f"the broker's messages may have {self.max_message_bytes} bytes",
                where=self.where,
                why=f"at most {self._options.max_message_bytes} are taken here",
                next="raise max_message_bytes",
            )
        self._tick = self._loop.call_later(self._options.keep_alive, self._on_tick)

    def abort(self, error: PenstockError) -> None:
        """End the connection at once; everything that waits on it hears the error."""
        if self.error is None:
            self.error = error
            if self._transport is not None:
                self._transport.abort()

    async def close(self) -> None:
        """End the connection and wait until it is gone."""
        self.abort(Unreachable("the connection was closed", where=self.where))
        if self._transport is not None:
            await asyncio.shield(self._closed)

    # What others ask of it

    def write(self, data: Buffer) -> None:
        """Send bytes; on a connection that is gone they are lost, as they are on one that breaks later."""
        if self._transport is not None and self.error is None:
            if not self._out:
                self._loop.call_soon(self._flush)
            self._out.append(data)

    def write_all(self, frames: Sequence[Buffer]) -> None:
        """Send several frames, together with all that is written in this turn of the loop."""
        if self._transport is not None and self.error is None:
            if not self._out:
                self._loop.call_soon(self._flush)
            self._out.extend(frames)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and self.error is None and out:
            self._transport.writelines(out)

    async def request(self, body: Any) -> Any:
        """Send a command and wait for its answer; a refusal is raised as PulsarRefused."""
        self._check()
        body.request_id = next(self._ids)
        answer: asyncio.Future[Any] = self._loop.create_future()
        timer = self._loop.call_later(self._options.request_timeout, self._on_late, body.request_id)
        self._requests[body.request_id] = _Request(answer, timer)
        self.write(encode_command(body))
        try:
            return await answer
        finally:
            timer.cancel()
            self._requests.pop(body.request_id, None)

    async def barrier(self) -> None:
        """Wait until the broker has answered a PING: what it had written before has then been heard."""
        self._check()
        pong: asyncio.Future[None] = self._loop.create_future()
        self._pings.append(pong)
        self.write(_PING)
        await pong

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)
        limit = self._options.max_message_bytes + FRAME_PADDING
        self._frames = FrameBuffer(limit=limit, first=RECEIVE_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Give room to read into."""
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Cut and handle the frames that are whole; bytes that break the protocol end the connection."""
        self._frames.wrote(nbytes)
        self._heard = True
        try:
            for frame in self._frames.frames():
                self._on_frame(frame)
        except PenstockError as exc:
            exc.where = exc.where or self.where
            self.abort(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everything that lived here."""
        error = self.error = self.error or self._reason(exc)
        if self._tick is not None:
            self._tick.cancel()
        waiting = [request.answer for request in self._requests.values()]
        for future in [*waiting, *self._pings, self._connected]:
            _fail(future, error)
        ends: list[ProducerEnd | ConsumerEnd] = [*self.producers.values(), *self.consumers.values()]
        self.producers.clear()
        self.consumers.clear()
        for end in ends:
            end.on_lost(self, error)
        self._frames.release()
        self._closed.set_result(None)

    def _reason(self, exc: Exception | None) -> PenstockError:
        # With TLS 1.3 our side of the handshake is over before the broker judges our certificate.
        if isinstance(exc, ssl.SSLError) and not self._connected.done():
            return tls_error(exc, where=self.where)
        return Unreachable(
            "the broker closed the connection", where=self.where, why=str(exc) if exc else None
        )

    # Frames

    def _on_frame(self, frame: memoryview) -> None:
        command = decode_command(frame)
        if isinstance(command, Message):
            consumer = self.consumers.get(command.consumer_id)
            if consumer is not None:
                consumer.on_message(command)
        elif isinstance(command, SendReceipt):
            producer = self.producers.get(command.producer_id)
            if producer is not None:
                producer.on_receipt(command)
        else:
            self._on_command(command)

    def _on_command(self, command: Command) -> None:
        handler = _HANDLERS.get(command.type)
        if handler is not None:
            handler(self, command.body)
        elif not self._connected.done():
            raise WireError(f"the broker began with a command of type {command.type}")

    def _on_connected(self, body: Any) -> None:
        if not self._connected.done():
            self._connected.set_result(body)

    def _on_answer(self, body: Any) -> None:
        request = self._requests.get(body.request_id)
        if request is not None and not request.answer.done():
            request.answer.set_result(body)

    def _on_producer_success(self, body: Any) -> None:
        """A producer that waits for exclusive access hears twice; until then there is no time-out."""
        if body.producer_ready:
            self._on_answer(body)
        elif body.request_id in self._requests:
            self._requests[body.request_id].timer.cancel()

    def _on_error(self, body: Any) -> None:
        request = self._requests.get(body.request_id)
        if request is not None:
            _fail(request.answer, refusal(body.error, body.message, where=self.where))
        else:
            by_token = self._credentials is not None and self._credentials.method == "token"
            shown = self._credentials.data.reveal() if self._credentials is not None and by_token else None
            _fail(self._connected, login_refusal(body.error, body.message, shown, where=self.where))

    def _on_send_error(self, body: Any) -> None:
        producer = self.producers.get(body.producer_id)
        if producer is not None:
            producer.on_send_error(body)

    def _on_close_producer(self, body: Any) -> None:
        """The end stays: receipts for what was sent before may still come."""
        producer = self.producers.get(body.producer_id)
        if producer is not None:
            producer.on_lost(self, Unreachable("the broker closed the producer", where=self.where))

    def _on_close_consumer(self, body: Any) -> None:
        consumer = self.consumers.pop(body.consumer_id, None)
        if consumer is not None:
            consumer.on_lost(self, Unreachable("the broker closed the consumer", where=self.where))

    def _on_end_of_topic(self, body: Any) -> None:
        consumer = self.consumers.get(body.consumer_id)
        if consumer is not None:
            consumer.on_end_of_topic()

    def _on_auth_challenge(self, _: Any) -> None:
        """Show our credentials again: a token may have been renewed meanwhile."""
        response = CommandAuthResponse(client_version=CLIENT_VERSION, protocol_version=PROTOCOL_VERSION)
        if self._credentials is not None:
            data = self._credentials.data.reveal().encode()
            response.response.MergeFrom(AuthData(auth_method_name=self._credentials.method, auth_data=data))
        self.write(encode_command(response))

    def _on_ping(self, _: Any) -> None:
        self.write(_PONG)

    def _on_pong(self, _: Any) -> None:
        if self._pings:
            pong = self._pings.popleft()
            if not pong.done():
                pong.set_result(None)

    # Time

    def _on_late(self, request_id: int) -> None:
        request = self._requests.get(request_id)
        if request is not None:
            what = f"the broker did not answer within {self._options.request_timeout:g} s"
            _fail(request.answer, Unreachable(what, where=self.where, next="look at its load and log"))

    def _on_tick(self) -> None:
        self._silent_ticks = 0 if self._heard else self._silent_ticks + 1
        self._heard = False
        if self._silent_ticks > 1:
            silence = self._options.keep_alive * self._silent_ticks
            self.abort(Unreachable(f"the broker said nothing for {silence:g} s", where=self.where))
            return
        if self._silent_ticks:
            self._pings.append(self._loop.create_future())
            self.write(_PING)
        self._tick = self._loop.call_later(self._options.keep_alive, self._on_tick)


def _fail(future: asyncio.Future[Any], error: PenstockError) -> None:
    if not future.done():
        future.set_exception(error)
        # Looked at here, because the one who waited may have been cancelled.
        future.exception()


_HANDLERS: Mapping[int, Callable[[Connection, Any], None]] = {
    BaseCommand.CONNECTED: Connection._on_connected,
    BaseCommand.AUTH_CHALLENGE: Connection._on_auth_challenge,
    BaseCommand.PING: Connection._on_ping,
    BaseCommand.PONG: Connection._on_pong,
    BaseCommand.ERROR: Connection._on_error,
    BaseCommand.SUCCESS: Connection._on_answer,
    BaseCommand.PRODUCER_SUCCESS: Connection._on_producer_success,
    BaseCommand.LOOKUP_RESPONSE: Connection._on_answer,
    BaseCommand.PARTITIONED_METADATA_RESPONSE: Connection._on_answer,
    BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE: Connection._on_answer,
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: Connection._on_answer,
    BaseCommand.ACK_RESPONSE: Connection._on_answer,
    BaseCommand.SEND_ERROR: Connection._on_send_error,
    BaseCommand.CLOSE_PRODUCER: Connection._on_close_producer,
    BaseCommand.CLOSE_CONSUMER: Connection._on_close_consumer,
    BaseCommand.REACHED_END_OF_TOPIC: Connection._on_end_of_topic,
}
