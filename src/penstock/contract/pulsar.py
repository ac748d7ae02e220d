"""The Pulsar bindings 0.1.0: server and channel; those of operations and messages are reserved and empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from penstock.contract.readers import boolean, integer, map_of, one_of, part, text, texts
from penstock.contract.shape import NOTHING, Part, spec

__all__ = [
    "PROFILES",
    "PulsarChannel",
    "PulsarMessage",
    "PulsarOperation",
    "PulsarOverride",
    "PulsarReserved",
    "PulsarRetention",
    "PulsarServer",
]

INT: Final = 2**31 - 1
LONG: Final = 2**63 - 1
UNLIMITED: Final = -1
"""Pulsar's own word for a limit that does not limit; the text of the binding does not forbid it."""
PROFILES: Final = ("0.1", "1.0")
"""The profiles of the CloudEvents binding; the first is that of spec 002."""
PARTITIONS: Final = integer(0, 10_000, hint="write 0 for a topic without partitions, or a number up to 10000")


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarServer(Part):
    """Server Binding Object: the tenant."""

    SPEC_NAME: ClassVar[str] = "the Pulsar server binding"
    tenant: str = spec(text, default="public")
    binding_version: str | None = spec(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarRetention(Part):
    """Retention Definition Object: how long acknowledged messages stay."""

    SPEC_NAME: ClassVar[str] = "retention"
    time: int = spec(
        integer(UNLIMITED, INT, unit="minutes", hint="write minutes, -1 is without a limit"), default=0
    )
    """Minutes; -1 is without a limit."""
    size: int = spec(
        integer(UNLIMITED, LONG, unit="megabytes", hint="write megabytes, -1 is without a limit"), default=0
    )
    """Megabytes; -1 is without a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarOverride(Part):
    """What one environment changes (our extension x-penstock-environments)."""

    SPEC_NAME: ClassVar[str] = "an override of x-penstock-environments"
    partitions: int | None = spec(PARTITIONS, name="x-penstock-partitions")
    retention: PulsarRetention | None = spec(part(PulsarRetention))
    ttl: int | None = spec(integer(0, INT, unit="seconds"))
    compaction: int | None = spec(integer(0, LONG, unit="megabytes"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarChannel(Part):
    """Channel Binding Object: the namespace and its policies; partitions are our extension."""

    SPEC_NAME: ClassVar[str] = "the Pulsar channel binding"
    namespace: str | None = spec(text, required=True)
    persistence: str | None = spec(one_of("persistent", "non-persistent"), required=True)
    compaction: int | None = spec(integer(0, LONG, unit="megabytes"))
    """Threshold in megabytes."""
    geo_replication: tuple[str, ...] | None = spec(texts, name="geo-replication")
    retention: PulsarRetention | None = spec(part(PulsarRetention))
    ttl: int | None = spec(
        integer(0, INT, unit="seconds", hint="ttl is a number of seconds; leave it out for no time to live")
    )
    deduplication: bool | None = spec(boolean)
    binding_version: str | None = spec(text)
    partitions: int | None = spec(PARTITIONS, name="x-penstock-partitions")
    """0 is a topic without partitions; the binding has no field for it. None is as many as there are."""
    profile: str | None = spec(one_of(*PROFILES), name="x-penstock-profile")
    """How CloudEvents are written here."""
    environments: Mapping[str, PulsarOverride] = spec(
        map_of(part(PulsarOverride)), name="x-penstock-environments", default=NOTHING
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarReserved(Part):
    """A binding that is reserved: it may be there and MUST NOT contain any properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarOperation(PulsarReserved):
    """Operation Binding Object."""

    SPEC_NAME: ClassVar[str] = "the Pulsar binding of an operation"


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarMessage(PulsarReserved):
    """Message Binding Object."""

    SPEC_NAME: ClassVar[str] = "the Pulsar binding of a message"
