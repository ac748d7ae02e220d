"""`penstock package`: a pipeline as an application that `spark-submit` takes, for any cluster manager."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import output
from penstock.cli.settings import Format, configuration, current

if TYPE_CHECKING:
    from penstock.pipeline.spark.submission import Application

__all__ = ["command"]

_KUBERNETES: Final = {
    "spark.kubernetes.container.image": "IMAGE",
    "spark.kubernetes.file.upload.path": "s3a://BUCKET/FOLDER",
}


def command(
    file: Annotated[Path, typer.Argument(help="The pipeline file.")] = Path("pipeline.yaml"),
    out: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="The folder to write.")] = Path(
        "penstock-application"
    ),
    libraries: Annotated[
        bool, typer.Option(help="Pack the Python libraries too; else the cluster's Python has them.")
    ] = True,
) -> None:
    """Pack a pipeline as an application for Spark clusters, and show how it is submitted."""
    from penstock.cli.run_options import EngineName
    from penstock.pipeline.compile import load_pipeline
    from penstock.pipeline.spark.file_system import is_remote
    from penstock.pipeline.spark.submission import REQUIREMENTS, make_application

    config = configuration()
    with output.progress(f"packing {file}"):
        pipeline = load_pipeline(file, context=config.context())
        made = make_application(pipeline, config, out, libraries=libraries)
    lines = _lines(made)
    if current().output is not Format.TABLE:
        output.document(
            {
                "folder": str(made.folder),
                "files": list(made.modules),
                "libraries": list(made.libraries),
                "send": [str(path) for path in made.files],
                "mount": [str(path) for path in made.absent],
                "submit": lines,
            },
            current().output,
        )
        return
    output.data(str(made.folder))
    parts = f"Penstock, {made.kernels} compiled kernels, {len(made.libraries)} libraries"
    of_user = f"{len(made.modules)} of your files"
    output.talk(f"{parts} and {of_user}, for Python {made.python}: {made.size / 1e6:.1f} MB")
    for name in made.modules:
        output.talk(f"  {name}")
    if not libraries:
        output.talk(f"the Python of the workers needs: {', '.join(REQUIREMENTS)}")
    for path in made.absent:
        output.talk(f"note: {path} is not on this machine, and is not sent: mount it where the job runs")
    if pipeline.engine != EngineName.LOOP and not (
        is_remote(pipeline.checkpoint) or pipeline.is_checkpoint_mounted
    ):
        output.talk(
            f"note: the checkpoint {pipeline.checkpoint} is a folder of the driver's machine; "
            "a driver in the cluster needs one that every machine reaches, such as hdfs://"
        )
    for name, line in lines.items():
        output.talk(f"\n{name}:\n{line}")


def _lines(made: Application) -> dict[str, str]:
    """Give the command lines by cluster manager; standalone clusters run no driver in Python."""
    return {
        "standalone": made.submit("spark://HOST:7077", cluster_mode=False),
        "YARN": made.submit("yarn", cluster_mode=True),
        "Kubernetes": made.submit("k8s://https://HOST:6443", cluster_mode=True, settings=_KUBERNETES),
    }
