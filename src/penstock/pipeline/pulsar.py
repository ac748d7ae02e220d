"""Topics on Pulsar as a pipeline sees them: how their records are read, named and written."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import Context
from penstock.contract import Contract
from penstock.contract.connections import connect_server
from penstock.contract.credentials import Connection
from penstock.contract.profiles import profile_of
from penstock.errors import UsageError
from penstock.events.bindings.pulsar import Profile, PulsarBinding, Values
from penstock.events.reading import Level
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.bindings import PulsarRecords
from penstock.pipeline.arrow.decode import decode_batch
from penstock.pipeline.evaluators.reference.reading import Decoded, Reject, read_record
from penstock.record import KafkaRecord

__all__ = [
    "DIALECTS",
    "PULSAR",
    "REJECTED",
    "PulsarReader",
    "gateway_of",
    "is_native",
    "is_served",
    "path_name",
    "profile_on",
    "rejected_rows",
    "unless_rejected",
]

PULSAR = "pulsar"
"""How the contract calls the protocol."""
DIALECTS: Final = ("sniffed", "bridged")
"""What is read on Pulsar only if it is asked for."""
REJECTED: Final = "ce-rejected"
"""The header of a record that stands for an entry which holds no records for us: `code: reason`.

Its name begins with ce: the kernel leaves such records of Pulsar to the reference, whatever else they have.
"""
_SCHEME = "persistent://"
_REJECT_CODE: Final = re.compile("[a-z]{1,20}-entry")
_SERVICE_URLS: Final = ("pulsar://", "pulsar+ssl://")


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

    @property
    def binding(self) -> PulsarRecords:
        """The binding that reads."""
        pulsar = PulsarBinding(
            sniff=self.sniffed, bridged=self.bridged, keep_case=self.keep_case, values=self.values
        )
        return PulsarRecords(pulsar=pulsar)

    def __call__(self, batch: pa.RecordBatch) -> EventColumns:
        """Give the events, one row a record."""
        headers = batch.column("headers")
        events = decode_batch(batch.column("value"), headers, self.binding, self.level)
        return events.with_rejects(rejected_rows(headers))

    def by_record(self) -> Callable[[KafkaRecord], Decoded | Reject]:
        """Return what reads one record."""
        return unless_rejected(partial(read_record, self.binding, level=self.level))


def unless_rejected(
    read: Callable[[KafkaRecord], Decoded | Reject],
) -> Callable[[KafkaRecord], Decoded | Reject]:
    """Return what reads a record, unless that stands for an entry that could not be read."""
    return partial(_read, read)


def _read(read: Callable[[KafkaRecord], Decoded | Reject], record: KafkaRecord) -> Decoded | Reject:
    for name, value in record.headers:
        if name == REJECTED:
            return Reject(*_verdict(value))
    return read(record)


def rejected_rows(headers: pa.ListArray) -> dict[int, tuple[str, str]]:
    """Return code and reason of the rows that stand for entries which could not be read, by their number."""
    pairs = headers.flatten()
    at = pc.indices_nonzero(pc.equal(pairs.field("key"), REJECTED))
    if not len(at):
        return {}
    rows = pc.list_parent_indices(headers).take(at).to_pylist()
    found: dict[int, tuple[str, str]] = {}
    for row, value in zip(rows, pairs.field("value").take(at).to_pylist(), strict=True):
        found.setdefault(row, _verdict(value))
    return found


def _verdict(value: bytes | None) -> tuple[str, str]:
    """Read code and reason out of the header; anybody may have written it, and codes are counted."""
    code, _, reason = (value or b"").decode(errors="replace").partition(": ")
    return code if _REJECT_CODE.fullmatch(code) else "rejected-entry", reason


def profile_on(protocol: str, contract: Contract, channel: str, said: str | None = None) -> Profile | None:
    """Give the profile of a channel: the one that is said, else the contract's; None on Kafka."""
    if protocol != PULSAR:
        return None
    return Profile(said or profile_of(contract.channels[channel]))


def gateway_of(context: Context | None) -> Connection | None:
    """Return the gateway that a context names; None if it names none."""
    known = context.gateway() if context is not None else None
    return None if known is None else connect_server(known)


def is_native(protocol: str, connection: Connection) -> bool:
    """Say whether a server on Pulsar is reached itself, and not through a gateway."""
    return protocol == PULSAR and connection.address.startswith(_SERVICE_URLS)


def is_served(topic: str) -> bool:
    """Return whether routes carry a topic: it must be persistent."""
    return topic.startswith(_SCHEME)


def path_name(topic: str) -> str:
    """Give the name of a topic as one part of a path; no name of Kafka or Pulsar has a tilde.

    >>> path_name("persistent://public/shop/audit"), path_name("orders.placed")
    ('public~shop~audit', 'orders.placed')
    """
    return topic.removeprefix(_SCHEME).replace("/", "~")
