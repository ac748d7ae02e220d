"""What clients ask for and do not get, for whoever moves them from Kafka: each kind once, then now and then.

A program often goes on after a refusal without a word of its own. What belongs to the ordinary course of the
protocol, and what a client tries again by itself, is counted by the metrics only.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.gateway.client_log import log
from penstock.gateway.told import name_of
from penstock.wire.kafka import APIS, ErrorCode

__all__ = ["ClientErrors"]

_EVERY: Final = 600.0
"""Seconds after which a refusal that goes on is logged again."""
_KINDS: Final = 1_000
_ORDINARY: Final = frozenset(
    {
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)


@dataclass(slots=True)
class _Kind:
    """Refusals of one code, by one API, of the clients of one id."""

    logged_at: float
    since: int = 0
    """How many came since it was logged."""


class ClientErrors:
    """Logs refusals; one for all connections of a process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: OrderedDict[tuple[str | None, int, int], _Kind] = OrderedDict()

    def note(
        self, client_id: str | None, api_key: int, errors: Sequence[int], why: Mapping[int, str]
    ) -> None:
        """Note the errors of an answer; `why` has what it says of some codes."""
        for code in dict.fromkeys(errors):
            if not _is_ordinary(code):
                self._note(client_id, api_key, code, why.get(code, ""))

    def _note(self, client_id: str | None, api_key: int, code: int, why: str) -> None:
        now, key = self._clock(), (client_id, api_key, code)
        kind = self._kinds.get(key)
        if kind is not None and now - kind.logged_at < _EVERY:
            kind.since += 1
            return
        again = f", {kind.since} times more since it was last logged" if kind is not None else ""
        self._kinds[key] = _Kind(now)
        self._kinds.move_to_end(key)
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)
        said = f": {why}" if why else ""
        log.warning(
            "client %s was answered %s by %s%s%s", client_id, name_of(code), APIS[api_key].name, said, again
        )


def _is_ordinary(code: int) -> bool:
    try:
        return code in _ORDINARY or ErrorCode(code).retriable
    except ValueError:
        return False
