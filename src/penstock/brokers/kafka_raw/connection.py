"""One connection to a broker: requests out, answers in, in order; blocking, with a deadline for each step.

Several requests may be under way; answers come in the order of the requests (protocol guide, Network). What
the broker sends is bounded and checked; after any failure the connection is closed for good.
"""

from __future__ import annotations

import math
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple, Self

from penstock.brokers.conditions import tls_error
from penstock.brokers.kafka_raw.address import Address
from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.answer_memory import AnswerMemory
from penstock.brokers.kafka_raw.calls import Call
from penstock.brokers.kafka_raw.refusal import refusal
from penstock.brokers.kafka_raw.settings import Settings
from penstock.errors import ClusterError, Unreachable, WireError
from penstock.wire.buffer import Buffer
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["Connection"]

_HEAD = struct.Struct(">ihhih")
_SIZE = struct.Struct(">i")
_ANSWER_HEAD = 4
_RECEIVE_BUFFER = 4 * 1024 * 1024
_JOINED_BELOW = 64 * 1024
_LONGEST_THROTTLE = 30.0
_MORE = getattr(socket, "MSG_MORE", 0)
"""Tells Linux that the next bytes follow at once; elsewhere they are sent as they come."""
_ANY = (0, 0x7FFF)
_NONE = (0, -1)


class _Sent(NamedTuple):
    correlation_id: int
    call: Call
    until: float


class Connection:
    """A socket to one broker, and what its broker can do."""

    def __init__(self, sock: socket.socket, peer: Address, settings: Settings) -> None:
        self.peer = peer
        self.versions: Mapping[int, tuple[int, int]] | None = None
        self._sock = sock
        self._settings = settings
        self._client_id = settings.client_id.encode()
        self._sent: deque[_Sent] = deque()
        self._correlation = 0
        self._not_before = 0.0
        self._memory = AnswerMemory()
        self._login_until: float | None = None
        """When TCP, TLS and the login together must be done; None: they are."""
        self._renew_at = math.inf
        self._renew: Callable[[], None] | None = None
        self.closed = False

    @classmethod
    def open(cls, peer: Address, settings: Settings, context: ssl.SSLContext | None) -> Self:
        """Connect by TCP and TLS; nothing of Kafka is spoken yet."""
        until = time.monotonic() + settings.connect_timeout
        try:
            sock = socket.create_connection(peer, settings.connect_timeout)
        except (OSError, ValueError) as exc:
            # ValueError: a host name that cannot be one.
            raise _unreachable(peer, exc) from exc
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The next answer comes in while we work on the last one. A buffer that was set does not grow: where
        # the system would cut it (net.core.rmem_max), one that grows by itself is larger in the end.
        if _is_granted(_RECEIVE_BUFFER):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        # The time-out of a socket bounds a handshake as a whole.
        sock.settimeout(max(until - time.monotonic(), 0.001))
        made = cls(sock if context is None else _secured(sock, peer, context), peer, settings)
        made._login_until = until
        return made

    def logging_in(self) -> None:
        """Note that a login begins: it has `connect_timeout` as a whole."""
        self._login_until = time.monotonic() + self._settings.connect_timeout

    def logged_in(self) -> None:
        """Note that the login is over: from now on each request has its own time."""
        self._login_until = None

    def renew_after(self, seconds: float, renew: Callable[[], None]) -> None:
        """Call `renew` before the first request that is sent so many seconds from now."""
        self._renew_at, self._renew = time.monotonic() + seconds, renew

    @property
    def renewal_due(self) -> bool:
        """Whether the session has to be renewed, for which nothing may be under way."""
        return self._renew is not None and time.monotonic() >= self._renew_at

    def _allowed(self, seconds: float) -> float:
        """Give until when something may take so many seconds, or what the login has left."""
        until = time.monotonic() + seconds
        return until if self._login_until is None else min(until, self._login_until)

    def __repr__(self) -> str:
        return f"Connection({self.peer}, {len(self._sent)} under way)"

    def fileno(self) -> int:
        """The socket's number, for selectors."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close it; requests under way get no answer."""
        self.closed = True
        self._sock.close()

    # Requests

    @property
    def under_way(self) -> int:
        """How many requests wait for their answers."""
        return len(self._sent)

    @property
    def overdue(self) -> bool:
        """Whether the oldest request under way should have been answered by now."""
        return bool(self._sent) and time.monotonic() > self._sent[0].until

    @property
    def throttled(self) -> float:
        """For how many seconds more the broker wants nothing from us."""
        return max(0.0, self._not_before - time.monotonic())

    def throttle(self, milliseconds: int) -> None:
        """Send nothing for a while (KIP-219): the broker would not read it."""
        seconds = min(max(milliseconds, 0) / 1000, _LONGEST_THROTTLE)
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    def call(self, call: Call, body: Sequence[Buffer]) -> Answer:
        """Send a request and wait for its answer; nothing else may be under way."""
        self.send(call, body)
        return self.receive()

    def send(self, call: Call, body: Sequence[Buffer], *, wait: float = 0.0) -> None:
        """Send a request; `wait` is how long its broker may hold it back on purpose."""
        self._check_version(call)
        if self.renewal_due and not self._sent:
            renew, self._renew = self._renew, None
            assert renew is not None, "a renewal is due"
            renew()
        if seconds := self.throttled:
            time.sleep(seconds)
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        head = self._head(call, sum(map(len, body)))
        with self._translated():
            left = self._allowed(self._settings.request_timeout) - time.monotonic()
            self._sock.settimeout(max(left, 0.001))
            self._send_all([head, *body])
        until = self._allowed(wait + self._settings.request_timeout)
        self._sent.append(_Sent(self._correlation, call, until))

    def receive(self) -> Answer:
        """Wait for the answer to the oldest request under way."""
        sent = self._sent[0]
        with self._translated():
            frame = self._receive_frame(sent.until)
            self._sent.popleft()
            answer = Answer(frame[_ANSWER_HEAD:], flexible=sent.call.flexible)
            if _SIZE.unpack_from(frame)[0] != sent.correlation_id:
                raise WireError(f"{self.peer} answered another request than {sent.call.name}")
            answer.skip_tags()
            return answer

    @property
    def buffered(self) -> bool:
        """Whether something has come that a selector does not see, because TLS has it."""
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    # Bytes

    def _head(self, call: Call, size: int) -> bytes:
        # Request header v1; v2, of flexible versions, has tagged fields behind it (KIP-482).
        tags = b"\0" if call.flexible else b""
        total = _HEAD.size - _SIZE.size + len(self._client_id) + len(tags) + size
        head = _HEAD.pack(total, call.key, call.version, self._correlation, len(self._client_id))
        return head + self._client_id + tags

    def _send_all(self, parts: list[Buffer]) -> None:
        if isinstance(self._sock, ssl.SSLSocket) or sum(map(len, parts)) < _JOINED_BELOW:
            self._sock.sendall(b"".join(parts))
            return
        for part in parts[:-1]:
            self._sock.sendall(part, _MORE)
        self._sock.sendall(parts[-1])

    def _receive_frame(self, until: float) -> memoryview:
        (size,) = _SIZE.unpack(self._receive_exactly(_SIZE.size, until))
        if not _ANSWER_HEAD <= size <= self._settings.max_answer_bytes:
            raise WireError(
                f"{self.peer} announced an answer of {size} bytes",
                why=f"answers are from {_ANSWER_HEAD} to {self._settings.max_answer_bytes} bytes here",
                next="look what listens at this address",
            )
        return self._receive_exactly(size, until)

    def _receive_exactly(self, size: int, until: float) -> memoryview:
        view = self._memory.take(size)
        pos = 0
        while pos < size:
            self._sock.settimeout(max(until - time.monotonic(), 0.001))
            got = self._sock.recv_into(view[pos:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            pos += got
        return view

    def serves(self, call: Call) -> bool:
        """Say whether the broker serves a request in our version; all, as long as it has not told."""
        lowest, highest = (self.versions or {call.key: _ANY}).get(call.key, _NONE)
        return lowest <= call.version <= highest

    def _check_version(self, call: Call) -> None:
        if not self.serves(call):
            lowest, highest = (self.versions or {}).get(call.key, _NONE)
            offers = f"{lowest} to {highest}" if highest >= 0 else "none"
            raise refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker does not serve {call.name} v{call.version}",
                where=str(self.peer),
                why=f"versions that it serves: {offers}",
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self.close()
            # With TLS 1.3 our side of the handshake is over before the broker judges our certificate.
            if isinstance(exc, ssl.SSLError) and self._login_until is not None:
                raise _tls_refusal(self.peer, exc) from exc
            raise _unreachable(self.peer, exc) from exc
        except BaseException:
            # What is half read or half written cannot be taken up again.
            self.close()
            raise


@cache
def _is_granted(size: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        return probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= size


def _secured(sock: socket.socket, peer: Address, context: ssl.SSLContext) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(sock, server_hostname=peer.host)
    except ssl.SSLError as exc:
        sock.close()
        raise _tls_refusal(peer, exc) from exc
    except (OSError, ValueError) as exc:
        sock.close()
        raise _unreachable(peer, exc) from exc


def _tls_refusal(peer: Address, exc: ssl.SSLError) -> ClusterError:
    error = tls_error(exc, where=str(peer))
    return _unreachable(peer, exc) if isinstance(error, Unreachable) else error


def _unreachable(peer: Address, exc: OSError | ValueError) -> Unreachable:
    return Unreachable(
        f"the Kafka broker {peer} does not answer",
        why=getattr(exc, "strerror", None) or str(exc) or type(exc).__name__,
        next="look whether it runs and can be reached from here",
    )
