"""What one step of the machine gives: the next group, answers to those who wait, whether to store it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.gateway.groups.group import Group
from penstock.gateway.groups.requests import JoinAnswer, SyncAnswer

__all__ = ["Answer", "Outcome"]

Answer = JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True)
class Outcome:
    """A group with what is said about it."""

    group: Group
    answers: tuple[tuple[int, Answer], ...] = ()
    """By the token of the request that waits."""
    save: bool = False
    """Whether the group must be stored before the answers are given."""

    def then(self, step: Callable[[Group], Outcome]) -> Outcome:
        """Go on with another step."""
        following = step(self.group)
        return Outcome(following.group, self.answers + following.answers, self.save or following.save)

    def answer(self, token: int | None, answer: Answer) -> Outcome:
        """Answer a request, if one waits."""
        return self if token is None else Outcome(self.group, (*self.answers, (token, answer)), self.save)
