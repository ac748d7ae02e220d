"""The operators' pages: one request a connection, whoever sends it."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import pytest

from penstock.gateway import health
from penstock.gateway.health import Answer, Health


async def fine() -> Answer:
    return Answer(HTTPStatus.OK, b"fine\n")


def ask(send: bytes, *, close: bool = False, patience: float = 5.0) -> bytes:
    """Send bytes to a server with one page; give all that comes back."""

    async def talk() -> bytes:
        server = Health({"/fine": fine}, patience=patience)
        reader, writer = await asyncio.open_connection(*await server.start("127.0.0.1", 0))
        writer.write(send)
        if close:
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        await server.close()
        return answer

    return asyncio.run(talk())


def test_a_page() -> None:
    head, _, body = ask(b"GET /fine HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 200 OK"
    assert {"Content-Length: 5", "Connection: close"} <= set(lines)
    assert body == b"fine\n"


def test_head_has_no_body() -> None:
    answer = ask(b"HEAD /fine HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 5\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("send", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"POST /fine HTTP/1.1\r\n\r\n", 405),
        (b"\x00\x01\x02 nonsense\r\n\r\n", 400),
        (b"GET /fine\r\n\r\n", 400),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_what_is_refused(send: bytes, status: int) -> None:
    assert ask(send).startswith(b"HTTP/1.1 %d " % status)


def test_half_a_request_gets_nothing() -> None:
    assert ask(b"GET /fine HT", close=True) == b""


def test_a_slow_client_is_given_up() -> None:
    assert ask(b"GET /fine HTTP/1.1\r\n", patience=0.05) == b""


def test_a_client_that_does_not_read_is_given_up() -> None:
    async def large() -> Answer:
        return Answer(HTTPStatus.OK, bytes(50_000_000))

    async def scenario() -> None:
        server = Health({"/large": large}, patience=0.3)
        address = await server.start("127.0.0.1", 0)
        before = len(asyncio.all_tasks())
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        await reader.readexactly(1)
        assert len(asyncio.all_tasks()) == before + 1
        # Neither its task nor the page stays with the server.
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.02)
        writer.close()
        await server.close()

    asyncio.run(scenario())


def test_too_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_MAX_CONNECTIONS", 0)
    assert ask(b"") == b""
