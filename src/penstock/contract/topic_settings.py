"""The settings of a Kafka topic: which values each takes, how two compare, and what a change may cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from penstock.contract.steps import Risk

__all__ = ["TOPIC_SETTINGS", "Setting", "judge", "same"]

INT: Final = 2**31 - 1
LONG: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """What a setting takes, in words, and the test of it."""

    wanted: str
    takes: Callable[[str], bool]

    def refused(self, value: str) -> str | None:
        """Give what the setting takes if it does not take a value; None if it does."""
        return None if self.takes(value.strip()) else self.wanted


def _whole(minimum: int, maximum: int = LONG) -> Setting:
    def takes(value: str) -> bool:
        return re.fullmatch(r"[+-]?[0-9]{1,19}", value) is not None and minimum <= int(value) <= maximum

    return Setting(f"a whole number of at least {minimum}", takes)


def _level(minimum: int, maximum: int, default: int | None = None) -> Setting:
    def takes(value: str) -> bool:
        if re.fullmatch(r"[+-]?[0-9]{1,9}", value) is None:
            return False
        return int(value) == default or minimum <= int(value) <= maximum

    return Setting(f"a whole number from {minimum} to {maximum}", takes)


def _one_of(*words: str) -> Setting:
    return Setting(f"one of {', '.join(words)}", lambda value: value in words)


def _ratio(value: str) -> bool:
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False


_FLAG: Final = Setting("true or false", lambda value: value.lower() in ("true", "false"))
_REPLICAS: Final = Setting(
    "* or a list like 0:101,1:102",
    lambda value: re.fullmatch(r"\*|(?:[0-9]+:[0-9]+(?:,\s*[0-9]+:[0-9]+)*)?", value) is not None,
)

# Apache Kafka 4, TopicConfig and LogConfig: every setting of a topic with its type and its bounds. Where
# versions differ in a bound the wider one stands: the broker has the last word. confluent.* are Confluent's.
TOPIC_SETTINGS: Final[Mapping[str, Setting]] = {
    "cleanup.policy": Setting("a list of delete and compact", lambda _value: True),
    "compression.gzip.level": _level(1, 9, -1),
    "compression.lz4.level": _level(1, 17),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _level(-131072, 22),
    "delete.retention.ms": _whole(0),
    "file.delete.delay.ms": _whole(0),
    "flush.messages": _whole(1),
    "flush.ms": _whole(0),
    "follower.replication.throttled.replicas": _REPLICAS,
    "index.interval.bytes": _whole(0, INT),
    "leader.replication.throttled.replicas": _REPLICAS,
    "local.retention.bytes": _whole(-2),
    "local.retention.ms": _whole(-2),
    "max.compaction.lag.ms": _whole(1),
    "max.message.bytes": _whole(0, INT),
    "message.timestamp.after.max.ms": _whole(0),
    "message.timestamp.before.max.ms": _whole(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": Setting("a number from 0 to 1", _ratio),
    "min.compaction.lag.ms": _whole(0),
    "min.insync.replicas": _whole(1, INT),
    "preallocate": _FLAG,
    "remote.log.copy.disable": _FLAG,
    "remote.log.delete.on.disable": _FLAG,
    "remote.storage.enable": _FLAG,
    "retention.bytes": _whole(-1),
    "retention.ms": _whole(-1),
    "segment.bytes": _whole(14, INT),
    "segment.index.bytes": _whole(0, INT),
    "segment.jitter.ms": _whole(0),
    "segment.ms": _whole(1),
    "unclean.leader.election.enable": _FLAG,
}

_LISTS: Final = frozenset(
    {
        "cleanup.policy",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }
)
UNLIMITED: Final = -1


def same(key: str, left: str, right: str) -> bool:
    """Say whether two values mean the same, whatever the order of a list and the form of a number.

    >>> same("cleanup.policy", "delete,compact", "compact,delete"), same("retention.ms", "1e3", "1000")
    (True, True)
    """
    if left == right:
        return True
    if key in _LISTS:
        return _words(left) == _words(right)
    return left.lower() == right.lower() or _equal_numbers(left, right)


def _words(value: str) -> frozenset[str]:
    return frozenset(word.strip() for word in value.split(",") if word.strip())


def _equal_numbers(left: str, right: str) -> bool:
    try:
        return Decimal(left) == Decimal(right)
    except InvalidOperation:
        return False


Judgement = tuple[Risk, str]
_SAFE: Final[Judgement] = (Risk.SAFE, "")


def judge(key: str, before: str, after: str) -> Judgement:
    """Give the risk of a change and its warning.

    >>> judge("retention.ms", "-1", "1000")
    (<Risk.DANGEROUS: 'dangerous'>, 'older events are deleted')
    """
    rule = _RULES.get(key)
    return _SAFE if rule is None else rule(before, after)


def _when_less(risk: Risk, warning: str) -> Callable[[str, str], Judgement]:
    return lambda before, after: (risk, warning) if _amount(after) < _amount(before) else _SAFE


def _when_more(risk: Risk, warning: str) -> Callable[[str, str], Judgement]:
    return lambda before, after: (risk, warning) if _amount(after) > _amount(before) else _SAFE


def _amount(value: str) -> Decimal:
    """A limit as a number; without a limit is more than any."""
    try:
        number = Decimal(value)
    except InvalidOperation:
        return Decimal("Infinity")
    return Decimal("Infinity") if number == UNLIMITED or number.is_nan() else number


def _judge_cleanup(before: str, after: str) -> Judgement:
    gone, new = _words(before) - _words(after), _words(after) - _words(before)
    if "compact" in gone:
        return Risk.DANGEROUS, "compaction is turned off, the last event of a key may be deleted"
    if "delete" in new:
        return Risk.DANGEROUS, "events older than retention.ms are deleted"
    if "compact" in new:
        return Risk.DANGEROUS, "only the last event of each key stays, events without a key are refused"
    return _SAFE


_RULES: Final[Mapping[str, Callable[[str, str], Judgement]]] = {
    "cleanup.policy": _judge_cleanup,
    "retention.ms": _when_less(Risk.DANGEROUS, "older events are deleted"),
    "retention.bytes": _when_less(Risk.DANGEROUS, "the oldest events are deleted"),
    "delete.retention.ms": _when_less(Risk.CAUTION, "a slow reader may miss deletions"),
    "max.message.bytes": _when_less(Risk.CAUTION, "larger events are refused"),
    "min.insync.replicas": _when_more(Risk.CAUTION, "producers fail while fewer replicas are in sync"),
    "unclean.leader.election.enable": lambda _before, after: (
        (Risk.CAUTION, "events may be lost when a leader fails") if after.lower() == "true" else _SAFE
    ),
}
