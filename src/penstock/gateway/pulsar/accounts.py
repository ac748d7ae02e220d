"""The principals that are here: each with connections to Pulsar, readers and writers of its own.

What a client may do is decided by Pulsar, asked with the client's own token and no other. Nothing that one
principal has opened or learnt serves another. A principal that nobody uses for a while is closed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from penstock.brokers.pulsar import Admin, PulsarClient, is_denied
from penstock.config.secret import Secret
from penstock.errors import ApiError, ClusterError, PenstockError, Unreachable
from penstock.gateway.groups.ports import Groups
from penstock.gateway.groups.tenants import TenantGroups
from penstock.gateway.handler import Services
from penstock.gateway.pulsar.cursor_sync import Home
from penstock.gateway.pulsar.cursors import Cursors
from penstock.gateway.pulsar.storage import PulsarStorage
from penstock.gateway.security.mechanisms import Credentials
from penstock.gateway.security.tokens import expires_at, identity, subject
from penstock.wire.kafka import ErrorCode

__all__ = ["Account", "Accounts", "Backend", "Lease"]

log = logging.getLogger("penstock.gateway")

_VERIFIED_FOR: Final = 30.0
"""Seconds for which a token that Pulsar took is not shown to it again."""
_RIGHTS_VALID_FOR: Final = 30.0
_IDLE: Final = 60.0
_AT_ONCE: Final = 32
"""Tokens that Pulsar is asked about at the same time."""
_ANY_TOPIC: Final = "__kafka_groups"
"""A topic that need not exist: who may read it may read everything in its namespace."""
_ANONYMOUS: Final = "anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """How to reach Pulsar as somebody: what differs between principals is the token and the namespace."""

    client: Callable[[Secret | None], PulsarClient]
    admin: Callable[[Secret | None], Admin]
    storage: Callable[[PulsarClient, Admin, str], PulsarStorage]
    services: Callable[[PulsarStorage, str | None], Services]
    """For a name that is known; None if nobody was asked for it."""
    groups: Groups


class Account:
    """One principal in one namespace."""

    def __init__(self, backend: Backend, *, name: str, namespace: str, token: Secret | None) -> None:
        self.name = name
        self.namespace = namespace
        self.users = 0
        self.idle_since = time.monotonic()
        self.verified: dict[bytes, float] = {}
        """When Pulsar took which token, by the digest of the token."""
        self._token = token
        # Read whenever it is needed: a principal that brings a newer token goes on with that one.
        current = None if token is None else Secret(self._current)
        self.client = backend.client(current)
        self.admin = backend.admin(current)
        self.storage = backend.storage(self.client, self.admin, namespace)
        services = backend.services(self.storage, None if token is None else name)
        self.services = replace(services, groups=TenantGroups(backend.groups, namespace, self.may_use_groups))
        self._may_consume = False
        self._asked: float | None = None
        self._asking: asyncio.Task[None] | None = None
        self.home = Home(Cursors(self.client, self.admin), self._own_topic)

    async def _own_topic(self, topic: str, partition: int) -> str:
        """Name a topic for the cursors of groups: one elsewhere may be for other members of the group."""
        place = await self.storage.topics.place(topic)
        if not place.full_name.startswith(f"persistent://{self.namespace}/"):
            raise ApiError("it is in another namespace", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return place.partition(partition)

    def _current(self) -> str:
        return "" if self._token is None else self._token.reveal()

    def renew(self, token: Secret) -> None:
        """Go on with a token that lasts longer than the present one."""
        if self._token is not None and _end(token) > _end(self._token):
            self._token = token

    async def close(self) -> None:
        """Close everything that was opened with these rights."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        await self.storage.close()
        await self.client.close()
        await self.admin.close()

    # Groups: who may consume in a namespace may use its groups

    def may_use_groups(self) -> bool:
        """Say whether Pulsar lets the principal consume; looked up again from time to time."""
        if self._is_old and self._asking is None:
            self._asking = asyncio.create_task(self._look_at_rights())
        return self._may_consume

    async def know_rights(self) -> None:
        """Wait until it is known what the principal may do."""
        if self._is_old:
            await self._look_at_rights()

    @property
    def _is_old(self) -> bool:
        return self._asked is None or time.monotonic() - self._asked > _RIGHTS_VALID_FOR

    async def _look_at_rights(self) -> None:
        """Ask Pulsar whether the principal may consume; as long as it says nothing, what it said holds."""
        self._asked = time.monotonic()
        try:
            await self.admin.last_message_id(f"persistent://{self.namespace}/{_ANY_TOPIC}")
            self._may_consume = True
        except Unreachable:
            self._asked = None
        except PenstockError:
            self._may_consume = False
        finally:
            self._asking = None


class Lease:
    """An account while a connection has it."""

    def __init__(self, account: Account, token: Secret) -> None:
        self.account = account
        self.expires_at = expires_at(token.reveal())
        self._held = True
        account.users += 1

    @property
    def name(self) -> str:
        """Who it is."""
        return self.account.name

    @property
    def namespace(self) -> str:
        """Where its short topic names are."""
        return self.account.namespace

    @property
    def services(self) -> Services:
        """What serves it."""
        return self.account.services

    def release(self) -> None:
        """Say that the connection does not need it any more."""
        if self._held:
            self._held = False
            self.account.users -= 1
            self.account.idle_since = time.monotonic()


class Accounts:
    """The door of a gateway: lets in whom Pulsar knows, and keeps what each of them has."""

    def __init__(self, backend: Backend, *, default_namespace: str, limit: int = 1000) -> None:
        self._backend = backend
        self._default_namespace = default_namespace
        self._limit = limit
        self._key = secrets.token_bytes(32)
        self._accounts: dict[bytes, Account] = {}
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._closing: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Account]:
        """Give all that are open."""
        return iter(list(self._accounts.values()))

    def anonymous(self) -> Account:
        """Give the account of those who need not say who they are: Pulsar is shown no token."""
        return self._add(b"", _ANONYMOUS, self._default_namespace, None)

    def home(self, namespace: str) -> Home | None:
        """Give one who may move the cursors of the groups of a namespace, the same one if possible."""
        fitting = (each for each in self._accounts.values() if each.namespace == namespace)
        return next((each.home for each in fitting if each.may_use_groups()), None)

    async def admit(self, credentials: Credentials) -> Lease:
        """Let a principal in if Pulsar takes its token."""
        token, namespace = credentials.token, credentials.namespace or self._default_namespace
        key = self._digest(identity(token.reveal()), namespace)
        account = self._accounts.get(key)
        try:
            async with self._turn:
                await self._verify(token, account)
        except ClusterError as exc:
            if not is_denied(exc):
                raise
            # Pulsar's words may hold parts of the token: they are not repeated.
            raise ApiError(
                "Pulsar does not take this token", error_code=ErrorCode.SASL_AUTHENTICATION_FAILED
            ) from None
        account = self._accounts.get(key) or self._new(key, token, namespace)
        account.verified = _recent(account.verified) | {self._digest(token.reveal()): time.monotonic()}
        account.renew(token)
        lease = Lease(account, token)
        try:
            await account.know_rights()
        except BaseException:
            lease.release()
            raise
        return lease

    async def _verify(self, token: Secret, account: Account | None) -> None:
        """Show a token to Pulsar, on a connection of its own; not if it was shown a moment ago."""
        seen = {} if account is None else _recent(account.verified)
        if self._digest(token.reveal()) in seen:
            return
        async with self._backend.client(token) as client:
            await client.check()

    def _new(self, key: bytes, token: Secret, namespace: str) -> Account:
        self._make_room()
        return self._add(key, subject(token.reveal()) or namespace, namespace, token)

    def _add(self, key: bytes, name: str, namespace: str, token: Secret | None) -> Account:
        found = self._accounts[key] = Account(self._backend, name=name, namespace=namespace, token=token)
        return found

    def _make_room(self) -> None:
        if len(self._accounts) < self._limit:
            return
        idle = [(each.idle_since, key) for key, each in self._accounts.items() if key and not each.users]
        if not idle:
            log.warning("refused a principal: %d are here", len(self._accounts))
            raise ApiError("too many principals", error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        self._close_later(min(idle)[1])

    def _digest(self, *parts: str) -> bytes:
        return hashlib.blake2b("\0".join(parts).encode(), key=self._key, digest_size=32).digest()

    # The life

    def let_go(self) -> None:
        """Close the partitions that another gateway leads now."""
        for account in self._accounts.values():
            account.storage.let_go()

    async def sweep(self, period: float = 10.0) -> None:
        """Close who was not used for a while, for ever."""
        while True:
            await asyncio.sleep(period)
            oldest = time.monotonic() - _IDLE
            for key, account in list(self._accounts.items()):
                if key and not account.users and account.idle_since < oldest:
                    self._close_later(key)

    def _close_later(self, key: bytes) -> None:
        task = asyncio.create_task(_close(self._accounts.pop(key)))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all."""
        for key in list(self._accounts):
            self._close_later(key)
        await asyncio.gather(*self._closing)


async def _close(account: Account) -> None:
    try:
        await account.close()
    except PenstockError as exc:
        log.debug("while %s was closed: %s", account.name, exc)


def _recent(verified: dict[bytes, float]) -> dict[bytes, float]:
    oldest = time.monotonic() - _VERIFIED_FOR
    return {digest: when for digest, when in verified.items() if when > oldest}


def _end(token: Secret) -> float:
    found = expires_at(token.reveal())
    return float("inf") if found is None else found
