"""What operators ask over HTTP: /metrics, /healthz (it runs) and /readyz (it can serve).

A small server for one request a connection: GET or HEAD, a short head, no body.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

__all__ = ["Answer", "Health", "Page"]

log = logging.getLogger("penstock.gateway.health")

_MAX_HEAD: Final = 8 * 1024
_PATIENCE: Final = 5.0
_MAX_CONNECTIONS: Final = 64
_METHODS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page has to say."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Page = Callable[[], Awaitable[Answer]]


class Health:
    """Serves pages by their path."""

    def __init__(self, pages: Mapping[str, Page], *, patience: float = _PATIENCE) -> None:
        self._pages = pages
        self._patience = patience
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; give the address."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_HEAD)
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _MAX_CONNECTIONS:
                async with asyncio.timeout(self._patience):
                    await self._answer(reader, writer)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError) as exc:
            log.debug("gave up a connection: %r", exc)
            # A client that does not read would hold its page, and the connection, for ever.
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            head = b""
        method, path = _request_line(head)
        answer = await self._page(method, path)
        writer.write(_encoded(answer, with_body=method != "HEAD"))
        await writer.drain()

    async def _page(self, method: str, path: str) -> Answer:
        if not method:
            return Answer(HTTPStatus.BAD_REQUEST, b"this is no request\n")
        if method not in _METHODS:
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")
        page = self._pages.get(path)
        if page is None:
            known = ", ".join(self._pages)
            return Answer(HTTPStatus.NOT_FOUND, f"there are {known}\n".encode())
        return await page()


def _request_line(head: bytes) -> tuple[str, str]:
    """Read method and path, without what follows a question mark (RFC 9112, 3).

    >>> _request_line(b"GET /readyz?x HTTP/1.1\\r\\n\\r\\n"), _request_line(b"nonsense")
    (('GET', '/readyz'), ('', ''))
    """
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return "", ""
    return words[0], words[1].partition("?")[0]


def _encoded(answer: Answer, *, with_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
    ]
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return head + answer.body if with_body else head
