"""`penstock explain`: the long text of a rule of the contract or of an error, by its code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated

import typer

from penstock import errors
from penstock.cli import output
from penstock.errors import PenstockError, UsageError

__all__ = ["command"]

Code = Annotated[str, typer.Argument(metavar="CODE", help="A code such as PK254, as it stands in a message.")]


def command(code: Code) -> None:
    """Print what a code means, why it is said and what to do."""
    wanted = code.strip().upper()
    texts = dict(_texts())
    if wanted not in texts:
        near = get_close_matches(wanted, texts, n=3)
        advice = f"did you mean {', '.join(near)}?" if near else "penstock validate --rules lists the rules"
        raise UsageError(f"there is no code '{code}'", next=advice)
    output.data(texts[wanted])


def _texts() -> Iterator[tuple[str, str]]:
    from penstock.contract.render import rule_text
    from penstock.contract.rules.table import RULES
    from penstock.pipeline.rules import RULES as PIPELINE_RULES

    for name in errors.__all__:
        kind = getattr(errors, name)
        if "code" not in vars(kind):  # it shares the code of what it is a kind of
            continue
        yield kind.code, _error_text(kind)
    for rule in (*RULES.values(), *PIPELINE_RULES):
        yield rule.id, rule_text(rule)


def _error_text(kind: type[PenstockError]) -> str:
    """Write an error class at length: its own words, who is at fault, and the exit code."""
    parents = [base.__name__ for base in kind.__mro__[1:] if issubclass(base, PenstockError)]
    family = f", a kind of {parents[0]}" if parents else ""
    lines = (
        f"{kind.code}  {kind.__name__}{family}",
        "",
        *(f"  {line}" for line in inspect.cleandoc(kind.__doc__ or "").splitlines()),
        "",
        f"  exit code  {kind.exit_code}",
    )
    return "\n".join(lines)
