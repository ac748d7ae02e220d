"""What a check says: a rule of the table, the place in the document, and the words for this case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.contract.node import Node

__all__ = ["Finding", "Position", "Report", "Rule", "Severity", "listed"]

MAX_FINDINGS: Final = 1_000
MAX_QUOTED: Final = 120


class Severity(StrEnum):
    """How bad it is; only an error makes the document unusable."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the rule table; `message` and `fix` are templates for `str.format`."""

    id: str
    severity: Severity
    message: str
    why: str
    fix: str
    clause: str
    """Where the specification, or the broker, says so."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a source file, counted from one, with the path that leads to it."""

    file: str
    line: int
    column: int
    path: str = ""

    def __str__(self) -> str:
        """Write it as an editor understands it.

        >>> str(Position("asyncapi.yaml", 88, 21, "channels.paid.address"))
        'asyncapi.yaml:88:21  channels.paid.address'
        """
        return f"{self.file}:{self.line}:{self.column}  {self.path}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One rule broken in one place."""

    rule: Rule
    position: Position
    message: str
    fix: str

    @property
    def severity(self) -> Severity:
        """The severity of the rule."""
        return self.rule.severity


@dataclass(slots=True)
class Report:
    """The findings of one document, each once, never more than a thousand."""

    _findings: dict[tuple[str, Position, str], Finding] = field(default_factory=dict)
    omitted: int = 0

    def add(self, rule: Rule, node: Node, *, key: str | None = None, fix: str = "", **words: object) -> None:
        """Note that `rule` is broken at a node, or at one of its keys; `fix` replaces the rule's own."""
        self.add_at(rule, node.position(key), fix=fix, **words)

    def add_at(self, rule: Rule, position: Position, *, fix: str = "", **words: object) -> None:
        """Note that `rule` is broken at a position."""
        quoted = {name: _quote(word, _LONGEST.get(name, MAX_QUOTED)) for name, word in words.items()}
        message = rule.message.format(**quoted)
        finding = Finding(
            rule=rule, position=position, message=message, fix=fix or rule.fix.format_map(_Blanks(quoted))
        )
        if len(self._findings) >= MAX_FINDINGS:
            self.omitted += 1
            return
        self._findings.setdefault((rule.id, position, message), finding)

    def __iter__(self) -> Iterator[Finding]:
        """Give the findings in the order of the document."""
        return iter(sorted(self._findings.values(), key=lambda f: (f.position, f.rule.id, f.message)))


def listed(words: Sequence[str], most: int = 3) -> str:
    """Write words as a list of a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    shown = [*words[:most], *([f"{len(words) - most} more"] if len(words) > most else [])]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) if shown else ""


class _Blanks(dict[str, str]):
    """Words for a template; one that is not known stays visible instead of failing."""

    def __missing__(self, name: str) -> str:
        return f"<{name}>"


_LONGEST: Final = {"problem": 400}
"""A problem is a sentence of ours with words of the document in it."""


def _quote(word: object, longest: int) -> str:
    """Shorten what came from the document, so that a hostile value cannot flood a screen."""
    text = word if isinstance(word, str) else str(word)
    return text if len(text) <= longest else f"{text[:longest]}..."
