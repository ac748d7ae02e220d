"""The committed offsets of one partition of the offsets topic, stored or on their way to the log.

Everything that removes offsets must know of both. A tombstone that is written while a commit is under way
stands behind that commit in the log and removes it, although the commit is acknowledged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from penstock.gateway.groups.offsets import Place
from penstock.gateway.groups.schemas import Commit, OffsetKey
from penstock.gateway.groups.usage import Usage, commit_bytes, tenant_of

__all__ = ["CursorId", "OffsetTable"]

CursorId = tuple[str, Place]
"""A group, and a topic with partition: what a Pulsar subscription stands for."""


class OffsetTable:
    """Offsets by group, topic and partition."""

    def __init__(self, usage: Usage, *, keeps_cursors: bool = False) -> None:
        self.stored: dict[str, dict[Place, Commit]] = {}
        self.changed: dict[CursorId, None] = {}
        """What was committed or removed since the cursors were last brought up to date, oldest first."""
        self.leftover: dict[CursorId, None] = {}
        """Subscriptions that must go because their offsets went; stored, so that a takeover knows them."""
        self._usage = usage
        self._keeps_cursors = keeps_cursors
        self._under_way: dict[str, dict[Place, int]] = {}

    @property
    def keeps_cursors(self) -> bool:
        """Whether somebody takes `changed` and `leftover`."""
        return self._keeps_cursors

    def set(self, key: OffsetKey, commit: Commit | None) -> None:
        """Set or remove a stored offset."""
        # One topic has many offsets, and each came with a text of its own.
        place = (sys.intern(key.topic), key.partition)
        places = self.stored.setdefault(key.group_id, {})
        former = places.get(place)
        grown = _grown(key.topic, former, commit)
        if commit is not None:
            places[place] = commit
        else:
            places.pop(place, None)
        if not places:
            del self.stored[key.group_id]
        if grown:
            self._usage.add(tenant_of(key.group_id), size=grown)
        if self._keeps_cursors:
            self.changed[key.group_id, place] = None

    def places(self, group_id: str) -> list[Place]:
        """Name everything that a group has stored, or will have when what is under way is stored."""
        return list({**self.stored.get(group_id, {}), **self._under_way.get(group_id, {})})

    def is_storing(self, group_id: str, place: Place | None = None) -> bool:
        """Whether something of a group, or of one place of it, is on its way to the log."""
        found = self._under_way.get(group_id)
        return found is not None and (place is None or place in found)

    def begin(self, keys: Iterable[OffsetKey]) -> None:
        """Note that these are on their way."""
        for key in keys:
            places, place = self._under_way.setdefault(key.group_id, {}), (key.topic, key.partition)
            places[place] = places.get(place, 0) + 1

    def end(self, keys: Iterable[OffsetKey]) -> None:
        """Note that these have arrived, or were given up."""
        for key in keys:
            places, place = self._under_way[key.group_id], (key.topic, key.partition)
            if places[place] > 1:
                places[place] -= 1
                continue
            del places[place]
            if not places:
                del self._under_way[key.group_id]

    def growth(self, group_id: str, commits: Mapping[Place, Commit]) -> int:
        """Count the bytes by which commits would make the table larger."""
        known, grown = self.stored.get(group_id, {}), 0
        for place, commit in commits.items():
            grown += _grown(place[0], known.get(place), commit)
        return grown


def _grown(topic: str, former: Commit | None, commit: Commit | None) -> int:
    if former is not None and commit is not None:
        return len(commit.metadata) - len(former.metadata)
    return commit_bytes(topic, commit) - commit_bytes(topic, former)
