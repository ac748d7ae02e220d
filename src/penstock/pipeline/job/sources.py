"""A topic as a stream of records: Spark's Kafka source, with the settings that matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.contract.credentials import Client, options, reveal
from penstock.pipeline.assembly import Source
from penstock.pipeline.job.options import MAX_OFFSETS_PER_TRIGGER, JobOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_records", "reader_options"]

_READER: Final[Mapping[str, str]] = {"startingOffsets": "earliest", "includeHeaders": "true"}


def reader_options(
    source: Source,
    settings: JobOptions,
    *,
    group: str | None,
    on_data_loss: str,
) -> dict[str, str]:
    """Return the options of the source, without credentials.

    Only what is committed is read. Each partition is read by one task: see `delivery.task_sink`.
    """
    found = {
        **_READER,
        "subscribe": source.topic,
        "failOnDataLoss": str(on_data_loss == "stop").lower(),
        "maxOffsetsPerTrigger": str(settings.max_offsets or MAX_OFFSETS_PER_TRIGGER),
        "kafka.isolation.level": "read_committed",
    }
    if group is not None:
        found["groupIdPrefix"] = group
    if source.receive.client_id is not None:
        found["kafka.client.id"] = source.receive.client_id
    return found


def read_records(spark: SparkSession, source: Source, chosen: Mapping[str, str]) -> DataFrame:
    """Give the stream of records of a source."""
    credentials = reveal(options(source.receive.connection, Client.SPARK_KAFKA))
    return spark.readStream.format("kafka").options(**credentials, **chosen).load()
