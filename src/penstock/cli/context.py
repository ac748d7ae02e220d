"""`penstock context`: which sets of servers there are, what is in one, and which one is used."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.settings import configuration, current
from penstock.config import FILE, Context, choose_context
from penstock.errors import ConfigError

app = typer.Typer(help="List, show and choose the contexts of penstock.yaml.")

Name = Annotated[str, typer.Argument(help="Name of a context.", metavar="NAME")]
Chosen = Annotated[str | None, typer.Argument(help="Name of a context; the chosen one.", metavar="NAME")]


@app.callback(invoke_without_command=True)
def listing(ctx: typer.Context) -> None:
    """List, show and choose the contexts of penstock.yaml; without a subcommand, list them."""
    if ctx.invoked_subcommand is None:
        list_contexts()


@app.command("list")
def list_contexts() -> None:
    """List the contexts; the one in use is marked."""
    config = configuration()
    used = config.context() if config.context_names else None
    contexts = [config.named_context(name) for name in config.context_names]
    rows = [(c.name, bool(used and used.name == c.name), *_summary(c)) for c in contexts]
    if not rows:
        output.talk(f"no contexts; add them under `contexts` in {FILE}, or run: penstock dev up")
    output.rows(("context", "used", "servers", "origin"), rows, current().output)


@app.command()
def show(name: Chosen = None) -> None:
    """Print every value of a context with its origin, secrets masked."""
    context = configuration().context(name)
    if context is None:
        raise ConfigError(
            "no context is chosen", next="penstock context list, then: penstock context use NAME"
        )
    output.rows(("setting", "value", "origin"), context_rows(context), current().output)


@app.command()
def use(name: Name) -> None:
    """Write `context: NAME` into penstock.yaml."""
    config = configuration()
    config.named_context(name)
    path = config.folder / FILE
    choose_context(path, name)
    output.talk(f"{FILE} now uses context {name}")


def context_rows(context: Context) -> list[tuple[str, str | None, str]]:
    """Give every value of a context by its name below the context, secrets masked."""
    return [(".".join(path), value.shown(), str(value.origin)) for path, value in context.values.items()]


def _summary(context: Context) -> tuple[str, str]:
    parts = [*context.server_names]
    parts += [part for part in ("registry", "gateway") if (part, "address") in context.values]
    files = (str(value.origin).rpartition(":")[0] or str(value.origin) for value in context.values.values())
    return ", ".join(parts), ", ".join(dict.fromkeys(files))
