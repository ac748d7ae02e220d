"""Foreign libraries as oracles: the CloudEvents SDK where it is right, fastavro and protobuf."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest
from cloudevents.core.bindings import http as sdk_http
from cloudevents.core.bindings import kafka as sdk_kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as SdkEvent
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.events import (
    AttributeType,
    CloudEvent,
    HttpBinding,
    HttpMessage,
    Json,
    KafkaBinding,
    Mode,
    absent,
)
from penstock.events.formats import AvroFormat, ProtobufFormat
from penstock.record import KafkaRecord

ATTRIBUTES = {
    "specversion": "1.0",
    "id": "A-1",
    "source": "https://shop.example/orders",
    "type": "order.placed",
    "subject": "😀 %20",
    "time": "2026-01-02T03:04:05.678000Z",
    "datacontenttype": "application/json",
    "tenant": "t1",
}
DATA = {"total": 10.5, "items": ["ä", None, True]}
EVENT = CloudEvent(ATTRIBUTES, Json(DATA))
SDK_EVENT = SdkEvent({**ATTRIBUTES, "time": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)}, DATA)


def same(ours: CloudEvent, theirs: Any) -> bool:
    named = {n: v.isoformat() if isinstance(v, datetime) else v for n, v in theirs.get_attributes().items()}
    mine = dict(ours.attributes)
    assert ours.time is not None
    mine["time"] = ours.time.isoformat()
    return mine == named and ours.json() == theirs.get_data()


@pytest.mark.parametrize("mode", [Mode.BINARY, Mode.STRUCTURED])
def test_kafka_agrees_with_the_sdk(mode: Mode) -> None:
    write = {Mode.BINARY: sdk_kafka.to_binary, Mode.STRUCTURED: sdk_kafka.to_structured}[mode]
    theirs = write(SDK_EVENT, JSONFormat())
    assert same(
        KafkaBinding().decode(KafkaRecord(value=theirs.value, headers=tuple(theirs.headers.items()))),
        SDK_EVENT,
    )
    ours = KafkaBinding(mode=mode).encode(EVENT)
    message = sdk_kafka.KafkaMessage(headers=dict(ours.headers), key=None, value=ours.value)  # type: ignore[arg-type]
    assert same(EVENT, sdk_kafka.from_kafka(message, JSONFormat()))


@pytest.mark.parametrize("mode", [Mode.BINARY, Mode.STRUCTURED])
def test_http_agrees_with_the_sdk(mode: Mode) -> None:
    write = {Mode.BINARY: sdk_http.to_binary, Mode.STRUCTURED: sdk_http.to_structured}[mode]
    theirs = write(SDK_EVENT, JSONFormat())
    body = theirs.body if isinstance(theirs.body, bytes) else theirs.body.encode()
    assert same(
        HttpBinding().decode(HttpMessage(headers=tuple(theirs.headers.items()), body=body)), SDK_EVENT
    )
    ours = HttpBinding(mode=mode).encode(EVENT)
    message = sdk_http.HTTPMessage(headers=dict(ours.headers), body=ours.body)
    assert same(EVENT, sdk_http.from_http(message, JSONFormat()))


TYPED = CloudEvent({**ATTRIBUTES, "retries": -5, "urgent": True, "digest": b"\x00\xff"}, b'{"total": 10.50}')

# The schema of the Avro format, written down from its specification.
_RECORD = {
    "type": "record",
    "name": "CloudEventData",
    "fields": [
        {
            "name": "value",
            "type": {
                "type": "map",
                "values": [
                    "null",
                    "boolean",
                    {"type": "map", "values": "CloudEventData"},
                    {"type": "array", "items": "CloudEventData"},
                    "double",
                    "string",
                ],
            },
        }
    ],
}
AVRO_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "CloudEvent",
        "namespace": "io.cloudevents",
        "fields": [
            {
                "name": "attribute",
                "type": {"type": "map", "values": ["null", "boolean", "int", "string", "bytes"]},
            },
            {
                "name": "data",
                "type": [
                    "bytes",
                    "null",
                    "boolean",
                    {"type": "map", "values": ["null", "boolean", _RECORD, "double", "string"]},
                    {"type": "array", "items": "CloudEventData"},
                    "double",
                    "string",
                ],
            },
        ],
    }
)


def avro(attribute: dict[str, Any], data: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO_SCHEMA, {"attribute": attribute, "data": data})
    return out.getvalue()


def test_fastavro_reads_what_we_write() -> None:
    found: Any = fastavro.schemaless_reader(io.BytesIO(AvroFormat().encode(TYPED)), AVRO_SCHEMA, None)
    assert found["data"] == b'{"total": 10.50}'
    assert found["attribute"] == {**ATTRIBUTES, "retries": -5, "urgent": True, "digest": b"\x00\xff"}


def test_we_read_what_fastavro_writes() -> None:
    attribute = {**ATTRIBUTES, "retries": -5, "urgent": True, "digest": b"\x00\xff", "unset": None}
    assert AvroFormat().decode(avro(attribute, b'{"total": 10.50}')) == TYPED


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (None, absent),
        (True, Json(True)),
        (1.5, Json(1.5)),
        ("text", Json("text")),
        ({"a": None, "b": 2.0, "c": {"value": {"d": "e"}}}, Json({"a": None, "b": 2.0, "c": {"d": "e"}})),
        (
            [{"value": {"a": True, "b": [{"value": {}}], "c": {"d": {"value": {}}}}}],
            Json([{"a": True, "b": [{}], "c": {"d": {}}}]),
        ),
    ],
)
def test_every_branch_of_avro_data(data: Any, want: Any) -> None:
    required = {name: ATTRIBUTES[name] for name in ("specversion", "id", "source", "type")}
    assert AvroFormat().decode(avro(required, data)).data == want


def _field(name: str, number: int, kind: str, **more: Any) -> descriptor_pb2.FieldDescriptorProto:
    field = descriptor_pb2.FieldDescriptorProto
    return field(
        name=name, number=number, type=getattr(field, f"TYPE_{kind}"), label=field.LABEL_OPTIONAL, **more
    )


def _messages() -> tuple[Any, Any]:
    """The messages of the Protobuf format, made from their public field numbers."""
    any_type, stamp = ".google.protobuf.Any", ".google.protobuf.Timestamp"
    value = descriptor_pb2.DescriptorProto(name="Value", oneof_decl=[{"name": "attr"}])
    kinds = ["BOOL", "INT32", "STRING", "BYTES", "STRING", "STRING"]
    names = ["ce_boolean", "ce_integer", "ce_string", "ce_bytes", "ce_uri", "ce_uri_ref"]
    for number, (name, kind) in enumerate(zip(names, kinds, strict=True), 1):
        value.field.append(_field(name, number, kind, oneof_index=0))
    value.field.append(_field("ce_timestamp", 7, "MESSAGE", type_name=stamp, oneof_index=0))
    entry = descriptor_pb2.DescriptorProto(name="AttributesEntry", options={"map_entry": True})
    entry.field.extend(
        [_field("key", 1, "STRING"), _field("value", 2, "MESSAGE", type_name=".ce.CloudEvent.Value")]
    )
    event = descriptor_pb2.DescriptorProto(
        name="CloudEvent", nested_type=[value, entry], oneof_decl=[{"name": "data"}]
    )
    for number, name in enumerate(("id", "source", "spec_version", "type"), 1):
        event.field.append(_field(name, number, "STRING"))
    attributes = _field("attributes", 5, "MESSAGE", type_name=".ce.CloudEvent.AttributesEntry")
    attributes.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    event.field.append(attributes)
    event.field.append(_field("binary_data", 6, "BYTES", oneof_index=0))
    event.field.append(_field("text_data", 7, "STRING", oneof_index=0))
    event.field.append(_field("proto_data", 8, "MESSAGE", type_name=any_type, oneof_index=0))
    batch = descriptor_pb2.DescriptorProto(name="Batch")
    events = _field("events", 1, "MESSAGE", type_name=".ce.CloudEvent")
    events.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    batch.field.append(events)
    file = descriptor_pb2.FileDescriptorProto(name="ce.proto", package="ce", syntax="proto3")
    file.dependency.extend(["google/protobuf/any.proto", "google/protobuf/timestamp.proto"])
    file.message_type.extend([event, batch])
    from google.protobuf import any_pb2, timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    for known in (any_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return (
        message_factory.GetMessageClass(pool.FindMessageTypeByName("ce.CloudEvent")),
        message_factory.GetMessageClass(pool.FindMessageTypeByName("ce.Batch")),
    )


ProtoEvent, ProtoBatch = _messages()


def proto_event() -> Any:
    message = ProtoEvent(id="A-1", source=ATTRIBUTES["source"], spec_version="1.0", type="order.placed")
    message.attributes["subject"].ce_string = ATTRIBUTES["subject"]
    message.attributes["time"].ce_timestamp.FromJsonString(ATTRIBUTES["time"])
    message.attributes["datacontenttype"].ce_string = "application/json"
    message.attributes["tenant"].ce_string = "t1"
    message.attributes["retries"].ce_integer = -5
    message.attributes["urgent"].ce_boolean = True
    message.attributes["digest"].ce_bytes = b"\x00\xff"
    message.text_data = '{"total": 10.50}'
    return message


def test_protobuf_reads_what_we_write() -> None:
    event = CloudEvent({**TYPED.attributes, "retries": -5, "urgent": True, "digest": b"\x00\xff"}, TYPED.data)
    assert ProtoEvent.FromString(ProtobufFormat().encode(event)) == proto_event()


def test_we_read_what_protobuf_writes() -> None:
    found = ProtobufFormat().decode(proto_event().SerializeToString())
    assert found == TYPED.replace({"time": "2026-01-02T03:04:05.678Z"})


def test_every_type_and_an_unknown_field_of_protobuf() -> None:
    message = proto_event()
    message.attributes["link"].ce_uri = "https://x"
    message.attributes["ref"].ce_uri_ref = "/x"
    message.attributes["seen"].ce_timestamp.FromJsonString("1969-12-31T23:59:59.5Z")
    raw = message.SerializeToString() + b"\xfa\x01\x02hi"  # field 31, which nobody knows
    found = ProtobufFormat().decode(raw)
    assert {name: found.types[name] for name in ("link", "ref", "seen")} == {
        "link": AttributeType.URI,
        "ref": AttributeType.URI_REFERENCE,
        "seen": AttributeType.TIMESTAMP,
    }
    assert found.get("seen") == "1969-12-31T23:59:59.500Z"
    assert ProtoEvent.FromString(ProtobufFormat().encode(found)) == message


def test_a_message_as_data_of_protobuf() -> None:
    message = ProtoEvent(id="1", source="/s", spec_version="1.0", type="t")
    message.proto_data.type_url, message.proto_data.value = "type.googleapis.com/x.Y", b"\x08\x01"
    found = ProtobufFormat().decode(message.SerializeToString())
    assert (found.data, found.datacontenttype, found.dataschema) == (
        b"\x08\x01",
        "application/protobuf",
        "https://type.googleapis.com/x.Y",
    )
    again = ProtoEvent.FromString(ProtobufFormat().encode(found))
    assert again.proto_data.value == b"\x08\x01"


def test_a_batch_of_protobuf() -> None:
    batch = ProtoBatch(events=[proto_event(), proto_event()])
    body = batch.SerializeToString()
    message = HttpMessage(headers=(("content-type", "application/cloudevents-batch+protobuf"),), body=body)
    found = [reading.event for reading in HttpBinding().read_batch(message)]
    assert len(found) == 2 and found[0] == found[1]
    assert ProtoBatch.FromString(ProtobufFormat().encode_batch([e for e in found if e])) == batch


def test_json_is_what_the_standard_library_reads() -> None:
    raw = KafkaBinding(mode=Mode.STRUCTURED).encode(EVENT).value
    assert raw is not None
    assert json.loads(raw) == {**ATTRIBUTES, "data": DATA}
