"""Spark's own Kafka source and sink on the gateway."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.server, pytest.mark.slow]

COUNT = 500


def test_spark_reads_what_spark_wrote(spark: Any, gateway: str, topic: Any) -> None:
    from pyspark.sql import functions as sql

    name = topic(3)
    header = sql.array(
        sql.struct(sql.lit("h").alias("key"), sql.lit("v").cast("binary").alias("value"))
    ).alias("headers")
    rows = spark.range(COUNT).select(
        sql.col("id").cast("string").cast("binary").alias("key"),
        sql.concat(sql.lit("value-"), sql.col("id").cast("string")).cast("binary").alias("value"),
        header,
    )
    to = {"kafka.bootstrap.servers": gateway, "topic": name, "includeHeaders": "true"}
    rows.write.format("kafka").options(**to).save()
    whole = {
        "kafka.bootstrap.servers": gateway,
        "subscribe": name,
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        "includeHeaders": "true",
    }
    found = spark.read.format("kafka").options(**whole).load().collect()
    assert sorted(int(row.key) for row in found) == list(range(COUNT))
    assert all(bytes(row.value) == b"value-" + bytes(row.key) for row in found)
    assert all([(each.key, bytes(each.value)) for each in row.headers] == [("h", b"v")] for row in found)
    for partition in range(3):
        offsets = sorted(row.offset for row in found if row.partition == partition)
        assert offsets == list(range(len(offsets)))
    stream = (
        spark.readStream.format("kafka")
        .options(**{key: value for key, value in whole.items() if key != "endingOffsets"})
        .load()
        .writeStream.format("memory")
        .queryName("interop")
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(120)
    assert spark.sql("select count(*) from interop").first()[0] == COUNT
