"""Ports on the loopback interface: a free one, a fixed one that must be free, and who answers there."""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.request

from penstock.errors import PortTaken, UsageError

__all__ = ["LOOPBACK", "ask", "choose_port", "is_listening"]

LOOPBACK = "127.0.0.1"
_HIGHEST = 65535


def choose_port(fixed: int, *, setting: str, remedy: str | None = None) -> int:
    """Give a free port for 0, or `fixed` if nobody listens there.

    `setting` is what the user would change; `remedy` is what else helps when it cannot be changed.
    """
    if not 0 <= fixed <= _HIGHEST:
        raise UsageError(f"{setting} cannot be {fixed}", next=f"a port is a number from 0 to {_HIGHEST}")
    change = f"set {setting} to another port (0 takes a free one)"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, fixed))
        except OSError as exc:
            raise PortTaken(
                f"port {fixed} on {LOOPBACK} is taken",
                where=setting,
                why=exc.strerror,
                next=f"end what listens there, or {remedy or change}",
            ) from exc
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
