"""`penstock config show`: every effective value with its origin, secrets masked."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.settings import configuration, current
from penstock.config import KEYS, Value

app = typer.Typer(no_args_is_help=True, help="Show the configuration that is in effect.")

Pattern = Annotated[str, typer.Argument(help="Only settings whose name contains this.", show_default=False)]


@app.command()
def show(pattern: Pattern = "") -> None:
    """Print every effective value and who set it."""
    config = configuration()
    values = [value for value in config.values.values() if pattern in value.name]
    output.rows(("setting", "value", "origin"), [_row(value) for value in values], current().output)


@app.command()
def keys() -> None:
    """Print every setting that exists and what it means."""
    rows = [(key.name, key.kind.name, key.default, key.doc) for key in KEYS]
    output.rows(("setting", "form", "default", "meaning"), rows, current().output)


def _row(value: Value) -> tuple[str, str | None, str]:
    return value.name, value.shown(), str(value.origin)
