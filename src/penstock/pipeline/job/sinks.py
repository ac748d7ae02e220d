"""How the records of a batch are written: by one Kafka sink, or cluster by cluster from a batch that is kept.

Both deliver at least once: Spark's checkpoint moves on when everything is written, and a batch that was
interrupted is written again. A dead letter is written like any other record; if it cannot be, the job stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.contract.credentials import Client, options, reveal
from penstock.pipeline.assembly import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["RECORD", "Delivery", "delivery_of", "sink_options", "write_batches", "write_stream"]

RECORD: Final = ("topic", "key", "value", "headers")
"""What Spark's Kafka sink takes."""

_SINK: Final[Mapping[str, str]] = {
    # Producer defaults of linger 0 and 16 KiB cost a third of the rate and four times the broker's CPU.
    "kafka.linger.ms": "20",
    "kafka.batch.size": "262144",
    # A topic that vanished is known after half a minute, not after one, in each of four tries.
    "kafka.max.block.ms": "30000",
    "includeHeaders": "true",
}
_REQUEST: Final = 1024 * 1024
_BUFFER: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How a source is written, and what that is worth."""

    clusters: tuple[str, ...]
    receipts: bool

    @property
    def one_sink(self) -> bool:
        """Whether Spark's own Kafka sink can do it."""
        return len(self.clusters) == 1 and not self.receipts

    @property
    def guarantee(self) -> str:
        """Say it in a sentence."""
        if self.one_sink:
            return f"at least once: one sink on {self.clusters[0]}; a batch that is interrupted is repeated"
        order = ", then ".join((*self.clusters, *(("receipts",) if self.receipts else ())))
        return f"at least once on each: a batch is kept and written to {order}; one interrupted is repeated"


def delivery_of(source: Source) -> Delivery:
    """Say how a source is written; only a function can give receipts."""
    return Delivery(
        clusters=source.servers,
        receipts=any(route.document.apply is not None for route in source.routes),
    )


def sink_options(source: Source, server: str, limits: Mapping[tuple[int, str], int]) -> dict[str, str]:
    """Give the options of the producers for one cluster, credentials included."""
    number = source.servers.index(server)
    # The topics say what they take, and larger records were made dead letters: the producer must not say no.
    largest = max((limit for (sink, _), limit in limits.items() if sink == number), default=0) + _REQUEST
    client_ids = {
        operation.client_id
        for route in source.routes
        for operation in route.send
        if operation.server == server
    }
    only = client_ids.pop() if len(client_ids) == 1 else None
    return {
        **reveal(options(source.connections[server], Client.SPARK_KAFKA)),
        **_SINK,
        **({"kafka.client.id": only} if only else {}),
        "kafka.max.request.size": str(largest),
        "kafka.buffer.memory": str(max(_BUFFER, 2 * largest)),
    }


def write_stream(written: DataFrame, producer: Mapping[str, str]) -> DataStreamWriter:
    """Write all records with one sink."""
    return written.where("topic IS NOT NULL").select(*RECORD).writeStream.format("kafka").options(**producer)


def write_batches(written: DataFrame, producers: tuple[Mapping[str, str], ...]) -> DataStreamWriter:
    """Write each batch to one cluster after the other, then the receipts in the same order."""
    records = written.where("topic IS NOT NULL").select(*RECORD, "sink")
    return records.writeStream.foreachBatch(_each_batch(producers))


def _each_batch(producers: tuple[Mapping[str, str], ...]) -> Callable[[DataFrame, int], None]:
    def write(batch: DataFrame, _: int) -> None:
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            used = batch.agg(F.collect_set("sink")).collect()[0][0]
            for sink in sorted(used):
                records = batch.where(F.col("sink") == sink).select(*RECORD)
                records.write.format("kafka").options(**producers[sink % len(producers)]).save()
        finally:
            batch.unpersist()

    return write
