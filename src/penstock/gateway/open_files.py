"""The files that the process may have open: each connection is one, of clients as well as to Pulsar.

A process is often started with 1024, and may raise that by itself. Clients must not use up what the gateway
needs to reach Pulsar, so there are never more connections of clients than three quarters of it.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import Final

from penstock.gateway.limits import Limits

__all__ = ["fitting"]

log = logging.getLogger("penstock.gateway")

_FILES_PER_CONNECTION: Final = 4
"""Wanted for each connection that clients may have: principals have connections to Pulsar of their own."""


def fitting(limits: Limits) -> Limits:
    """Raise the limit of open files as far as connections need it; give limits that fit into it."""
    files = _allowed(_FILES_PER_CONNECTION * limits.connections)
    most = limits.connections if files is None else max(1, files * 3 // 4)
    if limits.connections <= most:
        return limits
    log.warning(
        "clients may have %d connections and not %d: the process may have %d files open; next: ulimit -n %d",
        *(most, limits.connections, files, _FILES_PER_CONNECTION * limits.connections),
    )
    per_address = min(limits.connections_per_address, most)
    return replace(limits, connections=most, connections_per_address=per_address)


def _allowed(wanted: int) -> int | None:
    """Give how many files may be open, raised to what is wanted if possible; None if nothing limits them."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # A kernel may have a limit of its own below the one that it tells.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(raised, soft), hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
