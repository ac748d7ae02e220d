"""JSON Schema and Avro as Spark types, and data read with them by Spark itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.contract.schema import Schema, SchemaFormat
from penstock.pipeline.typed.avro import avro_from_json, avro_to_json
from penstock.pipeline.typed.spark_schema import VARIANT, data_ddl, spark_ddl, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def json_schema(definition: object) -> Schema:
    return Schema(format=SchemaFormat.JSON, media_type="", definition=definition)  # type: ignore[arg-type]


def avro_schema(definition: object) -> Schema:
    return Schema(format=SchemaFormat.AVRO, media_type="", definition=definition)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("definition", "ddl"),
    [
        ({"type": "string"}, "STRING"),
        ({"type": ["null", "integer"]}, "BIGINT"),
        ({"type": ["string", "integer"]}, VARIANT),
        ({"type": "string", "format": "date-time"}, "TIMESTAMP"),
        ({"type": "array", "items": {"type": "boolean"}}, "ARRAY<BOOLEAN>"),
        ({"type": "array"}, f"ARRAY<{VARIANT}>"),
        ({"type": "object"}, VARIANT),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "MAP<STRING, DOUBLE>"),
        ({"properties": {"a`b": {"type": "string"}}}, "STRUCT<`a``b`: STRING>"),
        ({"properties": {"a": {"type": "string"}, "A": {"type": "string"}}}, VARIANT),
        ({"oneOf": [{"type": "string"}], "type": "string"}, VARIANT),
        ({"enum": [1, "a"]}, VARIANT),
        (True, VARIANT),
        (
            {"properties": {"x": {"$ref": "#/definitions/l"}}, "definitions": {"l": {"type": "integer"}}},
            "STRUCT<`x`: BIGINT>",
        ),
        (
            {"type": "object", "properties": {"next": {"$ref": "#"}, "v": {"type": "integer"}}},
            f"STRUCT<`next`: {VARIANT}, `v`: BIGINT>",
        ),
        (
            {
                "properties": {"t": {"$ref": "#/definitions/t"}},
                "definitions": {"t": {"properties": {"t": {"$ref": "#/definitions/t"}}}},
            },
            f"STRUCT<`t`: STRUCT<`t`: {VARIANT}>>",
        ),
    ],
)
def test_json_schema(definition: object, ddl: str) -> None:
    assert spark_ddl(json_schema(definition)) == ddl


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_a_schema_that_nests_for_ever_ends_as_variant() -> None:
    assert spark_ddl(json_schema(nested(200))).count("ARRAY") < 100


def test_a_schema_that_grows_when_it_is_written_out_has_bounds() -> None:
    """Thirty levels that each refer to the next one twice would be a thousand million fields."""
    definitions = {
        f"l{n}": {"properties": {name: {"$ref": f"#/definitions/l{n + 1}"} for name in "ab"}}
        for n in range(30)
    }
    definition = {"properties": {"x": {"$ref": "#/definitions/l0"}}, "definitions": definitions}
    assert len(spark_ddl(json_schema(definition))) < 1_000_000


def test_an_avro_type_that_is_named_again_is_the_same_type() -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
    order = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "a", "type": line}, {"name": "b", "type": {"type": "array", "items": "Line"}}],
    }
    assert spark_ddl(avro_schema(order)) == (
        "STRUCT<`a`: STRUCT<`sku`: STRING>, `b`: ARRAY<STRUCT<`sku`: STRING>>>"
    )


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "raw", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "any", "type": ["int", "string"]},
        {"name": "next", "type": ["null", "Order"]},
    ],
}


def test_avro() -> None:
    assert spark_ddl(avro_schema(AVRO)) == (
        "STRUCT<`total`: DECIMAL(12, 2), `at`: TIMESTAMP, `day`: DATE, `raw`: BINARY, `kind`: STRING, "
        "`tags`: MAP<STRING, ARRAY<INT>>, `note`: STRING, `any`: VARIANT, `next`: VARIANT>"
    )


def test_the_data_of_a_structured_message_is_inside_its_payload(shop: Any) -> None:
    wanted = "STRUCT<`order`: STRING, `total`: DOUBLE>"
    for name in ("onJson", "onStructured", "onPlain"):
        assert data_ddl(shop.operation(name).messages[0]) == wanted
    assert data_ddl(shop.operation("onUnknown").messages[0]) == VARIANT


@pytest.mark.server
def test_spark_reads_data_with_the_type(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    value = {
        "total": 12.5,
        "at": "2026-05-04T10:00:00Z",
        "day": "2026-05-04",
        "raw": "/wA=",
        "kind": "A",
        "tags": {"x": [1]},
        "note": None,
        "any": "t",
        "next": None,
    }
    texts = (json.dumps(AVRO),)
    data = avro_to_json(avro_from_json(value, texts), texts, None)
    rows = spark.createDataFrame([(data.decode(),)], "data string")
    kind = spark_schema(avro_schema(AVRO))
    (row,) = (
        rows.select(F.from_json("data", kind).alias("d"))
        .selectExpr(
            "d.total", "unix_millis(d.at) AS at", "d.raw", "d.tags.x[0] AS x", "CAST(d.any AS STRING) AS any"
        )
        .collect()
    )
    assert (str(row.total), row.at, bytes(row.raw), row.x, row.any) == (
        "12.50",
        1_777_888_800_000,
        b"\xff\x00",
        1,
        "t",
    )
