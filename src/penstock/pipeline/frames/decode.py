"""Kafka-shaped DataFrames to events and rejects, with the verdicts of `penstock.events` on every row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.errors import UsageError
from penstock.pipeline.frames.table import EVENT_DDL, EVENT_SCHEMA, event_arrays
from penstock.pipeline.plan.times import FIRST, LAST
from penstock.pipeline.ports import Checker, Reader
from penstock.pipeline.stage import read_cloud_events

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = [
    "DATA_BYTES",
    "FORM",
    "RECORD_DDL",
    "decoded",
    "events_of",
    "kafka_shaped",
    "read_as",
    "rejects_of",
    "with_data",
]

DATA_BYTES: Final = "data_bytes"
"""The column with the bytes that `data` was read from."""
FORM: Final = "penstock.form"
"""How `data_bytes` were read: a schema in the metadata of that column, and of `data` until it is replaced."""

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

# JSON format 3.1.1: "the media subtype is json or has +json as structured syntax suffix"; white space as
# Python's strip takes it.
_SPACE: Final = (
    r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*"
)
_IS_JSON: Final = rf"(?i)\A[^;]*[/+]json{_SPACE}(?:;|\z)"

# RFC 3339 5.6; year 0 is outside of what Spark's timestamps hold. Whether the day exists is asked of Spark.
_DATE_TIME: Final = (
    r"\A(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:"
    r"(?:[0-5][0-9]|60)(?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])\z"
)
_SECOND: Final = 1_000_000


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

    alive = frame if rejects else frame.where("event_code IS NULL")
    names = [name for name in EVENT_SCHEMA.names if name not in ("foreign", "code", "reason")]
    columns = [F.col(f"event_{name}").alias(name) for name in names]
    moment = F.timestamp_micros(_micros_of(F.col("event_time"))).alias("time_ts")
    columns.insert(names.index("time") + 1, moment)
    own: list[Any] = ["key", F.col("event_foreign").alias("headers"), _origin().alias("origin")]
    return alive.select(*columns, *own, *beside)


def with_data(events: DataFrame, data: str | StructType) -> DataFrame:
    """Give data as binary, string, variant, or a struct of the given schema; null where it cannot be read.

    In any form but binary the column `data_bytes` keeps what came: a form need not hold all of it.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    if data == "binary":
        return events
    read = read_as(F.col("data"), data, F.col("datacontenttype"))
    names = [name for name in events.columns if name not in ("data", DATA_BYTES)]
    at = events.columns.index("data")
    columns: list[Any] = [*names[:at], read.alias("data"), F.col("data").alias(DATA_BYTES), *names[at:]]
    made = events.select(*columns)
    mark = {FORM: StructType().add("data", made.schema["data"].dataType).json()}
    return made.withMetadata("data", mark).withMetadata(DATA_BYTES, mark)


def read_as(raw: Column, data: Any, media_type: Column) -> Column:
    """Give bytes as `string`, as `variant`, or of a type of Spark; null where they cannot be read so."""
    from pyspark.sql import functions as F

    text = F.when(F.is_valid_utf8(raw.cast("string")), raw.cast("string"))
    if data == "string":
        return text
    if data == "variant":
        return _variant(text, media_type)
    return F.from_json(text, data)


def _variant(text: Column, media_type: Column) -> Column:
    """Parse JSON text; what Spark's parser leaves behind the first value is found by a second one."""
    from pyspark.sql import functions as F

    tree = F.try_parse_json(F.concat(F.lit("["), text, F.lit(',"end"]')))
    alone = (F.try_variant_get(tree, "$[1]", "string") == "end") & F.try_variant_get(
        tree, "$[2]", "variant"
    ).isNull()
    return F.when(media_type.rlike(_IS_JSON) & alone, F.try_variant_get(tree, "$[0]", "variant"))


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


def _micros_of(text: Column) -> Column:
    """Read a date-time of RFC 3339 as microseconds since 1970, whatever the time zone of the session.

    Digits after the sixth are cut, a leap second is the next second; null is what cannot be read, or lies
    outside of the years 1 to 9999.
    """
    from pyspark.sql import functions as F

    def digits(position: int) -> Column:
        return F.substring(text, position, 2).try_cast("int")

    minutes = digits(-5) * 60 + digits(-2)
    offset = F.when(text.rlike("[Zz]$"), 0).when(F.substring(text, -6, 1) == "-", -minutes).otherwise(minutes)
    leap = F.substring(text, 18, 2) == "60"
    # RFC 3339 5.7: leap seconds are inserted at 23:59:60 UTC.
    may_leap = F.pmod(digits(12) * 60 + digits(15) - offset, F.lit(1440)) == 1439
    second = F.when(leap, "59").otherwise(F.substring(text, 18, 2))
    whole = F.concat(F.substring(text, 1, 10), F.lit("T"), F.substring(text, 12, 6), second, F.lit("Z"))
    fraction = F.rpad(F.regexp_extract(text, r"\.([0-9]{1,6})", 1), 6, "0").try_cast("int")
    micros = F.unix_micros(whole.try_cast("timestamp")) + fraction - offset.cast("bigint") * (60 * _SECOND)
    moved = micros + F.when(leap, _SECOND).otherwise(0)
    return F.when(text.rlike(_DATE_TIME) & (~leap | may_leap) & moved.between(FIRST, LAST), moved)
