"""The principals that are here: each with connections to Pulsar, readers and writers of its own.

What a client may do is decided by Pulsar, asked with the client's own token and no other. Nothing that one
principal has opened or learnt serves another. A principal that nobody uses for a while is closed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from penstock.brokers.pulsar import Admin, PulsarClient, is_denied
from penstock.brokers.pulsar.tasks import watched
from penstock.config.secret import Secret
from penstock.errors import ApiError, PenstockError
from penstock.gateway.client_log import log as client_log
from penstock.gateway.groups.ports import Groups
from penstock.gateway.groups.tenants import TenantGroups
from penstock.gateway.handler import Services
from penstock.gateway.pulsar.cursor_sync import Home
from penstock.gateway.pulsar.cursors import Cursors
from penstock.gateway.pulsar.names import refuse_own
from penstock.gateway.pulsar.storage import PulsarStorage
from penstock.gateway.security.logins import Crowded, Logins
from penstock.gateway.security.mechanisms import Credentials
from penstock.gateway.security.tokens import expires_at, identity, subject
from penstock.wire.kafka import ErrorCode

__all__ = ["Account", "Accounts", "Backend", "Lease"]

log = logging.getLogger("penstock.gateway")

_RIGHTS_VALID_FOR: Final = 30.0
_RIGHTS_ASK_AGAIN: Final = 1.0
"""Seconds until rights are asked for again when Pulsar could not tell them."""
_IDLE: Final = 60.0
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
    """For a name that a token has proven; None if there is none."""
    groups: Groups


class Account:
    """One principal in one namespace."""

    def __init__(
        self,
        backend: Backend,
        *,
        principal: bytes,
        proven: str | None,
        namespace: str,
        token: Secret | None,
    ) -> None:
        self.principal = principal
        """Stands for who it is, in whichever namespace; empty for those who need not say."""
        self.proven = proven
        """The name in the token. The namespace, which the client chooses, never stands for it."""
        self.name = proven or _ANONYMOUS
        """For log lines."""
        self.namespace = namespace
        self.users = 0
        self.idle_since = time.monotonic()
        self._token = token
        # Read whenever it is needed: a principal that brings a newer token goes on with that one.
        current = None if token is None else Secret(self._current)
        self.client = backend.client(current)
        self.admin = backend.admin(current)
        self.storage = backend.storage(self.client, self.admin, namespace)
        services = backend.services(self.storage, proven)
        self.services = replace(services, groups=TenantGroups(backend.groups, namespace, self.may_use_groups))
        self._may_consume: bool | None = None
        """What Pulsar said last; None as long as it has not said anything."""
        self._ask_again = -math.inf
        self._asking: asyncio.Task[None] | None = None
        self.home = Home(Cursors(self.client, self.admin), self._own_topic, self._is_gone)

    async def _own_topic(self, topic: str, partition: int) -> str:
        """Name a topic for the cursors of groups: one elsewhere may be for other members of the group."""
        place = await self.storage.topics.place(topic)
        if not place.full_name.startswith(f"persistent://{self.namespace}/"):
            raise ApiError("it is in another namespace", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        refuse_own(place.topic.internal)
        return place.partition(partition)

    async def _is_gone(self, topic: str, partition: int) -> bool:
        return await self.storage.topics.is_gone(topic, partition)

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

    def may_use_groups(self) -> bool | None:
        """Say whether Pulsar lets the principal consume, None if it has not said; asked from time to time."""
        if self._is_old:
            self._ask_rights()
        return self._may_consume

    async def know_rights(self) -> None:
        """Wait until Pulsar was asked what the principal may do; all who wait share one question."""
        if self._is_old:
            await asyncio.shield(self._ask_rights())

    @property
    def _is_old(self) -> bool:
        return time.monotonic() >= self._ask_again

    def _ask_rights(self) -> asyncio.Task[None]:
        if self._asking is None or self._asking.done():
            self._asking = watched(asyncio.create_task(self._look_at_rights()))
        return self._asking

    async def _look_at_rights(self) -> None:
        """Ask Pulsar whether the principal may consume.

        Only a denial denies. Whatever else goes wrong (no answer, an error of the broker, too many requests)
        says nothing about rights: what was known holds, and is asked again soon.
        """
        valid_for = _RIGHTS_ASK_AGAIN
        try:
            await self.admin.last_message_id(f"persistent://{self.namespace}/{_ANY_TOPIC}")
            self._may_consume, valid_for = True, _RIGHTS_VALID_FOR
        except PenstockError as exc:
            if is_denied(exc):
                self._may_consume, valid_for = False, _RIGHTS_VALID_FOR
            else:
                log.debug("the rights of %s in %s stay as they are: %s", self.name, self.namespace, exc)
        finally:
            self._ask_again = time.monotonic() + valid_for


class Lease:
    """An account while a connection has it."""

    def __init__(self, account: Account, token: Secret) -> None:
        self.account = account
        self.expires_at = expires_at(token.reveal())
        self._held = True
        account.users += 1

    @property
    def name(self) -> str | None:
        """Who it is, as its token has proven; None if it does not say."""
        return self.account.proven

    @property
    def namespace(self) -> str:
        """Where its short topic names are."""
        return self.account.namespace

    @property
    def principal(self) -> bytes:
        """What it is counted by: the same in every namespace."""
        return self.account.principal

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

    def __init__(
        self,
        backend: Backend,
        *,
        default_namespace: str,
        limit: int = 1000,
        per_principal: int = 64,
        logins: Callable[[Callable[[Secret], Awaitable[None]]], Logins] = Logins,
    ) -> None:
        self._backend = backend
        self._default_namespace = default_namespace
        self._limit = limit
        self._per_principal = per_principal
        self._key = secrets.token_bytes(32)
        self._accounts: dict[bytes, Account] = {}
        self._logins = logins(self._show)
        self._closing: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Account]:
        """Give all that are open."""
        return iter(list(self._accounts.values()))

    def anonymous(self) -> Account:
        """Give the account of those who need not say who they are: Pulsar is shown no token."""
        return self._add(b"", b"", None, self._default_namespace, None)

    def home(self, namespace: str) -> Home | None:
        """Give one who may move the cursors of the groups of a namespace, the same one if possible."""
        fitting = (each for each in self._accounts.values() if each.namespace == namespace)
        return next((each.home for each in fitting if each.may_use_groups()), None)

    async def admit(self, credentials: Credentials) -> Lease:
        """Let a principal in if Pulsar takes its token."""
        token, namespace = credentials.token, credentials.namespace or self._default_namespace
        who = identity(token.reveal())
        principal, key = self._digest(who), self._digest(who, namespace)
        await self._logins.verify(token, credentials.address)
        account = self._accounts.get(key) or self._new(key, principal, token, namespace)
        account.renew(token)
        lease = Lease(account, token)
        try:
            await account.know_rights()
        except BaseException:
            lease.release()
            raise
        return lease

    async def _show(self, token: Secret) -> None:
        """Show a token to Pulsar, on a connection of its own."""
        async with self._backend.client(token) as client:
            await client.check()

    def _new(self, key: bytes, principal: bytes, token: Secret, namespace: str) -> Account:
        # The client chooses the namespace: else one token could be all the principals that there may be.
        own = [each for each, account in self._accounts.items() if account.principal == principal]
        self._make_room(own, self._per_principal, "namespaces of one principal")
        self._make_room(list(self._accounts), self._limit, "principals")
        return self._add(key, principal, subject(token.reveal()), namespace, token)

    def _add(
        self, key: bytes, principal: bytes, proven: str | None, namespace: str, token: Secret | None
    ) -> Account:
        found = self._accounts[key] = Account(
            self._backend, principal=principal, proven=proven, namespace=namespace, token=token
        )
        return found

    def _make_room(self, keys: list[bytes], limit: int, what: str) -> None:
        """Close the one of them that is idle longest if there are too many; Crowded if none is idle."""
        if len(keys) < limit:
            return
        accounts = self._accounts
        idle = [(accounts[key].idle_since, key) for key in keys if key and not accounts[key].users]
        if not idle:
            client_log.warning("refused a login: %d %s are here", len(keys), what)
            # Not a failed authentication: clients give up after that, and there may be room soon.
            raise Crowded(f"too many {what}")
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
        task = watched(asyncio.create_task(_close(self._accounts.pop(key))))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all."""
        await self._logins.close()
        for key in list(self._accounts):
            self._close_later(key)
        await asyncio.gather(*self._closing)


async def _close(account: Account) -> None:
    try:
        await account.close()
    except PenstockError as exc:
        log.debug("while %s was closed: %s", account.name, exc)


def _end(token: Secret) -> float:
    found = expires_at(token.reveal())
    return float("inf") if found is None else found
