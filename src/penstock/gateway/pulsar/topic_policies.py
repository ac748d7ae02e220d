"""Kafka's topic settings as policies and properties of a Pulsar topic.

Four settings are policies of Pulsar. Every setting that a Kafka client sets is also kept as a property, in
the client's own words, so that it is given back as it was set (a policy counts minutes and MiB, and does not
know `compact,delete`) and can be told from a default. Where policy and property disagree somebody has changed
the policy by Pulsar's own means: then the policy is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.gateway.ports import TopicConfig
from penstock.gateway.topic_settings import MAX_INT, TOPIC_SETTINGS, list_of

__all__ = [
    "COMPACTION",
    "DEFAULT_RETENTION_PROPERTY",
    "NO_RETENTION",
    "POLICIES",
    "PROPERTY_PREFIX",
    "RETENTION",
    "TopicState",
    "Update",
    "retention_text",
]

PROPERTY_PREFIX: Final = "penstock.kafka.config."
"""What the names of properties that keep settings begin with."""
DEFAULT_RETENTION_PROPERTY: Final = "penstock.kafka.default-retention"
"""Has the retention that a gateway gave a topic because nobody set one: minutes and MiB."""
RETENTION: Final = "retention"
COMPACTION: Final = "compactionThreshold"
MESSAGE_SIZE: Final = "maxMessageSize"
POLICIES: Final = (RETENTION, COMPACTION, MESSAGE_SIZE)
_MINUTE_MS: Final = 60_000
_MEBIBYTE: Final = 1 << 20
_MOST_MINUTES: Final = MAX_INT // 60
"""68 years: a broker compares a retention with the backlog quota in seconds, with 32 bits."""
_TIME, _SIZE = "retentionTimeInMinutes", "retentionSizeInMB"
NO_RETENTION: Final[Mapping[str, int]] = {_TIME: 0, _SIZE: 0}
"""Pulsar's default: what every subscription has acknowledged goes at once."""


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A setting that is (a part of) a policy of Pulsar."""

    policy: str
    part: str | None
    """The field of the policy; None if the setting is all of it."""
    write: Callable[[str], int]
    read: Callable[[int], str]

    def of(self, policy: Any) -> int:
        return int(policy if self.part is None else policy[self.part])


def _in_units(text: str, unit: int, most: int) -> int:
    """Count whole units, rounded up; at least one, because Pulsar takes 0 for nothing at all.

    More than Pulsar can count is without limit: clients write the largest number for that, too.
    """
    count = max(1, -(-int(text) // unit))
    return -1 if int(text) < 0 or count > most else count


def _from_units(count: int, unit: int) -> str:
    return "-1" if count < 0 else str(count * unit)


_MAPPED: Final[Mapping[str, _Mapped]] = {
    "retention.ms": _Mapped(
        RETENTION,
        _TIME,
        lambda text: _in_units(text, _MINUTE_MS, _MOST_MINUTES),
        lambda count: _from_units(count, _MINUTE_MS),
    ),
    "retention.bytes": _Mapped(
        RETENTION,
        _SIZE,
        lambda text: _in_units(text, _MEBIBYTE, MAX_INT),
        lambda count: _from_units(count, _MEBIBYTE),
    ),
    "cleanup.policy": _Mapped(
        COMPACTION,
        None,
        lambda text: int("compact" in list_of(text)),
        lambda threshold: "compact" if threshold else "delete",
    ),
    "max.message.bytes": _Mapped(MESSAGE_SIZE, None, int, str),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What is to be written to Pulsar; None removes a policy."""

    policies: Mapping[str, Any]
    set_properties: Mapping[str, str]
    removed_properties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """What Pulsar says about a topic."""

    properties: Mapping[str, str]
    policies: Mapping[str, Any]
    """Those of the topic itself; None for one that it does not have."""
    effective_retention: Mapping[str, int]
    """What holds for the topic, by the topic, the namespace or the broker."""
    largest_message: int
    """Pulsar's limit, which holds where the topic has none."""

    def configs(self) -> dict[str, TopicConfig]:
        """Give every setting with its value, and whether it was set on the topic."""
        found = {name: self._config(name) for name in TOPIC_SETTINGS}
        return {
            name: config
            for name, config in found.items()
            if config.is_set or not TOPIC_SETTINGS[name].is_former
        }

    def _config(self, name: str) -> TopicConfig:
        kept, mapped = self._kept(name), _MAPPED.get(name)
        if mapped is None:
            return TopicConfig(TOPIC_SETTINGS[name].default if kept is None else kept, kept is not None)
        policy = self.policies.get(mapped.policy)
        if policy is None:
            return TopicConfig(self._default(name), is_set=False)
        value = mapped.of(policy)
        if kept is not None and _is_same(mapped, kept, value):
            return TopicConfig(kept, is_set=True)
        # A policy that came about by another setting, or by no setting at all, says nothing about this one.
        is_default = any(map(self._kept, _siblings(name))) or policy == self._given_retention
        is_set = kept is not None or not is_default
        return TopicConfig(mapped.read(value), is_set)

    @property
    def _given_retention(self) -> Mapping[str, int] | None:
        """What a gateway gave the topic because nobody set a retention."""
        found = self.properties.get(DEFAULT_RETENTION_PROPERTY, "").split(",")
        if len(found) != 2 or not all(each.lstrip("-").isdecimal() for each in found):
            return None
        return dict(zip((_TIME, _SIZE), map(int, found), strict=True))

    def _kept(self, name: str) -> str | None:
        value = self.properties.get(PROPERTY_PREFIX + name)
        # Pulsar's own tools write properties, too: what is no legal value counts as none.
        return None if value is None or TOPIC_SETTINGS[name].problem(value) else value

    def _default(self, name: str) -> str:
        if name == "max.message.bytes":
            return str(self.largest_message)
        mapped = _MAPPED[name]
        if mapped.policy == RETENTION:
            return mapped.read(mapped.of(self.effective_retention))
        return TOPIC_SETTINGS[name].default

    def update(self, changes: Mapping[str, str | None]) -> Update:
        """Say what is to be written for changes that were checked; None takes a setting back."""
        policies = {}
        for policy in {_MAPPED[name].policy for name in changes if name in _MAPPED}:
            policies[policy] = self._policy(policy, changes)
        given = {PROPERTY_PREFIX + name: value for name, value in changes.items() if value is not None}
        gone = tuple(PROPERTY_PREFIX + name for name, value in changes.items() if value is None)
        removed = tuple(name for name in gone if name in self.properties)
        return Update(policies=policies, set_properties=given, removed_properties=removed)

    def _policy(self, policy: str, changes: Mapping[str, str | None]) -> Any:
        names = [name for name in _MAPPED if _MAPPED[name].policy == policy]
        now = {name: self._config(name) for name in names}
        now |= {name: _changed(now[name], changes[name]) for name in names if name in changes}
        if not any(config.is_set for config in now.values()):
            return self._given_retention if policy == RETENTION else None
        if policy != RETENTION:
            return _MAPPED[names[0]].write(now[names[0]].value)
        return {str(_MAPPED[name].part): self._part(name, now[name]) for name in names}

    def _part(self, name: str, config: TopicConfig) -> int:
        """Pulsar has time and size in one policy: what is not set stays what it is, or without limit.

        Pulsar refuses 0 beside another value.
        """
        return _MAPPED[name].write(config.value) if config.value != "0" or config.is_set else -1


def retention_text(retention: Mapping[str, int]) -> str:
    """Write a retention as the property that says a gateway has given it."""
    return f"{retention[_TIME]},{retention[_SIZE]}"


def _changed(config: TopicConfig, value: str | None) -> TopicConfig:
    return TopicConfig("-1", is_set=False) if value is None else replace(config, value=value, is_set=True)


def _is_same(mapped: _Mapped, kept: str, value: int) -> bool:
    written = mapped.write(kept)
    # Pulsar compacts from any threshold on; which one is not Kafka's business.
    return bool(written) == bool(value) if mapped.policy == COMPACTION else written == value


def _siblings(name: str) -> list[str]:
    return [
        other for other, mapped in _MAPPED.items() if other != name and mapped.policy == _MAPPED[name].policy
    ]
