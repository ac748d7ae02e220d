"""Which settings a Pulsar broker needs so that Kafka clients get what they expect, and what to say if not.

The settings are those of the broker that answers; all brokers of a cluster should have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.brokers.pulsar import Admin
from penstock.errors import ClusterError, Unreachable
from penstock.gateway.pulsar.retention import keeps_nothing

__all__ = ["WANTED", "WANTED_PACKED", "Finding", "Wanted", "check_broker", "check_retention", "judge"]

_INDEX: Final = "AppendIndexMetadataInterceptor"
_PACKAGE: Final = "org.apache.pulsar.common.intercept"


def _is(word: str) -> Callable[[str], bool]:
    return lambda value: value.strip().lower() == word


def _at_most(number: int) -> Callable[[str], bool]:
    return lambda value: value.strip().isdecimal() and int(value) <= number


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One setting of the broker: when it is right, what goes wrong else, and the line that repairs it."""

    setting: str
    is_right: Callable[[str], bool]
    otherwise: str
    line: str
    fatal: bool = False


_INDEXED: Final = (
    Wanted(
        setting="brokerEntryMetadataInterceptors",
        is_right=lambda value: _INDEX in value,
        otherwise="entries have no index, so records have no Kafka offset",
        line=f"brokerEntryMetadataInterceptors={_PACKAGE}.{_INDEX}",
        fatal=True,
    ),
    Wanted(
        setting="exposingBrokerEntryMetadataToClientEnabled",
        is_right=_is("true"),
        otherwise="the index does not come with the entries, so nothing can be fetched",
        line="exposingBrokerEntryMetadataToClientEnabled=true",
        fatal=True,
    ),
)
_ALWAYS: Final = (
    Wanted(
        setting="brokerDeduplicationEnabled",
        is_right=_is("true"),
        otherwise="idempotent producers may write a record twice when a gateway or broker fails",
        line="brokerDeduplicationEnabled=true",
    ),
    Wanted(
        setting="brokerDeleteInactiveTopicsEnabled",
        is_right=_is("false"),
        otherwise="a topic that nobody uses for a while is deleted with its records",
        line="brokerDeleteInactiveTopicsEnabled=false",
    ),
)
_NUMBERED: Final = (
    Wanted(
        setting="managedLedgerMaxEntriesPerLedger",
        is_right=_at_most(100_000),
        otherwise="a packed offset has numbers for 131072 entries of a ledger, and what is behind has none",
        line="managedLedgerMaxEntriesPerLedger=50000",
    ),
    Wanted(
        setting="managedLedgerMinLedgerRolloverTimeMinutes",
        is_right=_is("0"),
        otherwise="a busy ledger gets more entries than it may have, until it is that old",
        line="managedLedgerMinLedgerRolloverTimeMinutes=0",
    ),
)
_CURSORS: Final = (
    Wanted(
        setting="acknowledgmentAtBatchIndexLevelEnabled",
        is_right=_is("true"),
        otherwise="the Pulsar cursor of a group stands before a batch of which it has read a part",
        line="acknowledgmentAtBatchIndexLevelEnabled=true",
    ),
)
WANTED: Final = (*_INDEXED, *_ALWAYS, *_CURSORS)
"""For offsets by the index."""
WANTED_PACKED: Final = (*_NUMBERED, *_ALWAYS)
"""For packed offsets."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that is not right."""

    wanted: Wanted
    value: str | None
    """What the broker has; None if it does not say."""

    def __str__(self) -> str:
        shown = f"is {self.value or 'empty'}" if self.value is not None else "is not told"
        return (
            f"{self.wanted.setting} {shown}: {self.wanted.otherwise}; "
            f"next: write {self.wanted.line} into the broker's configuration"
        )


def judge(settings: Mapping[str, str], wants: Sequence[Wanted] = WANTED) -> list[Finding]:
    """Compare a broker's settings with what is wanted.

    >>> [finding.wanted.setting for finding in judge({"brokerDeduplicationEnabled": "true"})][0]
    'brokerEntryMetadataInterceptors'
    """
    found = []
    for wanted in wants:
        value = settings.get(wanted.setting)
        if value is None or not wanted.is_right(str(value)):
            found.append(Finding(wanted, None if value is None else str(value)))
    return found


async def check_broker(admin: Admin, *, packed: bool = False) -> list[str]:
    """Give a warning for each setting that should be changed; raise if one makes serving impossible."""
    try:
        settings = await admin.broker_settings()
    except Unreachable:
        raise
    except ClusterError as exc:
        # Only a super user may read them; the gateway itself needs less.
        return [f"the broker's settings cannot be checked: {exc}"]
    if packed:
        return _check_packed(settings)
    findings = judge(settings)
    fatal = [finding for finding in findings if finding.wanted.fatal]
    if fatal:
        raise ClusterError(
            "this Pulsar cannot serve Kafka clients as it is configured",
            why="\n".join(f"{each.wanted.setting}: {each.wanted.otherwise}" for each in fatal),
            next="write into broker.conf and restart: "
            + "; ".join(each.wanted.line for each in fatal)
            + "; or serve without the index: --offsets packed",
        )
    return [str(finding) for finding in findings]


async def check_retention(admin: Admin, namespace: str) -> list[str]:
    """Give a warning if a namespace keeps nothing; none if that is not told to this role."""
    try:
        found = await admin.namespace_retention(namespace) or _broker_retention(await admin.broker_settings())
    except ClusterError as exc:
        if isinstance(exc, Unreachable):
            raise
        return []
    if not keeps_nothing(found):
        return []
    return [
        f"namespace {namespace} keeps nothing: what no subscription waits for is removed, read or not; "
        "topics that Kafka clients make are kept by --retention-hours, other topics are not; "
        f"next: pulsar-admin namespaces set-retention {namespace} --time 7d --size -1"
    ]


def _broker_retention(settings: Mapping[str, str]) -> dict[str, int]:
    """Give what holds where neither topic nor namespace say anything; for ever if it is not told."""
    names = {
        "retentionTimeInMinutes": "defaultRetentionTimeInMinutes",
        "retentionSizeInMB": "defaultRetentionSizeInMB",
    }
    return {part: int(settings.get(name, -1)) for part, name in names.items()}


def _check_packed(settings: Mapping[str, str]) -> list[str]:
    advice = [str(finding) for finding in judge(settings, WANTED_PACKED)]
    if not judge(settings, _INDEXED):
        advice.append("this broker keeps the index; next: --offsets index, for offsets without holes")
    return advice
