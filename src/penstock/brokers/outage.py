"""What is logged of an outage: a WARNING when it begins, reminders, an INFO with its duration at the end.

An error that has another next step than those before is logged at once: a broker that is back and refuses the
login needs something else than one that is away.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Final

__all__ = ["REMIND_SECONDS", "OutageLog", "Outages"]

REMIND_SECONDS: Final = 300.0
"""Between two reminders of one outage."""
_MOST_SUBJECTS: Final = 1_000


class OutageLog:
    """Follows one thing that is tried again and again; told of each attempt, logs few of them.

    >>> now = 0.0
    >>> outage = OutageLog(logging.getLogger("example"), "kafka", clock=lambda: now)
    >>> outage.failed("connection refused"); now = 7.0; outage.seconds, outage.reason
    (7.0, 'connection refused')
    >>> outage.worked(); outage.seconds, outage.reason
    (0.0, None)
    >>> now = 9.0; outage.seconds_since_end
    2.0
    """

    def __init__(
        self,
        log: logging.Logger,
        subject: str,
        *,
        remind: float = REMIND_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._subject = subject
        self._remind = remind
        self._clock = clock
        self._since: float | None = None
        self._is_work = False
        self._ended = -math.inf
        self._next_reminder = 0.0
        self._advised: set[object] = set()
        """The next steps that were logged in this outage."""
        self.reason: str | None = None
        """Why the last attempt failed; None while attempts work."""

    @property
    def seconds(self) -> float:
        """How long the outage has lasted; 0.0 if there is none."""
        return 0.0 if self._since is None else self._clock() - self._since

    @property
    def seconds_since_end(self) -> float:
        """How long ago the last outage ended; infinity if there was none."""
        return self._clock() - self._ended

    def failed(self, reason: object, *, is_work: bool = False) -> None:
        """Note that an attempt has failed.

        With `is_work` it was the work as a whole: then only work ends the outage, and no answer by itself,
        as of a cluster that is read while another one takes nothing.
        """
        now, advice = self._clock(), getattr(reason, "next", None)
        self.reason = str(reason)
        self._is_work |= is_work
        if self._since is None:
            self._since = now
            self._advised.clear()
            self._log.warning("%s: lost, tried again until it is back: %s", self._subject, reason)
        elif now >= self._next_reminder or advice not in self._advised:
            self._log.warning("%s: still away after %.0f s: %s", self._subject, now - self._since, reason)
        else:
            return
        self._advised.add(advice)
        self._next_reminder = now + self._remind

    def worked(self, *, is_work: bool = False) -> None:
        """Note that an attempt has worked; it ends an outage of its own kind."""
        if self._since is not None and self._is_work == is_work:
            self._log.info("%s: back after %.1f s", self._subject, self._clock() - self._since)
            self._since, self.reason, self._is_work = None, None, False
            self._ended = self._clock()


class Outages:
    """The outages of several things by their names; one that has never worked is not lost."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._known: dict[str, OutageLog] = {}

    def worked(self, subject: str) -> None:
        """Note that an attempt has worked."""
        known = self._known.get(subject)
        if known is not None:
            known.worked()
        elif len(self._known) < _MOST_SUBJECTS:
            self._known[subject] = OutageLog(self._log, subject)

    def failed(self, subject: str, reason: object) -> None:
        """Note that an attempt has failed."""
        known = self._known.get(subject)
        if known is not None:
            known.failed(reason)
