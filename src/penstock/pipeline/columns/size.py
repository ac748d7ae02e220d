"""`pipeline/size.py` as a column: how much of a topic's `max.message.bytes` a record takes, at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.pipeline.size import BATCH, LENGTH, RECORD

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["batch_bytes"]


def batch_bytes(key: Column, value: Column, headers: Column) -> Column:
    """Give the size of a batch that holds only this record."""
    fields = (headers["key"], headers["value"].cast("array<string>"))
    texts = [F.octet_length(F.array_join(field, "")) for field in fields]
    lengths = [F.coalesce(size, F.lit(0)) for size in (F.octet_length(key), F.octet_length(value), *texts)]
    parts = 2 + 2 * F.coalesce(F.size(headers), F.lit(0))
    return sum(lengths, F.lit(BATCH + RECORD + LENGTH)) + LENGTH * parts
