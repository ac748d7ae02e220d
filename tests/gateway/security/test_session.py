"""The steps of a connection: the table, what is served in each stage, and what ends it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.errors import ApiError, Unreachable
from penstock.gateway.security.mechanisms import Credentials
from penstock.gateway.security.session import TRANSITIONS, NotAdmitted, Session, Stage, Step
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.apis import API_VERSIONS, APIS, METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE

GOOD = b"\0acme/shop\0token:good"


@dataclass
class Guest:
    name: str | None
    namespace: str
    expires_at: float | None = None
    services: Any = None
    released: int = 0

    @property
    def principal(self) -> str:
        return self.name or ""

    def release(self) -> None:
        self.released += 1


@dataclass
class Doorkeeper:
    """Lets in who says `good`, by the name of the namespace."""

    ends: float | None = None
    guests: list[Guest] = field(default_factory=list)

    async def admit(self, credentials: Credentials) -> Guest:
        if credentials.token.reveal() == "slow":
            raise Unreachable("Pulsar is away")
        if credentials.token.reveal() != "good":
            raise ApiError("not this one", error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        self.guests.append(Guest("ann", credentials.namespace or "public/default", self.ends))
        return self.guests[-1]


def session(door: Doorkeeper | None = None) -> Session:
    return Session(door or Doorkeeper(), failure_delay=0.0)


async def known(door: Doorkeeper | None = None) -> Session:
    found = session(door)
    assert await found.choose("PLAIN") is ErrorCode.NONE
    assert (await found.prove(GOOD, lambda: 0.0)).error is ErrorCode.NONE
    return found


def test_the_table_leads_from_the_stranger_to_every_stage() -> None:
    reached = {Stage.STRANGER}
    while found := {to for (at, _), to in TRANSITIONS.items() if at in reached} - reached:
        reached |= found
    assert reached == set(Stage)
    assert all(at is not Stage.OVER for at, _ in TRANSITIONS)
    assert all(TRANSITIONS[stage, Step.FAILED] is Stage.OVER for stage in Stage if stage is not Stage.OVER)


def test_a_stranger_is_served_three_requests_only() -> None:
    stranger = session()
    served = {key for key in APIS if stranger.admits(key)}
    assert served == {API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE}
    with pytest.raises(NotAdmitted, match="asked by a stranger"):
        stranger.check(METADATA)


def test_who_is_known_is_served_everything() -> None:
    async def scenario() -> None:
        found = await known()
        assert all(found.admits(key) for key in APIS)
        found.check(PRODUCE)

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["", "SCRAM-SHA-256", "plain", "GSSAPI"])
def test_a_mechanism_that_there_is_not(name: str) -> None:
    async def scenario() -> None:
        found = session()
        assert await found.choose(name) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert found.is_over

    asyncio.run(scenario())


def test_requests_out_of_order_end_it() -> None:
    async def scenario() -> None:
        early = session()
        assert (await early.prove(GOOD, lambda: 0.0)).error is ErrorCode.ILLEGAL_SASL_STATE
        assert early.is_over
        twice = session()
        assert await twice.choose("PLAIN") is ErrorCode.NONE
        assert await twice.choose("PLAIN") is ErrorCode.ILLEGAL_SASL_STATE
        assert twice.is_over
        again = await known()
        assert (await again.prove(GOOD, lambda: 0.0)).error is ErrorCode.ILLEGAL_SASL_STATE
        assert not again.admits(METADATA)

    asyncio.run(scenario())


def test_who_is_not_taken_is_told_later_and_sent_away() -> None:
    async def scenario() -> None:
        found = Session(Doorkeeper(), failure_delay=0.05)
        await found.choose("PLAIN")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        proof = await found.prove(b"\0acme\0token:bad", lambda: 0.0)
        assert loop.time() - begun >= 0.04
        assert (proof.error, proof.message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "not this one")
        assert (found.is_over, found.reason, found.admission) == (True, "not this one", None)

    asyncio.run(scenario())


def test_a_pulsar_that_is_away_decides_nothing() -> None:
    async def scenario() -> None:
        found = session()
        await found.choose("PLAIN")
        with pytest.raises(Unreachable):
            await found.prove(b"\0acme\0token:slow", lambda: 0.0)
        assert not found.admits(METADATA)

    asyncio.run(scenario())


@pytest.mark.parametrize(("ends", "lifetime"), [(None, 0.0), (100.0, 60.0), (1.0, 0.001)])
def test_how_long_a_client_is_believed(ends: float | None, lifetime: float) -> None:
    async def scenario() -> None:
        found = session(Doorkeeper(ends))
        await found.choose("PLAIN")
        assert (await found.prove(GOOD, lambda: 40.0)).lifetime == lifetime

    asyncio.run(scenario())


def test_a_client_says_again_who_it_is() -> None:
    async def scenario() -> None:
        door = Doorkeeper()
        found = await known(door)
        assert await found.choose("PLAIN") is ErrorCode.NONE
        assert not found.admits(METADATA)
        assert (await found.prove(GOOD, lambda: 0.0)).error is ErrorCode.NONE
        assert found.admits(METADATA)
        assert [guest.released for guest in door.guests] == [1, 0]
        found.close()
        found.close()
        assert [guest.released for guest in door.guests] == [1, 1]

    asyncio.run(scenario())


def test_nobody_becomes_somebody_else() -> None:
    async def scenario() -> None:
        door = Doorkeeper()
        found = await known(door)
        await found.choose("PLAIN")
        proof = await found.prove(b"\0beta/shop\0token:good", lambda: 0.0)
        assert proof.error is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert door.guests[1].released == 1
        assert not found.admits(METADATA)
        other = await known()
        assert await other.choose("OAUTHBEARER") is ErrorCode.UNSUPPORTED_SASL_MECHANISM

    asyncio.run(scenario())


def test_two_principals_without_a_name_are_not_the_same() -> None:
    async def scenario(services: list[object], error: ErrorCode) -> None:
        class Unnamed(Doorkeeper):
            async def admit(self, credentials: Credentials) -> Guest:
                guest = await super().admit(credentials)
                guest.name, guest.services = None, services.pop()
                return guest

        found = await known(Unnamed())
        await found.choose("PLAIN")
        assert (await found.prove(GOOD, lambda: 0.0)).error is error

    one = object()
    asyncio.run(scenario([one, one], ErrorCode.NONE))
    asyncio.run(scenario([one, object()], ErrorCode.SASL_AUTHENTICATION_FAILED))


def test_a_client_that_goes_while_pulsar_is_asked_leaves_nothing() -> None:
    async def scenario() -> None:
        class Slow(Doorkeeper):
            async def admit(self, credentials: Credentials) -> Guest:
                guest = await super().admit(credentials)
                found.close()
                return guest

        door = Slow()
        found = session(door)
        await found.choose("PLAIN")
        assert (await found.prove(GOOD, lambda: 0.0)).error is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert door.guests[0].released == 1

    asyncio.run(scenario())
