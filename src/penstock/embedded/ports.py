"""Ports on the loopback interface: a free one, or a fixed one that must be free."""

from __future__ import annotations

import socket

from penstock.errors import PortTaken, UsageError

__all__ = ["LOOPBACK", "choose_port", "is_listening"]

LOOPBACK = "127.0.0.1"
_HIGHEST = 65535


def choose_port(fixed: int, *, setting: str) -> int:
    """Give a free port for 0, or `fixed` if nobody listens there; `setting` is what the user would change."""
    if not 0 <= fixed <= _HIGHEST:
        raise UsageError(f"{setting} cannot be {fixed}", next=f"a port is a number from 0 to {_HIGHEST}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, fixed))
        except OSError as exc:
            raise PortTaken(
                f"port {fixed} on {LOOPBACK} is taken",
                where=setting,
                why=exc.strerror,
                next=f"end what listens there, or set {setting} to another port (0 takes a free one)",
            ) from exc
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
