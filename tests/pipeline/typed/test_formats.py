"""Event formats in a stage: every registered one is read, others are put aside or passed on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from routed import rows_of

from penstock.contract.selection import Selector
from penstock.events import CloudEvent, Json
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.reading import Mode
from penstock.pipeline.assembly import sources_of, stage_of
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.typed.form import choose, form_of, forms_of
from penstock.record import KafkaRecord

EVENT = CloudEvent(
    {"id": "1", "source": "/s", "type": "com.shop.order", "datacontenttype": "application/json"},
    Json({"order": "a", "total": 7}),
)
STRANGE = KafkaRecord(
    value=b"<e/>\xff",
    key=b"k",
    headers=(("content-type", b"application/cloudevents+xml"), ("app", None), ("app", b"2")),
)


def run(shop: Any, records: list[KafkaRecord], **route: Any) -> list[dict[str, Any]]:
    path = shop.pipeline({"r": {"receive": "onJson", "send": "toStructured", **route}})
    pipeline = load_pipeline(path)
    (source,) = sources_of(pipeline)
    rows, _ = rows_of(stage_of(source, pipeline), records)
    return rows


@pytest.mark.parametrize("name", ["json", "avro", "protobuf"])
def test_every_registered_format_is_read(shop: Any, name: str) -> None:
    record = KafkaBinding(mode=Mode.STRUCTURED, format=name).encode(EVENT, key=b"key")
    (row,) = run(shop, [record], where="data.total = 7", mode="binary", check="schema")
    written = KafkaRecord(value=row["value"], headers=tuple((h["key"], h["value"]) for h in row["headers"]))
    assert row["topic"] == "structured"
    assert KafkaBinding().decode(written).json() == {"order": "a", "total": 7}


def test_an_unknown_format_is_a_dead_letter(shop: Any) -> None:
    (row,) = run(shop, [STRANGE])
    assert row["topic"] == "dead"
    assert {"key": "ce_deadlettercode", "value": b"unsupported-format"} in row["headers"]


def test_an_unknown_format_is_forwarded_if_the_route_says_so(shop: Any) -> None:
    (row,) = run(shop, [STRANGE], unknownFormat={"forward": "unknown"})
    headers = tuple((header["key"], header["value"]) for header in row["headers"])
    assert (row["topic"], row["key"], row["value"], headers) == (
        "unknown",
        b"k",
        STRANGE.value,
        STRANGE.headers,
    )


def test_a_schema_in_another_language_than_the_codec_is_left_out(shop: Any) -> None:
    message = shop.operation("onAvro").messages[0]
    assert form_of(message).schema is not None
    envelope = replace(message, content_type="application/cloudevents+avro")
    by_json = replace(message, payload=shop.operation("onJson").messages[0].payload)
    assert [form_of(each).schema for each in (envelope, by_json)] == [None, None]


def test_forms_are_chosen_as_messages_are(shop: Any) -> None:
    for name in ("onJson", "onMany", "onPlain", "onStructured"):
        operation = shop.operation(name)
        forms = forms_of(operation)
        for type_ in ("com.shop.order", "com.shop.parcel", "order", "x", None):
            message = operation.message_for(type_)
            at = choose(forms, type_, None)
            assert (None if at is None else forms[at].name) == (message.name if message else None)


def test_a_name_decides_where_selectors_do_not(shop: Any) -> None:
    first, second = forms_of(shop.operation("onMany"))
    open_ = [type(first)(name=each.name, selector=Selector(), codec="json") for each in (first, second)]
    assert [choose(open_, name, None) for name in ("order", "parcel", "x")] == [0, 1, None]
