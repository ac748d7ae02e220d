"""CloudEvents as DataFrames, for notebooks and programs of your own: no pipeline file, the same exact codec.

    from penstock.spark import read_events, to_records, write_events

    events = read_events(spark, "asyncapi.yaml", "onOrderPlaced", stream=False, data="variant")
    large = events.where("data:total::int >= 100")
    write_events(large, "asyncapi.yaml", "publishLargeOrder", mode="structured")

Every function takes and gives plain DataFrames; docs/pipeline/dataframes.md has the columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import Context
from penstock.contract import Contract, load
from penstock.events import Mode
from penstock.events.bindings.pulsar import Profile
from penstock.pipeline.frames.decode import decoded, events_of, kafka_shaped, rejects_of, with_data
from penstock.pipeline.frames.encode import records_of
from penstock.pipeline.frames.topics import Place, operation_of, read_topic, write_topic
from penstock.pipeline.pulsar import PulsarReader, profile_on
from penstock.pipeline.spark.session import spark_session
from penstock.pipeline.stage import read_cloud_events
from penstock.pipeline.typed.frames import joints_of, typed_data
from penstock.pipeline.typed.joints import writer_of
from penstock.pipeline.typed.schemas import Schemas

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

__all__ = [
    "events_from",
    "read_events",
    "read_records",
    "rejects_from",
    "spark_session",
    "to_records",
    "write_events",
]


def events_from(
    records: DataFrame,
    *,
    data: str | StructType = "binary",
    pulsar: bool = False,
    dialects: Collection[str] = (),
) -> DataFrame:
    """Give the events of Kafka-shaped records; what is no event is left to `rejects_from`.

    `data` is binary, string, variant, or a schema for structs; data that does not fit is null. Records that a
    gateway made of Pulsar's messages are read with `pulsar`, in all its profiles; `dialects` (sniffed,
    bridged) are those that must be asked for.
    """
    reader = PulsarReader.of(dialects) if pulsar else read_cloud_events
    return with_data(events_of(decoded(kafka_shaped(records), reader)), data)


def rejects_from(
    records: DataFrame,
    *,
    contract: Contract | str | Path | None = None,
    operation: str = "",
    check: str = "message",
    context: Context | None = None,
    pulsar: bool = False,
    dialects: Collection[str] = (),
) -> DataFrame:
    """Give the records that are no events: code, reason, key, value, headers and origin.

    With a contract they are held against an operation of it: what `read_events` of that operation leaves out.
    """
    shaped = kafka_shaped(records)
    if contract is None:
        return rejects_of(decoded(shaped, PulsarReader.of(dialects) if pulsar else read_cloud_events))
    place = operation_of(contract, operation, action="receive", context=context)
    return rejects_of(decoded(shaped, *joints_of(place, check, dialects=dialects)))


def to_records(
    events: DataFrame,
    *,
    mode: str = "binary",
    key: str | Column | None = None,
    keep_errors: bool = False,
    profile: str | None = None,
) -> DataFrame:
    """Write events as Kafka-shaped records: key, value and headers.

    Id, source and type are needed; other attributes, `extensions`, `data`, `key` and `headers` are taken if
    they are there. `key` is a column, or an expression in SQL. An event that breaks a rule ends the job; with
    `keep_errors` it has no value, and columns `code` and `reason` say why. A `profile` (0.1 or 1.0) is
    Pulsar's: the gateway makes messages of such records.
    """
    own = None if profile is None else Profile(profile)
    return records_of(events, mode=Mode(mode), key=key, keep_errors=keep_errors, profile=own)


def read_records(
    spark: SparkSession,
    contract: Contract | str | Path,
    operation: str,
    *,
    stream: bool = True,
    starting: Place = "earliest",
    ending: Place | None = None,
    context: Context | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read the records of a `receive` operation, as a stream, or as a batch over a range.

    `starting` and `ending` are `earliest`, `latest`, a moment, or offsets by partition. `options` are further
    options of Spark's Kafka source.
    """
    place = operation_of(contract, operation, action="receive", context=context)
    return read_topic(spark, place, stream=stream, starting=starting, ending=ending, more=options or {})


def read_events(
    spark: SparkSession,
    contract: Contract | str | Path,
    operation: str,
    *,
    data: str | StructType = "binary",
    check: str = "message",
    stream: bool = True,
    starting: Place = "earliest",
    ending: Place | None = None,
    dialects: Collection[str] = (),
    context: Context | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read the events of a `receive` operation; plain records and Avro are read as a route reads them.

    `data` is what `events_from` takes, or `typed`: the struct of the message's schema, a variant if there are
    several. `check` is that of a route: none, message or schema; what does not fit is left to `rejects_from`.
    So are `dialects`, where the operation is on Pulsar.
    """
    place = operation_of(contract, operation, action="receive", context=context)
    records = read_topic(spark, place, stream=stream, starting=starting, ending=ending, more=options or {})
    events = events_of(decoded(kafka_shaped(records), *joints_of(place, check, dialects=dialects)))
    return with_data(events, typed_data(place) if data == "typed" else data)


def write_events(
    events: DataFrame,
    contract: Contract | str | Path,
    operation: str,
    *,
    mode: str = "binary",
    profile: str | None = None,
    key: str | Column | None = None,
    checkpoint: str | Path | None = None,
    trigger: Mapping[str, object] | None = None,
    context: Context | None = None,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery | None:
    """Write events by a `send` operation, at least once: a batch now, a stream by the query that is given.

    Events are written as the messages of the operation: Avro with its schema id, plain records, else as
    CloudEvents in the `mode`; on Pulsar in the `profile`, or in that of the contract. A stream needs a
    `checkpoint`; `trigger` is what Spark's own `trigger` takes.
    """
    known = contract if isinstance(contract, Contract) else load(Path(contract))
    place = operation_of(known, operation, action="send", context=context)
    own = profile_on(place.protocol, known, place.channel, profile)
    writer = writer_of(place, known, Schemas(), own)
    records = records_of(events, mode=Mode(mode), key=key, keep_errors=False, writer=writer, profile=own)
    return write_topic(records, place, checkpoint=checkpoint, trigger=trigger or {}, more=options or {})
