"""Kafka-shaped DataFrames to events and rejects, with the verdicts of `penstock.events` on every row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.errors import UsageError
from penstock.pipeline.frames.table import EVENT_DDL, EVENT_SCHEMA, event_arrays
from penstock.pipeline.ports import Checker, Reader
from penstock.pipeline.stage import read_cloud_events

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["RECORD_DDL", "decoded", "events_of", "kafka_shaped", "rejects_of", "with_data"]

RECORD_DDL: Final = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "bigint",
}
"""A record as a row; the timestamp in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Adds the event columns to batches of records; runs in Spark's workers."""

    reader: Reader = read_cloud_events
    checks: tuple[Checker, ...] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do what `mapInArrow` asks for."""
        for batch in batches:
            events = self.reader(batch)
            for check in self.checks:
                events = check(events, batch)
            names = [*batch.schema.names, *(f"event_{name}" for name in EVENT_SCHEMA.names)]
            yield pa.RecordBatch.from_arrays([*batch.columns, *event_arrays(events)], names=names)


def kafka_shaped(frame: DataFrame) -> DataFrame:
    """Give the columns of a record; what a frame does not have is null, but a value it must have."""
    from pyspark.sql import functions as F

    if "value" not in frame.columns:
        raise UsageError(
            "the DataFrame has no column value",
            why="A record has a value, and may have key, headers, topic, partition, offset and timestamp.",
            next='read it with option("includeHeaders", "true"), or name the columns so',
        )
    kinds = dict(frame.dtypes)

    def column(name: str, kind: str) -> Column:
        if name not in kinds:
            return F.lit(None).cast(kind).alias(name)
        is_moment = name == "timestamp" and kinds[name].startswith("timestamp")
        return F.unix_millis(name).alias(name) if is_moment else F.col(name).cast(kind).alias(name)

    return frame.select(*(column(name, kind) for name, kind in RECORD_DDL.items()))


def decoded(
    records: DataFrame, reader: Reader = read_cloud_events, checks: tuple[Checker, ...] = ()
) -> DataFrame:
    """Add the event columns, each with `event_` before its name, to the columns of a record."""
    raw = ", ".join(f"{name} {kind}" for name, kind in RECORD_DDL.items())
    own = ", ".join(f"event_{column.strip()}" for column in _columns(EVENT_DDL))
    return records.mapInArrow(Decoder(reader=reader, checks=checks), f"{raw}, {own}")


def _columns(ddl: str) -> list[str]:
    """Split at the commas that are in no brackets."""
    found, depth = [""], 0
    for character in ddl:
        depth += (character == "<") - (character == ">")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return found


def events_of(frame: DataFrame, *, rejects: bool = False, beside: tuple[str, ...] = ()) -> DataFrame:
    """Give the events of a frame that `decoded` made: the event columns, key, headers and origin.

    With `rejects` the rows of rejects stay, as nulls; columns `beside` the events are kept.
    """
    from pyspark.sql import functions as F

    from penstock.pipeline.columns.times import time_of

    alive = frame if rejects else frame.where("event_code IS NULL")
    names = [name for name in EVENT_SCHEMA.names if name not in ("foreign", "code", "reason")]
    columns = [F.col(f"event_{name}").alias(name) for name in names]
    moment = F.timestamp_micros(time_of(F.col("event_time"))).alias("time_ts")
    columns.insert(names.index("time") + 1, moment)
    own: list[Any] = ["key", F.col("event_foreign").alias("headers"), _origin().alias("origin")]
    return alive.select(*columns, *own, *beside)


def with_data(events: DataFrame, data: str | StructType) -> DataFrame:
    """Give data as binary, string, variant, or a struct of the given schema; null where it cannot be read."""
    from pyspark.sql import functions as F

    text = F.when(F.is_valid_utf8(F.col("data").cast("string")), F.col("data").cast("string"))
    if data == "binary":
        return events
    if data == "string":
        return events.withColumn("data", text)
    if data == "variant":
        return events.withColumn("data", _variant(text))
    return events.withColumn("data", F.from_json(text, data))


def _variant(text: Column) -> Column:
    """Parse JSON text; what Spark's parser leaves behind the first value is found by a second one."""
    from pyspark.sql import functions as F

    from penstock.pipeline.columns.jsontext import says_json

    tree = F.try_parse_json(F.concat(F.lit("["), text, F.lit(',"end"]')))
    alone = (F.try_variant_get(tree, "$[1]", "string") == "end") & F.try_variant_get(
        tree, "$[2]", "variant"
    ).isNull()
    return F.when(says_json(F.col("datacontenttype")) & alone, F.try_variant_get(tree, "$[0]", "variant"))


def rejects_of(frame: DataFrame) -> DataFrame:
    """Give what is no event: code, reason, the raw record and its origin."""
    from pyspark.sql import functions as F

    lost = frame.where("event_code IS NOT NULL")
    about: list[Any] = [F.col("event_code").alias("code"), F.col("event_reason").alias("reason")]
    return lost.select(*about, "key", "value", "headers", _origin().alias("origin"))


def _origin() -> Column:
    from pyspark.sql import functions as F

    moment = F.timestamp_millis(F.col("timestamp")).alias("timestamp")
    return F.struct("topic", "partition", "offset", moment)
