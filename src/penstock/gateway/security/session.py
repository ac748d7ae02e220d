"""The steps of one connection of a SASL listener, from a stranger to a principal (KIP-43, KIP-152, KIP-368).

    stranger -SaslHandshake-> chosen -SaslAuthenticate-> known -SaslHandshake-> renewing -...-> known

A stranger is answered ApiVersions and the two SASL requests and nothing else. What does not succeed ends the
connection, after its answer, which is held back for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from penstock.errors import ApiError
from penstock.gateway.handler import Services
from penstock.gateway.security.mechanisms import MECHANISMS, Credentials
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

__all__ = ["TRANSITIONS", "Admission", "Door", "NotAdmitted", "Proof", "Session", "Stage", "Step"]

FAILURE_DELAY: Final = 0.5
"""Seconds: who guesses has to wait (Kafka: `connection.failed.authentication.delay.ms`)."""


class Stage(StrEnum):
    """How far a connection has come."""

    STRANGER = "stranger"
    CHOSEN = "chosen"
    KNOWN = "known"
    RENEWING = "renewing"
    OVER = "over"


class Step(StrEnum):
    """What may happen to it."""

    CHOSE = "chose"
    """A mechanism that there is."""
    PROVED = "proved"
    """Pulsar takes the credentials."""
    FAILED = "failed"


TRANSITIONS: Final[Mapping[tuple[Stage, Step], Stage]] = {
    (Stage.STRANGER, Step.CHOSE): Stage.CHOSEN,
    (Stage.STRANGER, Step.FAILED): Stage.OVER,
    (Stage.CHOSEN, Step.PROVED): Stage.KNOWN,
    (Stage.CHOSEN, Step.FAILED): Stage.OVER,
    (Stage.KNOWN, Step.CHOSE): Stage.RENEWING,
    (Stage.KNOWN, Step.FAILED): Stage.OVER,
    (Stage.RENEWING, Step.PROVED): Stage.KNOWN,
    (Stage.RENEWING, Step.FAILED): Stage.OVER,
}
"""What is not here is answered ILLEGAL_SASL_STATE and ends the connection."""

_ALWAYS: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})


class Admission(Protocol):
    """A principal that Pulsar knows, while a connection has it."""

    @property
    def name(self) -> str | None:
        """Who it is; None if its credentials have proven that it may come in, and no name."""

    @property
    def principal(self) -> Hashable:
        """What it is counted by: the same whatever namespace the client has chosen."""

    @property
    def namespace(self) -> str:
        """Where its short topic names are."""

    @property
    def services(self) -> Services:
        """Everything behind the handlers, with the rights of the principal and no others."""

    @property
    def expires_at(self) -> float | None:
        """When the credentials end, in seconds since 1970; None if they do not say."""

    def release(self) -> None:
        """Say that the connection does not need it any more."""


class Door(Protocol):
    """Who decides who comes in."""

    async def admit(self, credentials: Credentials) -> Admission:
        """Let somebody in; ApiError if they may not, another error if that cannot be said now."""


class NotAdmitted(ApiError):
    """A request of one who has not said who it is; Kafka closes the connection."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What SaslAuthenticate is answered."""

    error: ErrorCode
    message: str | None = None
    lifetime: float = 0.0
    """Seconds until the client has to say again who it is; 0 if never (KIP-368)."""


class Session:
    """One connection."""

    def __init__(self, door: Door, *, failure_delay: float = FAILURE_DELAY) -> None:
        self.stage = Stage.STRANGER
        self.admission: Admission | None = None
        self._door = door
        self._delay = failure_delay
        self._mechanism = ""
        self.address = ""
        """Of the client."""
        self.is_bare = False
        """Whether the message of the mechanism comes next, without a request around it."""
        self.reason = ""
        """Why the connection has to end."""

    def admits(self, api_key: int) -> bool:
        """Say whether a request is served now."""
        return self.stage is Stage.KNOWN or api_key in _ALWAYS

    def check(self, api_key: int) -> None:
        """Refuse a request that is not served now."""
        if not self.admits(api_key):
            raise NotAdmitted(f"asked by a {self.stage}", error_code=ErrorCode.ILLEGAL_SASL_STATE)

    @property
    def is_over(self) -> bool:
        """Whether the connection has to end."""
        return self.stage is Stage.OVER

    def close(self) -> None:
        """The connection is gone."""
        self.stage = Stage.OVER
        if self.admission is not None:
            self.admission.release()
            self.admission = None

    async def choose(self, mechanism: str, *, bare: bool = False) -> ErrorCode:
        """SaslHandshake: take the mechanism that a client wants; `bare` if its message comes by itself."""
        if (self.stage, Step.CHOSE) not in TRANSITIONS:
            return await self._fail(ErrorCode.ILLEGAL_SASL_STATE)
        # KIP-368: the mechanism stays the same.
        if mechanism not in MECHANISMS or self._mechanism not in ("", mechanism):
            return await self._fail(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        self._mechanism = mechanism
        self.is_bare = bare
        self._step(Step.CHOSE)
        return ErrorCode.NONE

    async def prove(self, message: bytes, clock: Callable[[], float]) -> Proof:
        """SaslAuthenticate: let the door judge what a client says."""
        self.is_bare = False
        if (self.stage, Step.PROVED) not in TRANSITIONS:
            return Proof(await self._fail(ErrorCode.ILLEGAL_SASL_STATE))
        try:
            said = MECHANISMS[self._mechanism](message)
            admission = await self._door.admit(replace(said, address=self.address))
            self._take(admission)
        except ApiError as exc:
            return Proof(await self._fail(ErrorCode(exc.error_code), exc.what), exc.what)
        self._step(Step.PROVED)
        ends = admission.expires_at
        # At least a millisecond: 0 would mean that it never ends.
        return Proof(ErrorCode.NONE, lifetime=0.0 if ends is None else max(ends - clock(), 0.001))

    def _take(self, admission: Admission) -> None:
        former = self.admission
        if self.stage is Stage.OVER:
            # The client went away while Pulsar was asked.
            admission.release()
            raise _refused("the connection is gone")
        if former is not None and not _is_same(former, admission):
            admission.release()
            # KIP-368: nobody becomes somebody else on the way.
            raise _refused("a connection keeps its principal")
        self.admission = admission
        if former is not None:
            former.release()

    async def _fail(self, error: ErrorCode, reason: str = "") -> ErrorCode:
        self._step(Step.FAILED)
        self.reason = reason or error.name
        await asyncio.sleep(self._delay)
        return error

    def _step(self, step: Step) -> None:
        self.stage = TRANSITIONS.get((self.stage, step), Stage.OVER)


def _is_same(former: Admission, admission: Admission) -> bool:
    if former.name is None and admission.name is None:
        # Two without a name are not the same for that.
        return former.services is admission.services
    return (former.name, former.namespace) == (admission.name, admission.namespace)


def _refused(what: str) -> ApiError:
    return ApiError(what, error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
