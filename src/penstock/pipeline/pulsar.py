"""Topics on Pulsar as a pipeline sees them through the gateway: how they are read, named and written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.config import Context
from penstock.contract import Contract
from penstock.contract.connections import connect_server
from penstock.contract.credentials import Connection
from penstock.contract.profiles import profile_of
from penstock.errors import ConfigError, UsageError
from penstock.events.bindings.pulsar import Profile, PulsarBinding, Values
from penstock.events.reading import Level
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.bindings import PulsarRecords
from penstock.pipeline.arrow.decode import decode_batch

__all__ = [
    "DIALECTS",
    "PULSAR",
    "PulsarReader",
    "gateway_of",
    "is_served",
    "path_name",
    "profile_on",
    "tenant_of",
]

PULSAR = "pulsar"
"""How the contract calls the protocol."""
DIALECTS: Final = ("sniffed", "bridged")
"""What is read on Pulsar only if it is asked for."""
_SCHEME = "persistent://"


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarReader:
    """Reads CloudEvents from Pulsar in any profile and mode; a Reader."""

    sniffed: bool = False
    """Also JSON that looks like an event, without any property (A8)."""
    bridged: bool = False
    """Values of `ce_*` are base64, as pulsar-io-kafka copies them (A17)."""
    level: Level = Level.STRICT
    keep_case: bool = False
    """The case of 0.1 extension names is kept in the extension `extensionnames`."""
    values: Values = Values.AUTO
    """How the text of a 0.1 property stands for a value (A4)."""

    @classmethod
    def of(cls, dialects: Collection[str]) -> PulsarReader:
        """Make a reader of what is always read and of these."""
        unknown = set(dialects) - set(DIALECTS)
        if unknown:
            raise UsageError(f"there is no dialect {min(unknown)!r:.40}", next=f"use {' or '.join(DIALECTS)}")
        return cls(sniffed="sniffed" in dialects, bridged="bridged" in dialects)

    def __call__(self, batch: pa.RecordBatch) -> EventColumns:
        """Give the events, one row a record."""
        pulsar = PulsarBinding(
            sniff=self.sniffed, bridged=self.bridged, keep_case=self.keep_case, values=self.values
        )
        binding = PulsarRecords(pulsar=pulsar)
        return decode_batch(batch.column("value"), batch.column("headers"), binding, self.level)


def profile_on(protocol: str, contract: Contract, channel: str, said: str | None = None) -> Profile | None:
    """Give the profile of a channel: the one that is said, else the contract's; None on Kafka."""
    if protocol != PULSAR:
        return None
    return Profile(said or profile_of(contract.channels[channel]))


def gateway_of(context: Context | None, servers: tuple[str, ...] = ()) -> Connection | None:
    """Give the gateway that a context names; it stands before one Pulsar."""
    known = context.gateway() if context is not None else None
    if known is None:
        return None
    if len(servers) > 1:
        raise ConfigError(
            f"one gateway cannot be for {' and '.join(servers)}",
            where=known.origin,
            next="leave gateway: out of the context; the job then starts one for each",
        )
    return connect_server(known)


def is_served(topic: str) -> bool:
    """Say whether the gateway has a topic: it serves what is kept."""
    return topic.startswith(_SCHEME)


def tenant_of(topic: str) -> str:
    """Give the tenant of a topic."""
    return topic.removeprefix(_SCHEME).partition("/")[0]


def path_name(topic: str) -> str:
    """Give the name of a topic as one part of a path; no name of Kafka or Pulsar has a tilde.

    >>> path_name("persistent://public/shop/audit"), path_name("orders.placed")
    ('public~shop~audit', 'orders.placed')
    """
    return topic.removeprefix(_SCHEME).replace("/", "~")
