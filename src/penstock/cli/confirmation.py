"""The question before something is changed, which `--yes` answers beforehand."""

from __future__ import annotations

import typer

from penstock.cli import output
from penstock.cli.settings import current
from penstock.errors import UsageError

__all__ = ["confirm"]


def confirm(change: str, question: str) -> None:
    """Ask on stderr, unless `--yes` was given; a no ends the program.

    `change` says what the verb does, for the UsageError where nobody can be asked.
    """
    if current().yes:
        return
    if not output.interactive():
        raise UsageError(f"{change} and nobody can be asked", next="add --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
