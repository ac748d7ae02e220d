"""A dead letter made by columns: the same CloudEvent as `pipeline.deadletter` writes, with the raw record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.events.headers import header_of
from penstock.pipeline.columns.base64 import base64_text
from penstock.pipeline.columns.encode import Written
from penstock.pipeline.columns.identity import derived_id
from penstock.pipeline.deadletter import TYPE, source_of

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["dead_letter"]

_EVERYTHING = {"ignoreNullFields": "false"}


def dead_letter(
    pipeline: str, route: str | None, code: Column, reason: Column, *, kept: bool = True
) -> Written:
    """Write the record of a row as a dead letter; it is not kept where the topic is too small for it."""
    origin = ("topic", "partition", "offset")
    place = F.concat_ws("/", *(F.col(name).cast("string") for name in origin))
    source = F.lit(source_of(pipeline))
    attributes = {
        "specversion": F.lit("1.0"),
        "id": derived_id(route or "", source, place),
        "source": source,
        "type": F.lit(TYPE),
        "subject": place,
        "datacontenttype": F.lit("application/json"),
        "deadlettercode": code,
        **({} if route is None else {"deadletterroute": F.lit(route)}),
    }
    pairs = [
        F.struct(F.lit(header_of(name)).alias("key"), text.cast("binary").alias("value"))
        for name, text in attributes.items()
    ]
    data = F.struct(
        code.alias("code"),
        reason.alias("reason"),
        F.lit(route).cast("string").alias("route"),
        F.lit(1).alias("attempt"),
        F.struct(*origin, F.unix_millis("timestamp").alias("timestamp")).alias("origin"),
        (_record() if kept else F.lit(None).cast("string")).alias("record"),
    )
    return Written(F.to_json(data, _EVERYTHING).cast("binary"), F.array(*pairs))


def _record() -> Column:
    headers = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    pairs = F.transform(headers, lambda header: F.array(header["key"], base64_text(header["value"])))
    return F.struct(
        base64_text(F.col("key")).alias("key"),
        base64_text(F.col("value")).alias("value"),
        pairs.alias("headers"),
    )
