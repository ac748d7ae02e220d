"""Events held against the contract, without Spark: the message of each, its data, its key."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from routed import check_reading

from penstock.contract.schema_ids import (
    IdKind,
    SchemaId,
    encode_apicurio_header,
    encode_confluent_header,
    encode_payload,
)
from penstock.errors import UnknownSchemas
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.reading import Mode
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.encode import event_at
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.stage import read_cloud_events
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import forms_of
from penstock.pipeline.typed.schema_table import SchemaTable
from penstock.record import KafkaRecord

V1 = {
    "type": "record",
    "name": "com.shop.Order",
    "fields": [{"name": "order", "type": "string"}, {"name": "total", "type": "double"}],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "extra", "type": "int"}]}
TABLE = SchemaTable(
    known={"id:1": (json.dumps(V1),), "id:2": (json.dumps(V2),), "globalId:9": (json.dumps(V1),)}
)


def avro(schema: object, value: object) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(schema), value)
    return stream.getvalue()


def record(
    value: bytes | None,
    *headers: tuple[str, bytes | None],
    type: str = "com.shop.order",
    media_type: str = "application/avro",
    key: bytes | None = b"key",
) -> KafkaRecord:
    event = CloudEvent({"id": "1", "source": "/s", "type": type, "datacontenttype": media_type})
    made = KafkaBinding().encode(event, key=key, headers=headers)
    return KafkaRecord(value=value, key=made.key, headers=made.headers)


def batch_of(records: list[KafkaRecord]) -> pa.RecordBatch:
    headers = [[{"key": k, "value": v} for k, v in r.headers] or None for r in records]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )


def check(checker: ContractCheck, *records: KafkaRecord) -> EventColumns:
    batch = batch_of(list(records))
    events = pickle.loads(pickle.dumps(checker))(read_cloud_events(batch), batch)
    check_reading(KafkaReader(), records, (checker,))
    return events


def checker(shop: Any, operation: str, *, full: bool = False, table: SchemaTable = TABLE) -> ContractCheck:
    found = shop.operation(operation)
    return ContractCheck(operation=operation, forms=forms_of(found), schemas=table, full=full)


def data(events: EventColumns) -> list[object]:
    return [json.loads(raw) if raw is not None else None for raw in events.data.to_pylist()]


ONE, TWO = {"order": "a", "total": 1.5}, {"order": "b", "total": 2.0, "extra": 3}


@pytest.mark.parametrize(
    ("operation", "width"),
    [
        ("onAvro", 4),
        ("onEight", 8),
        ("onTold", 4),
        # What Apicurio's words mean changed with its versions: both widths are read.
        *((name, width) for name in ("onWide", "onLegacy") for width in (4, 8)),
    ],
)
def test_two_writers_in_one_topic_are_read_by_the_contract(shop: Any, operation: str, width: int) -> None:
    events = check(
        checker(shop, operation),
        record(encode_payload(SchemaId(number=1), avro(V1, ONE), width=width)),
        record(encode_payload(SchemaId(number=2), avro(V2, TWO), width=width)),
        record(None),
    )
    assert events.code.to_pylist() == [None] * 3
    assert data(events) == [{**ONE, "note": None}, {"order": "b", "total": 2.0, "note": None}, None]
    assert events.attributes["datacontenttype"].to_pylist()[:2] == ["application/json"] * 2


def test_ids_in_headers_are_used_and_do_not_travel_on(shop: Any) -> None:
    events = check(
        checker(shop, "onHeader"),
        record(avro(V1, ONE), encode_confluent_header(SchemaId(number=1)), ("app", b"x")),
        record(avro(V2, TWO), encode_apicurio_header(SchemaId(number=2, kind=IdKind.CONTENT_ID))),
        record(avro(V1, ONE), encode_apicurio_header(SchemaId(number=9, kind=IdKind.GLOBAL_ID))),
        record(avro(V1, ONE)),
    )
    assert events.code.to_pylist() == [None, None, None, "data-invalid"]
    assert data(events)[:3] == [{**each, "note": None} for each in (ONE, {"order": "b", "total": 2.0}, ONE)]
    assert events.foreign.to_pylist()[:3] == [[{"key": "app", "value": b"x"}], [], []]


def test_bare_avro_has_the_contracts_own_schema(shop: Any) -> None:
    raw = avro(shop.operation("onBare").messages[0].payload.definition, {**ONE, "note": "n"})
    events = check(checker(shop, "onBare"), record(raw), record(raw + b"x"))
    assert data(events)[0] == {**ONE, "note": "n"}
    assert events.code.to_pylist() == [None, "data-invalid"]


def test_a_new_id_is_news_for_the_driver_and_a_missing_one_a_reject(shop: Any) -> None:
    unknown = record(encode_payload(SchemaId(number=7), b"\x00"))
    with pytest.raises(UnknownSchemas, match="<schemas of onAvro: id:7>"):
        check(checker(shop, "onAvro"), unknown)
    for table in (SchemaTable(missing=frozenset({"id:7"})), SchemaTable(asks=False)):
        events = check(checker(shop, "onAvro", table=table), unknown)
        assert events.code.to_pylist() == ["unknown-schema"]
        assert "id:7" in events.reason[0].as_py()


@pytest.mark.parametrize(
    "raw", [b"", b"\x00", b"\x05abcdef", encode_payload(SchemaId(number=1), b"\xff\xff"), b"\x00\x00\x00\x00"]
)
def test_broken_payloads_are_rejected_and_keep_nothing_of_the_event(shop: Any, raw: bytes) -> None:
    events = check(checker(shop, "onAvro"), record(raw))
    assert events.code.to_pylist() == ["data-invalid"]
    assert events.attributes["id"].to_pylist() == [None]


def test_a_type_that_no_message_takes_is_rejected(shop: Any) -> None:
    events = check(
        checker(shop, "onJson"), record(b"{}", type="x"), record(b"{}"), KafkaRecord(value=b"no event")
    )
    assert events.code.to_pylist() == ["no-message", None, "not-a-cloudevent"]
    assert "onJson has no message for type x" in events.reason[0].as_py()


def test_the_type_chooses_among_messages(shop: Any) -> None:
    parcel = shop.operation("onMany").messages[1].payload.definition
    table = SchemaTable(known={"id:1": (json.dumps(V1),), "id:3": (json.dumps(parcel),)})
    events = check(
        checker(shop, "onMany", table=table),
        record(encode_payload(SchemaId(number=1), avro(V1, ONE))),
        record(encode_payload(SchemaId(number=3), avro(parcel, {"parcel": "p"})), type="com.shop.parcel"),
    )
    assert data(events) == [{**ONE, "note": None}, {"parcel": "p"}]


def test_json_schema_is_checked_only_if_asked_for(shop: Any) -> None:
    records = [
        record(raw, media_type="application/json")
        for raw in (b'{"order":"a","total":1}', b'{"order":"a","total":-1}', b'{"order":5}', b"{", None)
    ]
    assert check(checker(shop, "onJson"), *records).code.to_pylist() == [None] * 5
    events = check(checker(shop, "onJson", full=True), *records)
    assert events.code.to_pylist() == [None, *["schema-mismatch"] * 3, None]
    assert "/total: it is less than the minimum of 0, here it is -1" in events.reason[1].as_py()


def test_the_schema_of_a_structured_message_is_about_the_whole_event(shop: Any) -> None:
    binding = KafkaBinding(mode=Mode.STRUCTURED)
    attributes = {"id": "1", "source": "/s", "type": "com.shop.order", "datacontenttype": "application/json"}
    good, bad = (
        binding.encode(CloudEvent(attributes, b'{"order":"a","total":%d}' % total)) for total in (1, -1)
    )
    binary = record(b'{"order":"a","total":-1}', media_type="application/json")
    events = check(checker(shop, "onStructured", full=True), good, bad, binary)
    assert events.code.to_pylist() == [None, "schema-mismatch", "schema-mismatch"]
    assert event_at(events, 0).json() == {"order": "a", "total": 1}


def test_json_behind_a_schema_id_is_data_without_it(shop: Any) -> None:
    events = check(
        checker(shop, "onFramed", full=True),
        record(
            encode_payload(SchemaId(number=77), b'{"order":"a","total":1}'), media_type="application/json"
        ),
        record(b'{"order":"a","total":1}', media_type="application/json"),
    )
    assert events.code.to_pylist() == [None, "data-invalid"]
    assert data(events)[0] == {"order": "a", "total": 1}


def test_protobuf_behind_a_schema_id_says_that_it_cannot_be_read(shop: Any) -> None:
    events = check(checker(shop, "onProto"), record(b"\x00\x00\x00\x00\x01\x00\x0a\x01a"))
    assert events.code.to_pylist() == ["protobuf-framed"]
    assert "cannot be read" in events.reason[0].as_py()


KEYS = {
    "string": ({"type": "string", "minLength": 2}, [b"ab", b'"x"'], [b"a", b"\xff\xff", None]),
    "integer": ({"type": "integer"}, [b"5", b"-7"], [b"x", b"5.5", b"", None]),
    "object": ({"type": "object", "required": ["id"]}, [b'{"id":1}'], [b"{}", b"{", b"id", None]),
    "nullable": ({"type": ["string", "null"]}, [b"a", None], [b"\xff"]),
    "avro": ({"type": "long"}, [b"\x0e"], [b"", b"\x0e\x0e", None]),
    "record": (
        {"type": "record", "name": "K", "fields": [{"name": "id", "type": "string"}]},
        [b"\x02a"],
        [b"\x04a", None],
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_held_against_the_binding(shop: Any, name: str) -> None:
    schema, good, bad = KEYS[name]
    form = forms_of(shop.operation_with_key("onJson", schema))
    checks = ContractCheck(operation="onJson", forms=form, full=True)
    value = b'{"order":"a","total":1}'
    keys = [*good, *bad]
    events = check(checks, *(record(value, media_type="application/json", key=key) for key in keys))
    assert events.code.to_pylist() == [None] * len(good) + ["key-mismatch"] * len(bad)
    loose = ContractCheck(operation="onJson", forms=form)
    events = check(loose, *(record(value, media_type="application/json", key=key) for key in keys))
    assert events.code.to_pylist() == [None] * len(keys)
