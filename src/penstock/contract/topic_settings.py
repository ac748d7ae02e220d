"""How two values of a Kafka topic setting compare, and what a change of one may cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

from penstock.contract.steps import Risk

__all__ = ["judge", "same"]

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
