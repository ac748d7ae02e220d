"""Operations of a contract as Kafka topics of Spark, Pulsar's through a gateway: streams, batches, sinks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.config import Context
from penstock.contract import Contract, ResolvedOperation, load, resolve
from penstock.contract.credentials import Client, options, reveal
from penstock.errors import UsageError
from penstock.pipeline.pulsar import PULSAR, gateway_of, is_served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Place", "operation_of", "read_topic", "write_topic"]

Place = str | datetime | Mapping[int, int]
"""earliest, latest, a moment, or an offset by partition."""
_SINK: Final[Mapping[str, str]] = {
    # Producer defaults of linger 0 and 16 KiB cost a third of the rate and four times the broker's CPU.
    "kafka.linger.ms": "20",
    "kafka.batch.size": "262144",
    "includeHeaders": "true",
}


def operation_of(
    contract: Contract | str | Path, name: str, *, action: str, context: Context | None
) -> ResolvedOperation:
    """Find an operation with this action, on Kafka, or on Pulsar behind the gateway of the context."""
    known = contract if isinstance(contract, Contract) else load(Path(contract))
    found = resolve(known, name, context=context)
    if found.action != action:
        raise UsageError(
            f"operation {name} has the action {found.action}, here {action} is needed",
            next=f"use an operation with action {action}",
        )
    if found.protocol == "kafka":
        return found
    gateway = gateway_of(context) if found.protocol == PULSAR else None
    if gateway is None or not is_served(str(found.topic)):
        raise UsageError(
            f"operation {name} is on {found.protocol}",
            why="Spark reaches Kafka, and persistent topics of Pulsar through a gateway.",
            next="use an operation on Kafka, or give a context that names gateway: for its Pulsar",
        )
    return replace(found, connection=gateway)


def read_topic(
    spark: SparkSession,
    operation: ResolvedOperation,
    *,
    stream: bool,
    starting: Place,
    ending: Place | None,
    more: Mapping[str, str],
) -> DataFrame:
    """Read the records of an operation's topic, as a stream or as a batch over a range."""
    if stream and ending is not None:
        raise UsageError("a stream has no end", next="leave ending out, or read with stream=False")
    topic = str(operation.topic)
    chosen = {"subscribe": topic, "includeHeaders": "true", **_place("starting", starting, topic)}
    chosen |= {} if ending is None else _place("ending", ending, topic)
    reader = spark.readStream if stream else spark.read
    credentials = reveal(options(operation.connection, Client.SPARK_KAFKA))
    found: DataFrame = reader.format("kafka").options(**credentials, **chosen, **more).load()
    return found


def _place(which: str, place: Place, topic: str) -> dict[str, str]:
    """Write a place as an option of Spark's source.

    >>> _place("starting", {0: 17}, "orders")
    {'startingOffsets': '{"orders": {"0": 17}}'}
    """
    if isinstance(place, str):
        return {f"{which}Offsets": place}
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise UsageError(f"{place} is no moment", next="give it an offset: datetime(..., tzinfo=UTC)")
        moment = {f"{which}Timestamp": str(round(place.timestamp() * 1000))}
        return {**moment, "startingOffsetsByTimestampStrategy": "latest"} if which == "starting" else moment
    return {f"{which}Offsets": json.dumps({topic: {str(number): offset for number, offset in place.items()}})}


def write_topic(
    records: DataFrame,
    operation: ResolvedOperation,
    *,
    checkpoint: str | Path | None,
    trigger: Mapping[str, object],
    more: Mapping[str, str],
) -> StreamingQuery | None:
    """Write records to an operation's topic: a batch at once, a stream by a query that is given back."""
    credentials = reveal(options(operation.connection, Client.SPARK_KAFKA))
    chosen = {**credentials, **_SINK, "topic": str(operation.topic), **more}
    if not records.isStreaming:
        records.write.format("kafka").options(**chosen).save()
        return None
    if checkpoint is None:
        raise UsageError(
            "a stream needs a checkpoint to go on after a stop", next="name a folder: checkpoint=..."
        )
    writer = records.writeStream.format("kafka").options(**chosen)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()  # type: ignore[call-overload]
