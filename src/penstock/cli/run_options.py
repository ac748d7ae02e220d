"""The options of `penstock run`: what the command line takes, and what it means for the job and for Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from penstock.cli import output
from penstock.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from penstock.pipeline.compile import Pipeline
    from penstock.pipeline.job import JobOptions

__all__ = [
    "AtLeastOnce",
    "BrokerTimeout",
    "Conf",
    "DriverMemory",
    "EngineName",
    "EngineOption",
    "File",
    "Fresh",
    "Group",
    "Idle",
    "Master",
    "MaxBytes",
    "MaxFailures",
    "MaxOffsets",
    "MaxTasks",
    "MetricsAt",
    "OnDataLoss",
    "OnDataLossOption",
    "Once",
    "PackageFile",
    "RealTime",
    "Replay",
    "Shadow",
    "Split",
    "TakeOver",
    "Trigger",
    "Ui",
    "UntilIdle",
    "WorkerPython",
    "job_options",
    "metrics_address",
    "refuse_idle_words",
    "spark_settings",
]


class OnDataLoss(StrEnum):
    """What to do if records are gone from a topic before they were read."""

    STOP = "stop"
    CONTINUE = "continue"


class EngineName(StrEnum):
    """Where the routes run."""

    SPARK = "spark"
    LOOP = "loop"


def _engine_name(text: str) -> EngineName:
    """Read the value of --engine; a former name is noted and means spark."""
    from penstock.pipeline.document import ENGINES, FORMER_ENGINES

    if text in FORMER_ENGINES:
        output.talk(f"--engine {text} means spark now: which evaluator decides is found by itself")
        return EngineName.SPARK
    if text not in ENGINES:
        raise typer.BadParameter(f"'{text}' is not one of {', '.join(map(repr, ENGINES))}.")
    return EngineName(text)


def _refuse_real_time(given: bool) -> None:
    if given:
        raise UsageError(
            "--real-time is gone",
            why="The loop has lower latency than Spark's Real-Time Mode had, and delivers exactly once.",
            next="penstock run --engine loop",
        )


File = Annotated[Path, typer.Argument(help="The pipeline file.")]
Once = Annotated[bool, typer.Option("--once", help="Process what is there now, then end.")]
UntilIdle = Annotated[bool, typer.Option("--until-idle", help="End when nothing comes any more.")]
Idle = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0.5, help="What --until-idle calls idle; 5 if not given."),
]
Master = Annotated[
    str | None, typer.Option(help="The Spark master; else as Spark is configured, or local[*,4].")
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; can be given several times."),
]
DriverMemory = Annotated[
    str | None,
    typer.Option("--driver-memory", metavar="SIZE", help="Memory of Spark's Java, such as 2g."),
]
Ui = Annotated[bool, typer.Option("--ui", help="Serve Spark's UI and print its address.")]
RealTime = Annotated[bool, typer.Option("--real-time", hidden=True, callback=_refuse_real_time)]
EngineOption = Annotated[
    EngineName | None,
    typer.Option(
        "--engine",
        parser=_engine_name,
        metavar="[spark|loop]",
        help="Where the routes run, loop without Spark; else as the pipeline says.",
    ),
]
AtLeastOnce = Annotated[
    bool,
    typer.Option("--at-least-once", help="Write without transactions, where they would be used."),
]
Shadow = Annotated[
    int,
    typer.Option(
        "--shadow",
        metavar="N",
        min=0,
        help="Let one of N records of the kernel be decided by the reference too, and compared; 0: none.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(help="Consumer group to commit progress to; else the one that the contract names."),
]
OnDataLossOption = Annotated[
    OnDataLoss | None,
    typer.Option(
        "--on-data-loss", help="If records are gone before they were read; else as the pipeline says."
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Go on from the offsets of another pipeline's group; for the loop."),
]
MaxOffsets = Annotated[
    int | None,
    typer.Option("--max-offsets", min=1, help="Records of one batch of Spark at most; 500 000 if not given."),
]
MaxBytes = Annotated[
    int | None,
    typer.Option("--max-bytes", min=1, help="Bytes of one batch of Spark, about; 1 GiB if not given."),
]
MaxTasks = Annotated[
    int | None,
    typer.Option("--max-tasks", min=1, help="Tasks of one batch of Spark at most; else as it has slots."),
]
Split = Annotated[
    bool,
    typer.Option(
        "--split",
        help="Let several tasks share a large partition; needs --at-least-once and ordering: none.",
    ),
]
MaxFailures = Annotated[
    int | None,
    typer.Option(
        "--max-failures",
        min=0,
        help="End when a source has failed so often in a row while others go on; 10 if not given, 0: never.",
    ),
]
Trigger = Annotated[
    str | None,
    typer.Option(
        "--trigger",
        metavar="INTERVAL",
        help="Begin a batch of Spark at most so often, as PT10S; else as the pipeline says, or at once.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh-checkpoint", help="Begin anew where the checkpoint does not fit; the old one is kept beside."
    ),
]
Replay = Annotated[
    bool | None,
    typer.Option(
        "--replay/--no-replay",
        help="If an older checkpoint was put back: write again what was written since, or go on behind it.",
    ),
]
MetricsAt = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Serve /metrics, /healthz and /readyz here; off if not given.",
    ),
]
BrokerTimeout = Annotated[
    float,
    typer.Option(
        "--broker-timeout",
        metavar="SECONDS",
        min=1.0,
        help="With --once or --until-idle: end when a broker is away for so long. Without: go on trying.",
    ),
]
PackageFile = Annotated[
    Path | None,
    typer.Option(
        "--package",
        metavar="FOLDER",
        help="What `penstock package` made, for the workers of a cluster; else they get Penstock alone.",
    ),
]
WorkerPython = Annotated[
    str | None, typer.Option("--worker-python", metavar="PATH", help="The Python of the cluster's workers.")
]

_PYTHONPATH: Final = "spark.executorEnv.PYTHONPATH"
_ADDED: Final = {"spark.archives": ",", _PYTHONPATH: ":"}
"""Settings of a package that are lists, with what is between two entries."""

_OF_SPARK: Final = (
    "master",
    "conf",
    "driver_memory",
    "ui",
    "max_offsets",
    "max_bytes",
    "max_tasks",
    "split",
    "max_failures",
    "trigger",
    "replay",
    "package",
    "worker_python",
)
"""Options that mean nothing to the loop."""


def job_options(given: Mapping[str, Any]) -> JobOptions:
    """Return what the job is told, of all options by name; raises UsageError for what cannot be together."""
    from penstock.pipeline.job import IDLE_SECONDS, MAX_BYTES_PER_TRIGGER, MAX_FAILURES, JobOptions

    idle, until_idle, failures = given["idle"], given["until_idle"], given["max_failures"]
    if given["once"] and until_idle:
        raise UsageError("--once and --until-idle are two ends", next="give one of them")
    if idle is not None and not until_idle:
        raise UsageError("--idle says what --until-idle waits for", next="add --until-idle, or leave it out")
    return JobOptions(
        once=given["once"],
        until_idle=(idle or IDLE_SECONDS) if until_idle else None,
        engine=given["engine"],
        exactly_once=not given["at_least_once"],
        shadow=given["shadow"],
        group=given["group"],
        on_data_loss=given["on_data_loss"],
        take_over=given["take_over"],
        max_offsets=given["max_offsets"],
        max_bytes=given["max_bytes"] or MAX_BYTES_PER_TRIGGER,
        max_tasks=given["max_tasks"],
        split=given["split"],
        max_failures=MAX_FAILURES if failures is None else failures,
        trigger=_interval(given["trigger"]),
        fresh_checkpoint=given["fresh_checkpoint"],
        replay=given["replay"],
        broker_timeout=given["broker_timeout"],
    )


def spark_settings(given: Mapping[str, Any], pipeline: Pipeline | None = None) -> dict[str, str]:
    """Return what the command line sets in Spark; an option of its own beats `--conf`.

    Raises UsageError if the application of `--package` does not fit the pipeline.
    """
    found = _conf(given["conf"] or ())
    named = {
        "spark.master": given["master"],
        "spark.driver.memory": given["driver_memory"],
        "spark.ui.enabled": "true" if given["ui"] else None,
    }
    _check_memory(given["driver_memory"])
    found |= {key: value for key, value in named.items() if value is not None}
    _check_master(found.get("spark.master"))
    return {**found, **_of_package(given["package"], found, pipeline)}


def _conf(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise UsageError(
                f"'{text}' sets nothing in Spark",
                where="--conf",
                why="The names of Spark's settings begin with `spark.`.",
                next="write --conf spark.KEY=VALUE",
            )
        found[key] = value
    return found


def _check_memory(text: str | None) -> None:
    """Refuse a size that Java does not take, or takes for bytes: spark-submit hands it on as `-Xmx`."""
    if text is not None and re.fullmatch("[1-9][0-9]*[kmgt]", text, re.IGNORECASE) is None:
        raise UsageError(f"{text} is no size", where="--driver-memory", next="write it like 512m or 2g")


def _check_master(text: str | None) -> None:
    if text is not None and text != "yarn" and not text.startswith(("local", "spark:", "k8s:")):
        raise UsageError(
            f"'{text}' is no master of Spark",
            where="--master",
            next="write --master spark://HOST:7077, yarn, k8s://https://HOST:PORT or local[*]",
        )


def _interval(text: str | None) -> float | None:
    """Read the duration of --trigger; raises UsageError."""
    from penstock.pipeline.compile import seconds_of

    seconds = None if text is None else seconds_of(text)
    if text is not None and seconds is None:
        raise UsageError(
            f"{text} is no duration", where="--trigger", next="write it like PT0.5S, PT10S or PT1M"
        )
    return seconds


def _of_package(package: Path | None, given: Mapping[str, str], pipeline: Pipeline | None) -> dict[str, str]:
    """Return the settings that bring an application to the workers.

    Raises UsageError if the folder holds none, or one that was made of something else than the driver has.
    """
    from penstock.pipeline.spark.startup import was_set
    from penstock.pipeline.spark.submission import read_application, refuse_other_application

    if package is None:
        return {}
    application = read_application(package.absolute())
    if pipeline is not None:
        refuse_other_application(application, pipeline)
    found = dict(application.settings)
    # Ours are added to what is set anywhere: the archives of the user, behind our modules the user's.
    for key, sign in _ADDED.items():
        others = [each for each in (was_set(key, given) or "").split(sign) if each and each != found[key]]
        found[key] = sign.join((found[key], *others) if key == _PYTHONPATH else (*others, found[key]))
    return found


def refuse_idle_words(engine: str, given: Mapping[str, Any]) -> None:
    """Refuse options that have no meaning for an engine, instead of doing without them."""
    if engine == EngineName.LOOP:
        for name in _OF_SPARK:
            value = given[name]
            # Of all switches only `--replay` has a form that says no.
            if value is not None and value != [] and (value is not False or name == "replay"):
                word = f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
                raise UsageError(f"{word} is for Spark, and the loop runs without", next=f"leave {word} out")
    elif given["take_over"]:
        raise UsageError(
            "--take-over is for the loop, whose progress is a group",
            why="The progress of a Spark job is its checkpoint, which belongs to one pipeline file.",
            next="leave --take-over out, or run --engine loop",
        )


def metrics_address(text: str | None) -> tuple[str, int] | None:
    """Read [HOST:]PORT; without a host it is the loopback interface."""
    if text is None:
        return None
    try:
        found = urlsplit(f"//127.0.0.1:{text}" if text.isdecimal() else f"//{text}")
        host, port = found.hostname, found.port
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise ConfigError(f"'{text}' is no address", where="--metrics", next="write --metrics HOST:PORT")
    return host, port
