"""The principals that are here: who shares what, who is let in, and what becomes of those who go."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from penstock.brokers.pulsar import Admin
from penstock.brokers.pulsar.refusal import refusal
from penstock.brokers.pulsar.rest import AsyncRest
from penstock.config.secret import Secret
from penstock.errors import AccessDenied, ApiError, PenstockError, Unreachable
from penstock.gateway.groups.ports import NoGroups
from penstock.gateway.handler import Services
from penstock.gateway.pulsar import accounts as module
from penstock.gateway.pulsar.accounts import Accounts, Backend
from penstock.gateway.security.logins import Crowded, Logins
from penstock.gateway.security.mechanisms import Credentials
from penstock.testing import MemoryStorage
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar.pulsar_pb2 import ServerError


class FakePulsar:
    """Takes tokens whose last part is `good`; notes what is asked with which token."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.open: set[Any] = set()
        self.consumers = {"ann"}
        self.error: Exception | None = None
        self.rights_error: PenstockError | None = None
        self.rights_wait: asyncio.Event | None = None
        self.rights_asked = 0

    def backend(self) -> Backend:
        return Backend(
            client=lambda token: self._opened(FakeClient(self, token)),
            admin=lambda token: self._opened(FakeAdmin(self, token)),
            storage=lambda client, admin, namespace: self._opened(FakeStorage(self, client, namespace)),
            services=lambda storage, name: Services(
                topics=storage, log=storage, producers=storage, cluster=storage
            ),
            groups=NoGroups(),
        )

    def _opened(self, what: Any) -> Any:
        self.open.add(what)
        return what


class Part:
    def __init__(self, pulsar: FakePulsar) -> None:
        self.pulsar = pulsar

    async def close(self) -> None:
        self.pulsar.open.discard(self)


class FakeClient(Part):
    def __init__(self, pulsar: FakePulsar, token: Secret | None) -> None:
        super().__init__(pulsar)
        self.token = token

    async def __aenter__(self) -> FakeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def check(self) -> None:
        assert self.token is not None
        await asyncio.sleep(0)
        if self.pulsar.error is not None:
            raise self.pulsar.error
        self.pulsar.shown.append(self.token.reveal())
        if not self.token.reveal().endswith(".good"):
            message = f"malformed {self.token.reveal()}"
            raise refusal(ServerError.AUTHENTICATION_ERROR, message)


class FakeAdmin(Part):
    def __init__(self, pulsar: FakePulsar, token: Secret | None) -> None:
        super().__init__(pulsar)
        self.token = token

    async def last_message_id(self, topic: str) -> None:
        assert self.token is not None
        self.pulsar.rights_asked += 1
        if self.pulsar.rights_wait is not None:
            await self.pulsar.rights_wait.wait()
        if self.pulsar.rights_error is not None:
            raise self.pulsar.rights_error
        parts = self.token.reveal().split(".")
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "==")) if len(parts) > 2 else {}
        if claims.get("sub") not in self.pulsar.consumers:
            raise AccessDenied("no")


class FakeStorage(MemoryStorage, Part):
    def __init__(self, pulsar: FakePulsar, client: FakeClient, namespace: str) -> None:
        MemoryStorage.__init__(self)
        Part.__init__(self, pulsar)
        self.client = client
        self.namespace = namespace
        self.looked = 0

    def let_go(self) -> None:
        self.looked += 1

    __hash__ = object.__hash__


def token(sub: str = "ann", signature: str = "good", **claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps({"sub": sub} | claims).encode()).decode().rstrip("=")
    return f"e30.{body}.{signature}"


def says(text: str, namespace: str | None = "acme/shop") -> Credentials:
    return Credentials(namespace=namespace, token=Secret(text))


def run(scenario: Callable[[FakePulsar, Accounts], Any], **options: Any) -> None:
    async def life() -> None:
        pulsar = FakePulsar()
        accounts = Accounts(pulsar.backend(), default_namespace="public/default", **options)
        await scenario(pulsar, accounts)
        await accounts.close()
        assert not pulsar.open

    asyncio.run(life())


def test_one_principal_has_one_account_whatever_its_token() -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        first = await accounts.admit(says(token(exp=time.time() + 10)))
        second = await accounts.admit(says(token(exp=time.time() + 99, jti="2")))
        assert first.account is second.account
        assert len(pulsar.shown) == 2
        assert first.expires_at is not None and second.expires_at is not None
        assert first.expires_at < second.expires_at
        # What the account opens from now on it opens with the token that lasts longer.
        current = first.account.storage.client.token.reveal()  # type: ignore[attr-defined]
        assert current == pulsar.shown[1]
        third = await accounts.admit(says(token(exp=time.time() + 5, jti="3")))
        assert third.account is first.account
        assert first.account.storage.client.token.reveal() == current  # type: ignore[attr-defined]

    run(scenario)


def test_principals_and_namespaces_share_nothing() -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        leases = [
            await accounts.admit(credentials)
            for credentials in (
                says(token("ann")),
                says(token("bob")),
                says(token("ann"), "acme/other"),
                says(token("ann", iss="elsewhere")),
                says(token("ann"), None),
            )
        ]
        for part in ("client", "admin", "storage"):
            assert len({id(getattr(lease.account, part)) for lease in leases}) == len(leases)
        assert [lease.namespace for lease in leases][-2:] == ["acme/shop", "public/default"]

    run(scenario)


def test_a_token_that_pulsar_does_not_take_gets_no_share_of_an_account() -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        await accounts.admit(says(token()))
        before = set(pulsar.open)
        with pytest.raises(ApiError) as caught:
            await accounts.admit(says(token(signature="forged")))
        assert caught.value.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "forged" not in repr(caught.value) + str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__suppress_context__
        assert pulsar.open == before

    run(scenario)


def test_a_token_is_shown_again_after_a_while() -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        for _ in range(3):
            await accounts.admit(says(token()))
        assert len(pulsar.shown) == 1
        await asyncio.sleep(0.5)
        await accounts.admit(says(token()))
        assert len(pulsar.shown) == 2

    run(scenario, logins=partial(Logins, taken_for=0.5))


def test_only_a_name_that_a_token_proves_is_a_name() -> None:
    """The user name of PLAIN is a namespace that the client chooses: it proves nothing."""

    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        proven: list[str | None] = []
        services = accounts._backend.services
        accounts._backend = replace(
            accounts._backend,
            services=lambda storage, name: (proven.append(name), services(storage, name))[1],
        )
        role = base64.urlsafe_b64encode(b'{"role": "billing"}').decode().rstrip("=")
        pulsar.consumers = {""}
        for text in (f"e30.{role}.good", "opaque.good", token("ann"), token("line\nbreak")):
            lease = await accounts.admit(says(text, "payments/admin"))
            assert lease.name == ("ann" if text == token("ann") else None)
        accounts.anonymous()
        assert proven == [None, None, "ann", None, None]

    run(scenario)


def test_many_connections_of_one_principal_at_once() -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        leases = await asyncio.gather(*(accounts.admit(says(token())) for _ in range(50)))
        assert len({id(lease.account) for lease in leases}) == 1
        assert leases[0].account.users == 50

    run(scenario)


def test_a_pulsar_that_is_away_is_no_refusal() -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        pulsar.error = Unreachable("away")
        with pytest.raises(Unreachable):
            await accounts.admit(says(token()))
        assert not list(accounts)

    run(scenario)


def test_who_is_idle_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        monkeypatch.setattr(module, "_IDLE", 0.0)
        used, idle = await accounts.admit(says(token("ann"))), await accounts.admit(says(token("bob")))
        idle.release()
        idle.release()
        sweeper = asyncio.create_task(accounts.sweep(period=0.01))
        async with asyncio.timeout(5):
            while idle.account.storage in pulsar.open:
                await asyncio.sleep(0.01)
        assert used.account.storage in pulsar.open
        assert [account.name for account in accounts] == ["ann"]
        assert (used.account.users, idle.account.users) == (1, 0)
        sweeper.cancel()

    run(scenario)


def test_principals_are_bounded() -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        first = await accounts.admit(says(token("a")))
        await accounts.admit(says(token("b")))
        with pytest.raises(Crowded, match="too many principals"):
            await accounts.admit(says(token("c")))
        first.release()
        await accounts.admit(says(token("c")))
        assert sorted(account.name for account in accounts) == ["b", "c"]

    run(scenario, limit=2)


def test_one_principal_cannot_be_all_of_them() -> None:
    """The client chooses the namespace: a token that names many keeps nobody else out."""

    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        leases = [await accounts.admit(says(token("mallory"), f"acme/{number}")) for number in range(3)]
        with pytest.raises(Crowded, match="too many namespaces of one principal"):
            await accounts.admit(says(token("mallory", jti="another"), "acme/3"))
        ann = await accounts.admit(says(token("ann"), "acme/0"))
        # One that it has is not a new one, and one that it does not use makes room.
        assert (await accounts.admit(says(token("mallory"), "acme/2"))).account is leases[2].account
        leases[0].release()
        await accounts.admit(says(token("mallory"), "acme/3"))
        assert sorted(each.namespace for each in accounts) == ["acme/0", "acme/1", "acme/2", "acme/3"]
        # What all its connections hold is counted together, and apart from others.
        assert len({lease.principal for lease in leases}) == 1
        assert ann.principal != leases[0].principal

    run(scenario, limit=5, per_principal=3)


def test_groups_are_for_those_who_may_consume(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        monkeypatch.setattr(module, "_RIGHTS_VALID_FOR", 0.0)
        ann, bob = await accounts.admit(says(token("ann"))), await accounts.admit(says(token("bob")))
        with pytest.raises(ApiError) as caught:
            await bob.services.groups.coordinator("g")
        assert caught.value.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await ann.services.groups.coordinator("g") == -1
        assert list(bob.services.groups.shards()) == []
        pulsar.consumers = {"bob"}
        async with asyncio.timeout(5):
            while ann.account.may_use_groups() or not bob.account.may_use_groups():
                await asyncio.sleep(0.01)

    run(scenario)


def test_all_who_come_at_once_wait_for_the_same_answer() -> None:
    """The second connection of a principal must not be told that it may not, while the first still asks."""

    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        pulsar.rights_wait = asyncio.Event()
        first = asyncio.create_task(accounts.admit(says(token())))
        while not pulsar.rights_asked:
            await asyncio.sleep(0)
        second = asyncio.create_task(accounts.admit(says(token())))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not second.done()
        # One who gives up does not take the question from the other.
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        pulsar.rights_wait.set()
        lease = await asyncio.wait_for(second, 5)
        assert await lease.services.groups.coordinator("g") == -1
        assert pulsar.rights_asked == 1

    run(scenario)


class Answering(AsyncRest):
    """Answers every request with one status."""

    def __init__(self, status: int) -> None:
        super().__init__("http://pulsar:8080", name="pulsar", token=None, tls=None, timeout=1.0)
        import httpx

        answer = httpx.MockTransport(lambda request: httpx.Response(status, json={"reason": "words"}))
        self._requests = httpx.AsyncClient(transport=answer)


async def answer_of(status: int) -> PenstockError:
    """Give the error that the real client of the admin API makes of a status."""
    admin = Admin("http://pulsar:8080")
    admin._rest = Answering(status)
    try:
        await admin.last_message_id("persistent://acme/shop/x")
    except PenstockError as exc:
        return exc
    finally:
        await admin.close()
    raise AssertionError(f"{status} is no error")


@pytest.mark.parametrize("status", [409, 412, 422, 429, 500, 501, 502, 503, 504, 507])
def test_only_a_denial_denies(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        monkeypatch.setattr(module, "_RIGHTS_VALID_FOR", 0.0)
        monkeypatch.setattr(module, "_RIGHTS_ASK_AGAIN", 0.0)
        error = await answer_of(status)
        pulsar.rights_error = error
        lease = await accounts.admit(says(token()))
        groups = lease.services.groups
        # Nothing is known yet: clients are told to come again, and not to give up.
        with pytest.raises(ApiError) as caught:
            await groups.coordinator("g")
        assert caught.value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(ApiError) as caught:
            groups.shard("g")
        assert caught.value.error_code == ErrorCode.NOT_COORDINATOR
        with pytest.raises(ApiError) as caught:
            groups.shards()
        assert caught.value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        pulsar.rights_error = None
        async with asyncio.timeout(5):
            while lease.account.may_use_groups() is None:
                await asyncio.sleep(0.001)
        assert await groups.coordinator("g") == -1
        # And what was known holds.
        pulsar.rights_error, asked = error, pulsar.rights_asked
        async with asyncio.timeout(5):
            while pulsar.rights_asked < asked + 3:
                assert await groups.coordinator("g") == -1
                await asyncio.sleep(0.001)

    run(scenario)


@pytest.mark.parametrize("status", [401, 403])
def test_a_denial_denies(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        pulsar.rights_error = await answer_of(status)
        lease = await accounts.admit(says(token()))
        with pytest.raises(ApiError) as caught:
            await lease.services.groups.coordinator("g")
        assert caught.value.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    run(scenario)


def test_all_accounts_let_go_of_what_another_gateway_leads() -> None:
    async def scenario(pulsar: FakePulsar, accounts: Accounts) -> None:
        found = [(await accounts.admit(says(token(name)))).account.storage for name in "ab"]
        accounts.let_go()
        assert [storage.looked for storage in found] == [1, 1]  # type: ignore[attr-defined]

    run(scenario)
