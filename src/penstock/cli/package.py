"""`penstock package`: one archive with all that the workers of a cluster need to run a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.settings import configuration

__all__ = ["command"]


def command(
    file: Annotated[Path, typer.Argument(help="The pipeline file.")] = Path("pipeline.yaml"),
    out: Annotated[Path, typer.Option("--to", metavar="FILE", help="The archive to write.")] = Path(
        "penstock-package.zip"
    ),
) -> None:
    """Pack Penstock and the modules of a pipeline for a cluster; `penstock run --package` sends it."""
    from penstock.pipeline.compile import load_pipeline
    from penstock.pipeline.package import REQUIREMENTS, make_package

    made = make_package(load_pipeline(file, context=configuration().context()), out)
    output.data(str(made.path))
    parts = f"Penstock, {made.kernels} compiled kernels and {len(made.modules)} of your files"
    output.talk(f"{parts}, {made.size // 1024} KiB")
    for name in made.modules:
        output.talk(f"  {name}")
    output.talk(f"the workers' Python needs: {', '.join(REQUIREMENTS)}")
    output.talk(f"next: penstock run {file} --master spark://HOST:PORT --package {made.path}")
