"""What a handler of a Kafka API is given, and what it gives: pieces of a body, or nothing at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.gateway.groups.ports import Groups, NoGroups
from penstock.gateway.ports import Cluster, Log, Producers, Topics
from penstock.wire.buffer import Buffer

if TYPE_CHECKING:
    from penstock.gateway.security.session import Session

__all__ = ["Body", "Handler", "Request", "Services", "Settings"]

Body = Iterable[Buffer] | None
"""The pieces of an answer's body; None if the client wants no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator may choose; each limit is answered with the protocol's own error."""

    auto_create_topics: bool = True
    default_partitions: int = 1
    max_request_bytes: int = 100 * 1024 * 1024
    max_batch_bytes: int = 5 * 1024 * 1024
    """Pulsar's largest message, and the most that a compressed batch may inflate to."""
    max_fetch_bytes: int = 50 * 1024 * 1024
    max_names_per_request: int = 10_000
    """Topics, partitions, groups or other things that one request may name; more end the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything behind the handlers."""

    topics: Topics
    log: Log
    producers: Producers
    cluster: Cluster
    groups: Groups = field(default_factory=NoGroups)
    settings: Settings = field(default_factory=Settings)
    versions: tuple[tuple[int, int, int], ...] = ()
    """Key, lowest and highest version of every API served."""


class Request(NamedTuple):
    """One request: its version, its decoded body, and through which listener it came."""

    version: int
    body: Any
    listener: str
    client_id: str | None = None
    client_host: str = ""
    session: Session | None = None
    """Who the client is; None on a listener that asks nobody."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One API: its key, the versions served, and the function that serves them."""

    key: int
    lowest: int
    highest: int
    handle: Callable[[Request, Services], Awaitable[Body]] | None
    """None for Produce, which the server begins in the order of the requests."""
