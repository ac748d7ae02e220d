"""Kafka's topic settings: type, legal values, default, and what each means on this gateway.

A setting that steers Kafka's files or replicas is accepted, kept and given back, and steers nothing here. A
value that would promise what the gateway does not do is refused, as are unknown names and invalid values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from penstock.errors import ApiError
from penstock.wire.kafka import ErrorCode

__all__ = ["MAX_INT", "TOPIC_SETTINGS", "Kind", "TopicSetting", "appended", "check_setting", "subtracted"]

MAX_INT: Final = (1 << 31) - 1
MAX_LONG: Final = (1 << 63) - 1
_WHOLE_NUMBER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_LONGEST_VALUE: Final = 4096
"""Characters of a value; it is kept in the metadata of a Pulsar topic."""


class Kind(IntEnum):
    """The types of settings, as DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


_LARGEST: Final[Mapping[Kind, float]] = {Kind.INT: MAX_INT, Kind.LONG: MAX_LONG, Kind.DOUBLE: math.inf}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """One setting."""

    kind: Kind
    default: str
    broker: str
    """The setting of a Kafka broker that it takes its default from."""
    about: str
    lowest: float = -math.inf
    highest: float = math.inf
    words: frozenset[str] = frozenset()
    """The legal words of a string or list; empty if any are."""
    only: str | None = None
    """The one value that is true here; None if every legal one is."""
    is_former: bool = False
    """Kafka 4 does not know it any more: accepted, and described only where it was set."""

    def problem(self, value: str) -> str | None:
        """Say what is wrong with a value; None if nothing is."""
        if len(value) > _LONGEST_VALUE:
            return f"is longer than {_LONGEST_VALUE} characters"
        if not self._is_legal(value.strip()):
            return f"cannot be {value}"
        if self.only is not None and value.strip().lower() != self.only.lower():
            return f"cannot be {value}: {self.about}"
        return None

    def _is_legal(self, value: str) -> bool:
        if self.kind is Kind.BOOLEAN:
            return value.lower() in ("true", "false")
        if self.kind is Kind.LIST:
            words = list_of(value)
            return len(set(words)) == len(words) and (not self.words or len(words) > 0 and self._knows(words))
        if self.kind is Kind.STRING:
            return not self.words or value in self.words
        return self._is_in_range(value)

    def _knows(self, words: list[str]) -> bool:
        return self.words >= set(words)

    def _is_in_range(self, value: str) -> bool:
        try:
            number = float(value) if self.kind is Kind.DOUBLE else _whole(value)
        except ValueError:
            return False
        return self.lowest <= number <= min(self.highest, _LARGEST[self.kind])


def list_of(value: str) -> list[str]:
    """Split the value of a list.

    >>> list_of("compact, delete"), list_of("")
    (['compact', 'delete'], [])
    """
    return [word for part in value.split(",") if (word := part.strip())]


def check_setting(name: str, value: str | None) -> None:
    """Refuse what cannot be set; None, which takes a setting back, is possible for every known name.

    >>> check_setting("segment.bytes", "52428800")
    >>> check_setting("message.timestamp.type", "LogAppendTime")
    Traceback (most recent call last):
    ...
    penstock.errors.ApiError: ...
    """
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise ApiError(f"there is no topic setting {name}", error_code=ErrorCode.INVALID_CONFIG)
    problem = None if value is None else setting.problem(value)
    if problem is not None:
        raise ApiError(f"{name} {problem}", error_code=ErrorCode.INVALID_CONFIG)


def appended(name: str, value: str, more: str | None) -> str:
    """Add words to the value of a list; those it has already stay single.

    >>> appended("cleanup.policy", "delete", "compact")
    'delete,compact'
    """
    words = _list_setting(name, value)
    return ",".join([*words, *(word for word in list_of(more or "") if word not in words)])


def subtracted(name: str, value: str, less: str | None) -> str:
    """Take words out of the value of a list.

    >>> subtracted("cleanup.policy", "delete,compact", "delete")
    'compact'
    """
    gone = set(list_of(less or ""))
    return ",".join(word for word in _list_setting(name, value) if word not in gone)


def _list_setting(name: str, value: str) -> list[str]:
    check_setting(name, None)
    if TOPIC_SETTINGS[name].kind is not Kind.LIST:
        raise ApiError(
            f"{name} is no list: nothing can be added or taken away", error_code=ErrorCode.INVALID_CONFIG
        )
    return list_of(value)


def _whole(value: str) -> int:
    if not _WHOLE_NUMBER.fullmatch(value):
        raise ValueError(value)
    return int(value)


def _kept(
    kind: Kind, default: str, broker: str, about: str, *, lowest: float = -math.inf, highest: float = math.inf
) -> TopicSetting:
    about = f"{about} Kept, without effect."
    return TopicSetting(
        kind=kind, default=default, broker=broker, about=about, lowest=lowest, highest=highest
    )


_FILES = "Kafka's log files."
_REPLICAS = "Kafka's replicas; Pulsar's bookies keep copies by the policies of the namespace."
_COMPRESSION = "How Kafka compresses its files; batches are given to consumers uncompressed."
_NOT_CHECKED = "timestamps are not checked here, so every one is accepted"
_NO_TIERS = "Kafka's tiered storage is not served; Pulsar offloads by the policies of the namespace"

TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = {
    "cleanup.policy": TopicSetting(
        kind=Kind.LIST,
        default="delete",
        broker="log.cleanup.policy",
        about="With compact, Pulsar compacts the topic; retention holds in either case.",
        words=frozenset({"compact", "delete"}),
    ),
    "compression.gzip.level": _kept(
        Kind.INT, "-1", "compression.gzip.level", _COMPRESSION, lowest=-1, highest=9
    ),
    "compression.lz4.level": _kept(
        Kind.INT, "9", "compression.lz4.level", _COMPRESSION, lowest=1, highest=17
    ),
    "compression.type": TopicSetting(
        kind=Kind.STRING,
        default="producer",
        broker="compression.type",
        about=f"{_COMPRESSION} Kept, without effect.",
        words=frozenset({"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"}),
    ),
    "compression.zstd.level": _kept(
        Kind.INT, "3", "compression.zstd.level", _COMPRESSION, lowest=-131072, highest=22
    ),
    "delete.retention.ms": _kept(
        Kind.LONG,
        "86400000",
        "log.cleaner.delete.retention.ms",
        "How long Kafka keeps tombstones; Pulsar's compaction leaves none.",
        lowest=0,
    ),
    "file.delete.delay.ms": _kept(Kind.LONG, "60000", "log.segment.delete.delay.ms", _FILES, lowest=0),
    "flush.messages": _kept(Kind.LONG, str(MAX_LONG), "log.flush.interval.messages", _FILES, lowest=1),
    "flush.ms": _kept(Kind.LONG, str(MAX_LONG), "log.flush.interval.ms", _FILES, lowest=0),
    "follower.replication.throttled.replicas": _kept(Kind.LIST, "", "", _REPLICAS),
    "index.interval.bytes": _kept(Kind.INT, "4096", "log.index.interval.bytes", _FILES, lowest=0),
    "leader.replication.throttled.replicas": _kept(Kind.LIST, "", "", _REPLICAS),
    "local.retention.bytes": _kept(Kind.LONG, "-2", "log.local.retention.bytes", _NO_TIERS + ".", lowest=-2),
    "local.retention.ms": _kept(Kind.LONG, "-2", "log.local.retention.ms", _NO_TIERS + ".", lowest=-2),
    "max.compaction.lag.ms": _kept(
        Kind.LONG,
        str(MAX_LONG),
        "log.cleaner.max.compaction.lag.ms",
        "Pulsar looks for topics to compact about every minute.",
        lowest=1,
    ),
    "max.message.bytes": TopicSetting(
        kind=Kind.INT,
        default="1048588",
        broker="message.max.bytes",
        about="The largest message of the topic, at most Pulsar's own limit.",
        lowest=0,
    ),
    "message.downconversion.enable": TopicSetting(
        kind=Kind.BOOLEAN,
        default="true",
        broker="log.message.downconversion.enable",
        about="Of Kafka 3. Kept, without effect.",
        is_former=True,
    ),
    "message.format.version": TopicSetting(
        kind=Kind.STRING,
        default="3.0-IV1",
        broker="log.message.format.version",
        about="Of Kafka 3. Kept, without effect.",
        is_former=True,
    ),
    "message.timestamp.after.max.ms": TopicSetting(
        kind=Kind.LONG,
        default=str(MAX_LONG),
        broker="log.message.timestamp.after.max.ms",
        about=_NOT_CHECKED,
        lowest=0,
        only=str(MAX_LONG),
    ),
    "message.timestamp.before.max.ms": TopicSetting(
        kind=Kind.LONG,
        default=str(MAX_LONG),
        broker="log.message.timestamp.before.max.ms",
        about=_NOT_CHECKED,
        lowest=0,
        only=str(MAX_LONG),
    ),
    "message.timestamp.difference.max.ms": TopicSetting(
        kind=Kind.LONG,
        default=str(MAX_LONG),
        broker="log.message.timestamp.difference.max.ms",
        about=_NOT_CHECKED,
        lowest=0,
        only=str(MAX_LONG),
        is_former=True,
    ),
    "message.timestamp.type": TopicSetting(
        kind=Kind.STRING,
        default="CreateTime",
        broker="log.message.timestamp.type",
        about="a record keeps the timestamp that its producer gave it",
        words=frozenset({"CreateTime", "LogAppendTime"}),
        only="CreateTime",
    ),
    "min.cleanable.dirty.ratio": _kept(
        Kind.DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio", _FILES, lowest=0, highest=1
    ),
    "min.compaction.lag.ms": TopicSetting(
        kind=Kind.LONG,
        default="0",
        broker="log.cleaner.min.compaction.lag.ms",
        about="Pulsar compacts whatever is there",
        lowest=0,
        only="0",
    ),
    "min.insync.replicas": _kept(Kind.INT, "1", "min.insync.replicas", _REPLICAS, lowest=1),
    "preallocate": _kept(Kind.BOOLEAN, "false", "log.preallocate", _FILES),
    "remote.log.copy.disable": _kept(Kind.BOOLEAN, "false", "", _NO_TIERS + "."),
    "remote.log.delete.on.disable": _kept(Kind.BOOLEAN, "false", "", _NO_TIERS + "."),
    "remote.storage.enable": TopicSetting(
        kind=Kind.BOOLEAN, default="false", broker="", about=_NO_TIERS, only="false"
    ),
    "retention.bytes": TopicSetting(
        kind=Kind.LONG,
        default="-1",
        broker="log.retention.bytes",
        about="Pulsar's retention size of each partition, in whole MiB, rounded up; -1 for no limit.",
        lowest=-1,
    ),
    "retention.ms": TopicSetting(
        kind=Kind.LONG,
        default="604800000",
        broker="log.retention.ms",
        about="Pulsar's retention time, in whole minutes, rounded up; -1 for no limit.",
        lowest=-1,
    ),
    "segment.bytes": _kept(Kind.INT, "1073741824", "log.segment.bytes", _FILES, lowest=14),
    "segment.index.bytes": _kept(Kind.INT, "10485760", "log.index.size.max.bytes", _FILES, lowest=4),
    "segment.jitter.ms": _kept(Kind.LONG, "0", "log.roll.jitter.ms", _FILES, lowest=0),
    "segment.ms": _kept(Kind.LONG, "604800000", "log.roll.ms", _FILES, lowest=1),
    "unclean.leader.election.enable": TopicSetting(
        kind=Kind.BOOLEAN,
        default="false",
        broker="unclean.leader.election.enable",
        about=f"{_REPLICAS} Kept, without effect.",
    ),
}
"""By name, in the order of the names."""
