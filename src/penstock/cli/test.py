"""`penstock test`: the routes and functions of a pipeline on sample events; no Spark, no broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.settings import configuration, current
from penstock.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from penstock.pipeline.compile import Pipeline
    from penstock.pipeline.trial import Trial

__all__ = ["command"]

EXIT_FAILED = 1
_COLUMNS = ("to", "id", "type", "key", "detail")
_LONGEST = 100

File = Annotated[Path, typer.Argument(help="The pipeline file.")]
Events = Annotated[
    Path | None,
    typer.Option("--events", help="Sample events: JSON, or one a line; shows what becomes of them."),
]
RouteName = Annotated[str | None, typer.Option("--route", help="With --events: only this route.")]
Receive = Annotated[str | None, typer.Option("--receive", help="With --events: the operation they come by.")]


def command(
    file: File = Path("pipeline.yaml"),
    events: Events = None,
    route: RouteName = None,
    receive: Receive = None,
) -> None:
    """Run the test files beside a pipeline (tests/*.yaml, *.json); exit code 1 if one fails."""
    pipeline = _load(file)
    if events is not None:
        _show(pipeline, events, route, receive)
    else:
        _run_tests(pipeline, file)


def _load(file: Path) -> Pipeline:
    try:
        from penstock.pipeline import trial  # noqa: F401 - needs Arrow
        from penstock.pipeline.compile import load_pipeline
    except ModuleNotFoundError as exc:
        raise MissingExtra("spark", str(exc.name), purpose="a test of a pipeline") from exc
    return load_pipeline(file, context=configuration().context())


def _run_tests(pipeline: Pipeline, file: Path) -> None:
    from penstock.pipeline.samples import find_tests

    paths = find_tests(file)
    if not paths:
        raise UsageError(
            f"there are no test files beside {file}",
            next="write tests/first.yaml with `given` and `expect`, or use --events",
        )
    results = [(path, _outcome(pipeline, path)) for path in paths]
    failed = [path for path, lines in results if lines]
    told = "\n".join if current().output == "table" else list
    rows = [(path.name, "failed" if lines else "passed", told(lines)) for path, lines in results]
    output.rows(("test", "result", "differences"), rows, current().output)
    output.talk(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _outcome(pipeline: Pipeline, path: Path) -> list[str]:
    """Give the differences; a test file that cannot be used is one."""
    from penstock.pipeline.samples import read_test, run_test

    try:
        return run_test(pipeline, read_test(path))
    except UsageError as exc:
        return [str(exc)]


def _show(pipeline: Pipeline, events: Path, route: str | None, receive: str | None) -> None:
    from penstock.pipeline.samples import read_events
    from penstock.pipeline.trial import try_out

    trial = try_out(pipeline, read_events(events), route=route, receive=receive)
    output.rows(_COLUMNS, _rows(trial), current().output)
    output.talk(" · ".join(f"{count} {name}" for name, count in trial.counts.items() if count))


def _rows(trial: Trial) -> list[tuple[Any, ...]]:
    from penstock.pipeline.trial import event_of

    rows: list[tuple[Any, ...]] = []
    for sent in (*trial.sent, *trial.receipts):
        event, raw = sent.event, sent.record.value
        id, kind = (event.id, event.type) if event else (None, None)
        data = event.data_bytes if event else raw
        rows.append((sent.channel, id, kind, _text(sent.record.key), _text(data)))
    for letter in trial.dead:
        event = event_of(letter.record)
        id, kind = (event.id, event.type) if event else (None, None)
        reason = letter.reason.strip().splitlines()[-1]
        rows.append(("dead letters", id, kind, _text(letter.record.key), f"{letter.code}: {reason}"))
    return rows


def _text(raw: bytes | None) -> str | None:
    if raw is None:
        return None
    text = raw.decode("utf-8", "backslashreplace")
    full = current().output != "table" or len(text) <= _LONGEST
    return text if full else f"{text[:_LONGEST]}…"
