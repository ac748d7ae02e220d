"""`penstock config show`: every effective value with its origin, secrets masked."""

from __future__ import annotations

import typer

from penstock.cli import output
from penstock.cli.context import context_rows
from penstock.cli.settings import Format, configuration, current
from penstock.config import Config

app = typer.Typer(no_args_is_help=True)

COLUMNS = ("setting", "value", "origin")


@app.callback()
def config() -> None:
    """Show the configuration that is in effect."""


@app.command()
def show() -> None:
    """Print every effective value and who set it: default, file, environment or flag."""
    config, fmt = configuration(), current().output
    if fmt is Format.TABLE:
        _print(config)
    else:
        output.rows(COLUMNS, [(v.name, v.shown(), str(v.origin)) for v in config.values.values()], fmt)


def _print(config: Config) -> None:
    """Give each context a table of its own, so that names stay short enough to read."""
    settings = [value for path, value in config.values.items() if path[0] != "contexts"]
    output.rows(COLUMNS, [(v.name, v.shown(), str(v.origin)) for v in settings], Format.TABLE)
    for name in config.context_names:
        output.data("")
        output.rows(COLUMNS, context_rows(config.named_context(name)), Format.TABLE, title=f"context {name}")
