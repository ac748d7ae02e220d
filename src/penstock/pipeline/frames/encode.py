"""Event DataFrames to Kafka-shaped rows: every event is held against the rules of core first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from penstock.errors import CannotEncode, EventError, UsageError
from penstock.events import CloudEvent, Mode, absent
from penstock.events.bindings.pulsar import Profile
from penstock.events.rules import REQUIRED, is_name
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.bindings import binding_of
from penstock.pipeline.arrow.buffers import mask_of
from penstock.pipeline.arrow.certain import certainly_valid
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.encode import Records, encode_batch
from penstock.pipeline.frames.decode import DATA_BYTES, FORM, read_as
from penstock.pipeline.frames.table import ATTRIBUTES, attributes_of
from penstock.pipeline.ports import Writer
from penstock.pipeline.typed.write import write_batch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

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
_UNFIT: Final = "unfit"
_CORRUPT: Final = "penstock_corrupt_record"
_PLAIN: Final = ("string", "variant")
_NOTHING: Final = r"\A\s*(null)?\s*\z"


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
        problems = _problems(attributes, batch.column("data"), rows) | _unfit(batch)
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
            codes[row] = "cannot-encode" if isinstance(problem, CannotEncode) else "invalid-event"
            reasons[row] = str(problem)
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


def _unfit(batch: pa.RecordBatch) -> dict[int, EventError]:
    """Say which rows would lose what their data came with."""
    if _UNFIT not in batch.schema.names:
        return {}
    rows = np.flatnonzero(mask_of(batch.column(_UNFIT))).tolist()
    ids = batch.column("id")
    return {
        row: CannotEncode(
            f"the data of event {ids[row].as_py()!r:.80} was changed, and not all of it fits its type",
            why=f"What does not fit is null in data, and would be lost; {DATA_BYTES} still has it.",
            next=f"look for such rows by {DATA_BYTES}, or drop that column if data alone is to be written",
        )
        for row in rows
    }


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
    data, unfit = _data(frame)
    columns += [data.alias("data"), headers.alias("headers"), unfit.alias(_UNFIT)]
    encoder = Encoder(mode=mode, strict=not keep_errors, writer=writer, profile=profile)
    written = frame.select(*columns).mapInArrow(encoder, _DDL)
    return written if keep_errors else written.select(*_RECORD)


def _optional(frame: DataFrame, name: str, kind: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(name).cast(kind) if name in frame.columns else F.lit(None).cast(kind)


def _data(frame: DataFrame) -> tuple[Column, Column]:
    """Give data as bytes, and of which rows it would lose something.

    Binary and text are as they are, everything else is JSON. Beside `data_bytes` only what was changed is
    written anew: data that is still what was read from those bytes leaves as those bytes.
    """
    from pyspark.sql import functions as F

    kinds: dict[str, Any] = dict(frame.dtypes)
    kind = kinds.get("data")
    if kind in (None, "binary", "string"):
        written = _optional(frame, "data", "binary")
    else:
        written = F.to_json(F.col("data")).cast("binary")
    if kind in (None, "binary") or kinds.get(DATA_BYTES) != "binary":
        return written, F.lit(False)
    raw = F.col(DATA_BYTES)
    same, unfit = _beside_bytes(frame, raw)
    has_more = raw.isNotNull() & ~raw.cast("string").rlike(_NOTHING) & ~written.eqNullSafe(raw)
    return F.when(same, raw).otherwise(written), has_more & unfit


def _beside_bytes(frame: DataFrame, raw: Column) -> tuple[Column, Column]:
    """Say whether data is what was read from its bytes, and whether it may miss a part of them."""
    from pyspark.sql import functions as F

    data, kind, (known, replaced) = F.col("data"), frame.schema["data"].dataType.simpleString(), _form(frame)
    form: Any = known.simpleString() if known.simpleString() in _PLAIN else known
    typed = "datacontenttype" in frame.columns
    again = read_as(raw, form, F.col("datacontenttype") if typed else F.lit("application/json"))
    if kind != known.simpleString():
        same = again.isNull() & data.isNull()
    else:
        as_text = (lambda column: column) if kind == "string" else F.to_json
        same = as_text(again).eqNullSafe(as_text(data))
    unfit = again.isNull()
    if form not in _PLAIN:
        unfit |= _is_unfit(raw, form)
    elif kind in _PLAIN:
        # Text or a variant that is there was made anew: nothing of the bytes is missed in it.
        unfit &= data.isNull()
    # In a column that was replaced, a null that was set and one that stands for what does not fit are alike.
    return same, unfit if replaced else ~same & unfit


def _form(frame: DataFrame) -> tuple[DataType, bool]:
    """Give the type that `data_bytes` were read as, and whether `data` is another column since.

    Where that is not known any more, it is taken to be the type of `data`.
    """
    from pyspark.sql.types import StructType

    data, raw = frame.schema["data"], frame.schema[DATA_BYTES]
    mark = raw.metadata.get(FORM)
    if mark is None:
        return data.dataType, False
    return StructType.fromJson(json.loads(mark))["data"].dataType, data.metadata.get(FORM) != mark


def _is_unfit(raw: Column, form: Any) -> Column:
    """Say whether a part of the bytes cannot be read as its type; Spark keeps the text of such a record."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    if not isinstance(form, StructType):
        return F.from_json(raw.cast("string"), form).isNull()
    schema = StructType([*form.fields]).add(_CORRUPT, StringType())
    read = F.from_json(raw.cast("string"), schema, {"columnNameOfCorruptRecord": _CORRUPT})
    return read.isNull() | read.getField(_CORRUPT).isNotNull()
