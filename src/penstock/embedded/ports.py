"""Ports on the loopback interface: a free one, a fixed one that must be free, and who answers there.

A free one lies below those that systems give to outgoing connections. A server that starts, or starts again,
would now and then find one of those taken by any client's connection, at times by one that looks for it.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import ssl
import urllib.request

from penstock.errors import PortTaken, UsageError

__all__ = ["LOOPBACK", "ask", "choose_port", "is_listening"]

LOOPBACK = "127.0.0.1"
_HIGHEST = 65535
_QUIET = range(20_000, 32_768)
"""Below the ports of outgoing connections on Linux (from 32768), and on macOS and Windows (from 49152)."""
_LOOKS = 50


def choose_port(fixed: int, *, setting: str, remedy: str | None = None) -> int:
    """Give a free port for 0, or `fixed` if nobody listens there.

    `setting` is what the user would change; `remedy` is what else helps when it cannot be changed.
    """
    if not 0 <= fixed <= _HIGHEST:
        raise UsageError(f"{setting} cannot be {fixed}", next=f"a port is a number from 0 to {_HIGHEST}")
    if fixed == 0:
        return _free_port()
    try:
        return _bound(fixed)
    except OSError as exc:
        change = f"set {setting} to another port (0 takes a free one)"
        raise PortTaken(
            f"port {fixed} on {LOOPBACK} is taken",
            where=setting,
            why=exc.strerror,
            next=f"end what listens there, or {remedy or change}",
        ) from exc


def _free_port() -> int:
    for port in random.SystemRandom().sample(_QUIET, _LOOKS):
        with contextlib.suppress(OSError):
            return _bound(port)
    return _bound(0)


def _bound(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, port))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def ask(request: urllib.request.Request | str, context: ssl.SSLContext | None = None) -> str | None:
    """Give what a server on this machine answers over HTTP; None if it does not, or not well.

    No proxy is asked, whatever the environment says: it would look on its own loopback interface.
    """
    handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=5) as answer:
            return str(answer.read().decode())
    except (OSError, http.client.HTTPException, UnicodeDecodeError):
        return None
