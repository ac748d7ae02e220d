"""Spec 004's attributes: decoded from the body by content type, once; typed accessors and their errors."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidEvent, MissingExtra, PenstockError, UsageError
from penstock.events.body_decoders import DECODERS, MAX_FORM_FIELDS, avro_decoder, protobuf_decoder
from penstock.events.event import Event

FORM = "application/x-www-form-urlencoded"


def _event(content_type: str | None, body: bytes, **more: Any) -> Event:
    return Event("p", {"content-type": content_type}, body, **more)


@pytest.mark.parametrize(
    ("content_type", "body", "attributes"),
    [
        ("application/json", b'{"n": 1}', {"n": 1}),
        ("Application/JSON; charset=utf-8", b'{"n": 1}', {"n": 1}),
        ("application/vnd.shop+json", b'{"n": 18446744073709551616}', {"n": 2**64}),
        ("text/json", b"{}", {}),
        ("application/json", b"[1, 2]", {"body": [1, 2]}),
        ("application/json", b"null", {"body": None}),
        ("text/plain", "café".encode(), {"body": "café"}),
        ("text/plain; charset=latin-1", b"caf\xe9", {"body": "café"}),
        ("text/csv", b"a,b", {"body": "a,b"}),
        (FORM, b"a=1&b=x+y&a=2&c=&a=3", {"a": ["1", "2", "3"], "b": "x y", "c": ""}),
        (FORM, b"n=%C3%A9", {"n": "é"}),
        (FORM, b"", {}),
    ],
)
def test_decoded_by_content_type(content_type: str, body: bytes, attributes: dict[str, Any]) -> None:
    assert dict(_event(content_type, body).attributes()) == attributes


@pytest.mark.parametrize(
    ("content_type", "body", "attribute"),
    [
        ("application/json", b"{", "body"),
        ("application/json", b'{"a":1,"a":2}', "body"),
        ("application/json", b"\xff", "body"),
        ("application/json", b"[" * 5000, "body"),
        ("text/plain", b"\xff", "body"),
        ("text/plain; charset=klingon", b"x", "body"),
        (FORM, b"a=%ff", "body"),
        (FORM, b"a=\xff", "body"),
        (FORM, b"&".join([b"a=1"] * (MAX_FORM_FIELDS + 1)), "body"),
        ("application/octet-stream", b"x", "content-type"),
        ("application/json-seq", b"{}", "content-type"),
        ("application/avro", b"x", "content-type"),
        (None, b"x", "content-type"),
    ],
)
def test_what_cannot_be_decoded(content_type: str | None, body: bytes, attribute: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        _event(content_type, body).attributes()
    assert caught.value.attribute == attribute


def test_decoded_once() -> None:
    calls: list[bytes] = []

    def decoder(body: bytes, content_type: str) -> dict[str, int]:
        calls.append(body)
        return {"n": len(body)}

    event = _event(
        "application/x-mine; v=1", b"abc", decoders=DECODERS.with_decoder("application/x-mine", decoder)
    )
    assert (event.attribute("n"), event.attribute_int("n"), event.attributes("x")) == (3, 3, {})
    assert calls == [b"abc"]


def test_a_table_with_more_decoders_leaves_the_first_alone() -> None:
    mine = DECODERS.with_decoder("+cbor", lambda body, kind: {}).with_decoder(
        "image/*", lambda body, kind: "i"
    )
    assert mine.find("application/x+CBOR") and mine.find("image/png") and mine.find("application/json")
    assert DECODERS.find("image/png") is None
    with pytest.raises(UsageError):
        DECODERS.with_decoder("nonsense", lambda body, kind: None)


def test_structured_attributes_without_a_body() -> None:
    given = {"row": 7, "blob": b"\x00"}
    event = Event("db/rows", {"event-id": "1", "event-type": "kind=row"}, attributes=given)
    given["row"] = 8
    assert (event.body, event.has_attributes, event.attribute_int("row")) == (None, True, 7)
    assert event.attribute_bytes("blob") == b"\x00"
    assert event.checked() is event


def test_attributes_under_a_branch() -> None:
    event = Event("p", attributes={"a": {"b": 1, "c": {"d": 2}}, "a.e": 3, "ab": 4, "x.y": 5})
    assert dict(event.attributes("a")) == {"b": 1, "c": {"d": 2}, "e": 3}
    assert dict(event.attributes("a.c")) == {"d": 2}
    assert dict(event.attributes("x")) == {"y": 5}
    assert dict(event.attributes("none")) == {}
    assert (event.attribute("a.e"), event.attribute("a.c.d"), event.attribute("ab.b")) == (3, 2, None)


@pytest.mark.parametrize(
    ("accessor", "good", "bad"),
    [
        ("attribute_str", {"text": "x", "none": None}, ["int", "bool", "float", "list", "dict", "bytes"]),
        ("attribute_int", {"int": 5, "digits": -7, "none": None}, ["text", "bool", "float", "list", "bytes"]),
        ("attribute_bytes", {"bytes": b"b", "text": b"x", "none": None}, ["int", "bool", "float", "list"]),
    ],
)
def test_typed_accessors(accessor: str, good: dict[str, Any], bad: list[str]) -> None:
    values = {
        "text": "x",
        "digits": "-7",
        "int": 5,
        "bool": True,
        "float": 1.5,
        "list": [1],
        "dict": {"a": 1},
        "bytes": b"b",
        "none": None,
    }
    read = getattr(Event("p", attributes=values), accessor)
    assert {key: read(key) for key in good} == good
    for key in bad:
        with pytest.raises(InvalidEvent, match=f"'{key}'") as caught:
            read(key)
        assert caught.value.attribute == key


@pytest.mark.parametrize("text", ["", "x", "1.5", "1_0", " 1", "٣", "9" * 20])
def test_a_header_that_is_no_number(text: str) -> None:
    with pytest.raises(InvalidEvent, match="integer"):
        Event("p", {"n": text}).header_int("n")


# Avro and Protobuf

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "total", "type": "long"}],
}


def _avro(value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), value)
    return stream.getvalue()


AVRO = DECODERS.with_decoder("application/avro", avro_decoder(SCHEMA))


def test_avro_with_a_schema() -> None:
    event = _event("application/avro", _avro({"id": "7", "total": 2**40}), decoders=AVRO)
    assert dict(event.attributes()) == {"id": "7", "total": 2**40}


@pytest.mark.parametrize("body", [b"", b"\x02", b"\xff" * 20, _avro({"id": "7", "total": 1}) + b"x"])
def test_bytes_that_are_no_avro(body: bytes) -> None:
    with pytest.raises(InvalidEvent, match="application/avro"):
        _event("application/avro", body, decoders=AVRO).attributes()


def test_a_schema_that_is_none() -> None:
    with pytest.raises(UsageError, match="schema"):
        avro_decoder({"type": "nonsense"})


def _descriptor() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    state = file.enum_type.add(name="State")
    state.value.add(name="OPEN", number=0)
    state.value.add(name="PAID", number=1)
    item = file.message_type.add(name="Item")
    item.field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="raw", number=2, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="state", number=3, type=kinds.TYPE_ENUM, type_name=".shop.State", label=kinds.LABEL_OPTIONAL
    )
    order.field.add(
        name="items", number=4, type=kinds.TYPE_MESSAGE, type_name=".shop.Item", label=kinds.LABEL_REPEATED
    )
    order.field.add(
        name="gift", number=5, type=kinds.TYPE_MESSAGE, type_name=".shop.Item", label=kinds.LABEL_OPTIONAL
    )
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="counts",
        number=6,
        type=kinds.TYPE_MESSAGE,
        type_name=".shop.Order.CountsEntry",
        label=kinds.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName("shop.Order")


PROTOBUF = DECODERS.with_decoder("application/protobuf", protobuf_decoder(_descriptor()))


def test_protobuf_with_a_descriptor() -> None:
    # id=150, raw=00ff, state=PAID, items=[{sku:"a"}], counts={"x": 3}
    body = bytes.fromhex("089601 120200ff 1801 22030a0161 32050a01781003")
    assert dict(_event("application/protobuf", body, decoders=PROTOBUF).attributes()) == {
        "id": 150,
        "raw": b"\x00\xff",
        "state": "PAID",
        "items": [{"sku": "a"}],
        "counts": {"x": 3},
    }
    assert dict(_event("application/protobuf", b"\x18\x09\x2a\x00", decoders=PROTOBUF).attributes()) == {
        "id": 0,
        "raw": b"",
        "state": 9,
        "items": [],
        "gift": {"sku": ""},
        "counts": {},
    }


def test_bytes_that_are_no_protobuf() -> None:
    with pytest.raises(InvalidEvent, match="application/protobuf"):
        _event("application/protobuf", b"\xff", decoders=PROTOBUF).attributes()


@pytest.mark.parametrize(
    ("module", "extra", "make"),
    [
        ("fastavro", "avro", lambda: avro_decoder(SCHEMA)),
        ("google.protobuf.message", "protobuf", lambda: protobuf_decoder(None)),
    ],
)
def test_a_missing_extra_says_how_to_install_it(
    module: str, extra: str, make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"penstock\[{extra}\]"):
        make()


@given(
    st.sampled_from(["application/json", FORM, "text/plain", "application/avro", "application/protobuf"]),
    st.binary(max_size=40),
)
def test_any_body_decodes_or_raises_a_typed_error(content_type: str, body: bytes) -> None:
    table = AVRO.with_decoder("application/protobuf", protobuf_decoder(_descriptor()))
    try:
        attributes = _event(content_type, body, decoders=table).attributes()
    except PenstockError as error:
        assert isinstance(error, InvalidEvent)
    else:
        assert all(isinstance(name, str) for name in attributes)
