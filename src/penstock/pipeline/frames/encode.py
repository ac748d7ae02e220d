"""Event DataFrames to Kafka-shaped rows: every event is held against the rules of core first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from penstock.errors import EventError, UsageError
from penstock.events import CloudEvent, Mode, absent
from penstock.events.bindings.pulsar import Profile
from penstock.events.rules import REQUIRED, is_name
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.bindings import binding_of
from penstock.pipeline.arrow.certain import certainly_valid
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.encode import Records, encode_batch
from penstock.pipeline.frames.table import ATTRIBUTES, attributes_of
from penstock.pipeline.ports import Writer
from penstock.pipeline.typed.write import write_batch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["records_of"]

_OUTPUT: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("code", pa.utf8()),
        ("reason", pa.utf8()),
    ]
)
_DDL: Final = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, code string, reason string"
)
_RECORD: Final = ("key", "value", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Writes batches of event columns; runs in Spark's workers."""

    mode: Mode
    strict: bool
    writer: Writer | None = None
    """Writes events as the messages of an operation; None: as CloudEvents in the mode."""
    profile: Profile | None = None
    """How CloudEvents are written on Pulsar; None: for Kafka."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do what `mapInArrow` asks for."""
        for batch in batches:
            yield self._written(batch)

    def _written(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        attributes, rows = attributes_of(batch), batch.num_rows
        problems = _problems(attributes, batch.column("data"), rows)
        if problems and self.strict:
            raise next(iter(problems.values()))
        kept = np.setdiff1d(np.arange(rows), np.array(list(problems), dtype=np.int64))
        written = self._encoded(_events(attributes, batch).take(pa.array(kept)))
        if self.strict and written.code.null_count < len(kept):
            raise UsageError(f"an event cannot be written: {written.reason.drop_null()[0].as_py()}")
        places = np.full(rows, -1, dtype=np.int64)
        places[kept] = np.arange(len(kept))
        back = pa.array(places, mask=places < 0)
        codes, reasons = written.code.take(back).to_pylist(), written.reason.take(back).to_pylist()
        for row, problem in problems.items():
            codes[row], reasons[row] = "invalid-event", str(problem)
        columns = [
            batch.column("key"),
            written.value.take(back),
            written.headers.take(back),
            pa.array(codes, pa.utf8()),
            pa.array(reasons, pa.utf8()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_OUTPUT)

    def _encoded(self, events: EventColumns) -> Records:
        if self.writer is None:
            return encode_batch(events, binding_of(self.profile, self.mode))
        return write_batch(events, self.writer)


def _events(attributes: Mapping[str, pa.StringArray], batch: pa.RecordBatch) -> EventColumns:
    rows = batch.num_rows
    false, none = pa.array(np.zeros(rows, dtype=bool)), pa.nulls(rows, pa.utf8())
    foreign = batch.column("headers")
    if foreign.null_count:
        foreign = pa.array([own or [] for own in foreign.to_pylist()], HEADERS)
    return EventColumns(
        rows=rows,
        attributes=attributes,
        data=batch.column("data"),
        data_is_json=false,
        structured=false,
        code=none,
        reason=none,
        foreign=foreign,
    )


def _problems(
    attributes: Mapping[str, pa.StringArray], data: pa.BinaryArray, rows: int
) -> dict[int, EventError]:
    """Say which rows break a rule; those that are not certainly good are asked one by one."""
    certain = np.ones(rows, dtype=bool)
    for name, texts in attributes.items():
        there = np.asarray(texts.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
        good = certainly_valid(name, texts.fill_null("")) if is_name(name) else np.zeros(rows, dtype=bool)
        certain &= good | ~there if name not in REQUIRED else good & there
    if not all(name in attributes for name in REQUIRED):
        certain[:] = False
    found = ((row, _problem(attributes, data, row)) for row in np.flatnonzero(~certain).tolist())
    return {row: problem for row, problem in found if problem is not None}


def _problem(attributes: Mapping[str, pa.StringArray], data: pa.BinaryArray, row: int) -> EventError | None:
    texts = {name: column[row].as_py() for name, column in attributes.items()}
    raw = data[row].as_py()
    try:
        CloudEvent({n: text for n, text in texts.items() if text is not None}, absent if raw is None else raw)
    except EventError as exc:
        return exc
    return None


def records_of(
    frame: DataFrame,
    *,
    mode: Mode,
    key: str | Column | None,
    keep_errors: bool,
    writer: Writer | None = None,
    profile: Profile | None = None,
) -> DataFrame:
    """Give key, value and headers of the events of a frame; `keep_errors` adds code and reason."""
    from pyspark.sql import functions as F

    columns = [F.col(name).cast("string").alias(name) for name in ATTRIBUTES if name in frame.columns]
    if "extensions" in frame.columns:
        columns.append(F.col("extensions").cast("map<string,string>").alias("extensions"))
    chosen = (
        _optional(frame, "key", "binary") if key is None else (F.expr(key) if isinstance(key, str) else key)
    )
    columns.append(chosen.cast("string").cast("binary").alias("key"))
    headers = _optional(frame, "headers", "array<struct<key:string,value:binary>>")
    columns += [_data(frame).alias("data"), headers.alias("headers")]
    encoder = Encoder(mode=mode, strict=not keep_errors, writer=writer, profile=profile)
    written = frame.select(*columns).mapInArrow(encoder, _DDL)
    return written if keep_errors else written.select(*_RECORD)


def _optional(frame: DataFrame, name: str, kind: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(name).cast(kind) if name in frame.columns else F.lit(None).cast(kind)


def _data(frame: DataFrame) -> Column:
    """Give data as bytes: binary and text as they are, everything else as JSON."""
    from pyspark.sql import functions as F

    kinds: dict[str, Any] = dict(frame.dtypes)
    if kinds.get("data") in (None, "binary", "string"):
        return _optional(frame, "data", "binary")
    return F.to_json(F.col("data")).cast("binary")
