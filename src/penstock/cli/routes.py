"""`penstock routes`: the routes of a pipeline, drawn from the contract, without starting anything."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.settings import configuration

__all__ = ["command"]


class Drawing(StrEnum):
    """The forms in which routes are drawn."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


File = Annotated[Path, typer.Argument(help="The pipeline file.")]


def command(
    file: File = Path("pipeline.yaml"),
    form: Annotated[Drawing, typer.Option("--format", help="Form of the drawing.")] = Drawing.TEXT,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each route does.")] = False,
) -> None:
    """Draw the routes of a pipeline; exit code 1 if the file breaks a rule."""
    from penstock.pipeline import graph
    from penstock.pipeline.compile import load_pipeline

    pipeline = load_pipeline(file, context=configuration().context())
    if form is Drawing.JSON:
        output.document(graph.as_data(pipeline), "json")
    else:
        text = (
            graph.as_mermaid(pipeline)
            if form is Drawing.MERMAID
            else graph.as_text(pipeline, explain=explain)
        )
        output.data(text)
