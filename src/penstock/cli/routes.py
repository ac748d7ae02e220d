"""`penstock routes`: the routes of a pipeline, drawn from the contract, without starting anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import output
from penstock.cli.settings import Format, configuration, current
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.pipeline.compile import Pipeline
    from penstock.pipeline.dry_run.kernel_share import SourceSample

__all__ = ["command"]

_COLUMNS: Final = ("route", "topic", "evaluator", "records", "by kernel", "share", "not kernel")
_MOST: Final = 1_000_000


class Drawing(StrEnum):
    """The forms in which routes are drawn."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


File = Annotated[Path, typer.Argument(help="The pipeline file.")]
Sample = Annotated[
    int | None,
    typer.Option(
        "--sample",
        metavar="N",
        min=1,
        max=_MOST,
        help="With --explain: read the newest N records of each topic, and show what share of them "
        "the kernel decides for each route. Nothing is written; no group and no subscription is used.",
    ),
]


def command(
    file: File = Path("pipeline.yaml"),
    form: Annotated[Drawing | None, typer.Option("--format", help="Form of the drawing.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each route does.")] = False,
    sample: Sample = None,
) -> None:
    """Draw the routes of a pipeline; exit code 1 if the file breaks a rule."""
    from penstock.pipeline import graph
    from penstock.pipeline.compile import load_pipeline

    chosen = form or (Drawing.JSON if current().output != Format.TABLE else Drawing.TEXT)
    if sample is not None and (not explain or chosen is Drawing.MERMAID):
        raise UsageError("--sample adds to what --explain says", next="penstock routes --explain --sample N")
    pipeline = load_pipeline(file, context=configuration().context())
    samples = () if sample is None else _samples(pipeline, sample)
    if chosen is Drawing.JSON:
        form_of = "json" if form else current().output
        output.document(_with_samples(graph.as_data(pipeline), samples), form_of)
        return
    output.data(
        graph.as_mermaid(pipeline) if chosen is Drawing.MERMAID else graph.as_text(pipeline, explain=explain)
    )
    if samples:
        output.data("")
        output.rows(_COLUMNS, [row for each in samples for row in _rows(each)], "table")
    for each in samples:
        output.talk(_told(each))


def _samples(pipeline: Pipeline, count: int) -> Sequence[SourceSample]:
    from penstock.pipeline.dry_run.kernel_share import sample_sources

    return sample_sources(pipeline, count)


def _rows(sample: SourceSample) -> Iterator[tuple[Any, ...]]:
    for share in sample.shares:
        counted = (None, None) if share.by_kernel is None else (sample.records, share.by_kernel)
        stops = "\n".join(share.stops)
        yield (
            share.route,
            sample.topic,
            share.evaluator,
            *counted,
            _percent(share.by_kernel, sample.records),
            stops,
        )


def _percent(part: int | None, whole: int) -> str | None:
    """Write a share so that only all is 100 and only nothing is 0.

    >>> _percent(2, 3), _percent(9999, 10000), _percent(1, 100000), _percent(0, 0)
    ('66.6 %', '99.9 %', '0.1 %', None)
    """
    if part is None or not whole:
        return None
    tenths = 1000 * part // whole
    return f"{max(tenths, 1 if part else 0) / 10:.1f} %"


def _told(sample: SourceSample) -> str:
    where = f"{sample.topic} ({sample.server})"
    if sample.shares and sample.shares[0].by_kernel is None:
        return f"{where}: {sample.note}"
    parts = [
        f"{sample.records} records of {sample.offsets} offsets in {sample.partitions} partitions, "
        f"{sample.bytes} bytes"
    ]
    if len(sample.shares) > 1 and sample.by_kernel is not None and sample.records:
        share = _percent(sample.by_kernel, sample.records)
        parts.append(
            f"the kernel decides {share} for all {len(sample.shares)} routes, the reference the others"
        )
    return "; ".join((f"{where}: read {parts[0]}", *parts[1:], *([sample.note] if sample.note else ())))


def _with_samples(routes: list[dict[str, Any]], samples: Sequence[SourceSample]) -> list[dict[str, Any]]:
    """Add to each route what was read of its topic, and what the kernel decides of it."""
    found = {
        share.route: {
            **sample.as_data(),
            "byKernel": share.by_kernel,
            "byKernelForAllRoutes": sample.by_kernel,
        }
        for sample in samples
        for share in sample.shares
    }
    return [{**route, **({"sample": found[route["route"]]} if found else {})} for route in routes]
