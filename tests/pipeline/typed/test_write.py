"""Events written as the messages of a target: Avro, framed JSON, plain records, other event formats."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_reader

from penstock.brokers.schema_registry import Registered
from penstock.config import load
from penstock.contract.schema_ids import IdKind, SchemaId, decode_header, decode_payload
from penstock.contract.selection import Selector
from penstock.errors import CannotEncode, UnknownSchemas, Unreachable
from penstock.events import CloudEvent, absent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.assembly import sources_of, stage_of
from penstock.pipeline.compile import check_pipeline, load_pipeline
from penstock.pipeline.stage import read_cloud_events
from penstock.pipeline.typed.form import Form
from penstock.pipeline.typed.joints import writer_of
from penstock.pipeline.typed.schemas import Schemas
from penstock.pipeline.typed.write import ContractWriter, write_batch

EVENT = CloudEvent(
    {"id": "1", "source": "/s", "type": "com.shop.order", "datacontenttype": "application/json"},
    b'{"order":"a","total":1.5,"more":true}',
)


class FakeRegistry:
    """A registry that counts what it is asked."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[Registered]] = {}
        self.calls: list[str] = []

    def add(self, subject: str, schema: str, **more: Any) -> int:
        number = sum(map(len, self.subjects.values())) + 1
        versions = self.subjects.setdefault(subject, [])
        made = Registered(version=len(versions) + 1, schema_type="AVRO", schema=schema, id=number, **more)
        versions.append(made)
        return number

    def register(self, subject: str, schema_type: str, schema: str) -> int:
        self.calls.append(f"register {subject} {schema_type}")
        known = next((each for each in self.subjects.get(subject, ()) if each.schema == schema), None)
        return known.id or 0 if known else self.add(subject, schema)

    def versions(self, subject: str) -> tuple[int, ...]:
        self.calls.append(f"versions {subject}")
        return tuple(each.version for each in self.subjects.get(subject, ()))

    def version(self, subject: str, version: int) -> Registered | None:
        return self.subjects[subject][version - 1]

    def by_id(self, number: int) -> Registered | None:
        self.calls.append(f"id {number}")
        return next((each for all_ in self.subjects.values() for each in all_ if each.id == number), None)

    @contextmanager
    def open(self, _registry: object) -> Iterator[FakeRegistry]:
        yield self


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


def write(
    shop: Any,
    registry: FakeRegistry,
    name: str,
    event: CloudEvent = EVENT,
    vendor: str = "apicurio",
    **more: bool,
) -> Any:
    schemas = Schemas(open=registry.open)  # type: ignore[arg-type]
    writer = writer_of(shop.operation(name, vendor), shop.contract(vendor), schemas)
    headers = (("app", b"x"), ("__value_schema_id", b"old"))
    return pickle.loads(pickle.dumps(writer))(event, b"k", headers, **more)


def read_avro(shop: Any, raw: bytes) -> Any:
    schema = shop.operation("onAvro").messages[0].payload.definition
    return schemaless_reader(io.BytesIO(raw), parse_schema(schema), None)


@pytest.mark.parametrize(
    ("name", "width"), [("toAvro", 4), ("toWide", 8), ("toEight", 8), ("toLegacy", 4), ("toTold", 4)]
)
def test_avro_is_written_behind_the_id_of_its_registered_schema(
    shop: Any, registry: FakeRegistry, name: str, width: int
) -> None:
    record = write(shop, registry, name)
    schema_id, body = decode_payload(record.value, width=width)
    assert (schema_id, read_avro(shop, body)) == (
        SchemaId(number=1),
        {"order": "a", "total": 1.5, "note": None},
    )
    assert dict(record.headers)["content-type"] == b"application/avro"
    assert ("app", b"x") in record.headers
    assert "__value_schema_id" not in dict(record.headers)
    assert registry.calls == [f"register {name[2:].lower()}-value AVRO"]


@pytest.mark.parametrize(("vendor", "kind"), [("apicurio", IdKind.CONTENT_ID), ("confluent", IdKind.ID)])
def test_an_id_in_a_header_takes_the_place_of_the_old_one(
    shop: Any, registry: FakeRegistry, vendor: str, kind: IdKind
) -> None:
    record = write(shop, registry, "toHeader", vendor=vendor)
    assert decode_header(record.headers) == SchemaId(number=1, kind=kind)
    assert ("__value_schema_id", b"old") not in record.headers
    assert read_avro(shop, record.value)["order"] == "a"


def test_a_plain_record_that_stays_as_it_came_has_the_id_of_its_new_data(
    shop: Any, registry: FakeRegistry
) -> None:
    schemas = Schemas(open=registry.open)  # type: ignore[arg-type]
    writer = writer_of(shop.operation("toHeader", "confluent"), shop.contract("confluent"), schemas)
    assert writer is not None
    came = (("app", b"x"), ("__value_schema_id", b"old"))
    record = replace(writer, is_plain=True)(EVENT, b"k", came, came=came)
    assert decode_header(record.headers) == SchemaId(number=1, kind=IdKind.ID)
    assert [value for name, value in record.headers if name == "__value_schema_id"] != [b"old"]
    assert read_avro(shop, record.value)["order"] == "a"


@pytest.mark.parametrize("name", ["toBare", "toNone"])
def test_avro_without_a_place_for_ids_is_bare(shop: Any, registry: FakeRegistry, name: str) -> None:
    record = write(shop, registry, name)
    assert read_avro(shop, record.value)["total"] == 1.5
    assert registry.calls == []


def test_messages_that_share_a_subject_are_branches_of_a_union(shop: Any, registry: FakeRegistry) -> None:
    parcel = EVENT.replace({"type": "com.shop.parcel"}, b'{"parcel":"p"}')
    record = write(shop, registry, "toMany", parcel)
    (registered,) = registry.subjects["many-value"]
    _, body = decode_payload(record.value)
    union = parse_schema(json.loads(registered.schema))
    assert schemaless_reader(io.BytesIO(body), union, None) == {"parcel": "p"}
    assert body[0] == 2


def test_json_gets_its_frame(shop: Any, registry: FakeRegistry) -> None:
    record = write(shop, registry, "toFramed")
    assert decode_payload(record.value) == (SchemaId(number=1), EVENT.data)
    assert registry.calls == ["register framed-value JSON"]


def test_an_event_format_is_written_by_its_name(shop: Any, registry: FakeRegistry) -> None:
    record = write(shop, registry, "toFormat")
    assert dict(record.headers)["content-type"] == b"application/cloudevents+avro"
    assert KafkaBinding().decode(record).id == "1"


def test_a_plain_target_has_the_headers_of_spec_004(shop: Any, registry: FakeRegistry) -> None:
    record = write(shop, registry, "toPlain", EVENT.replace({"type": "order"}))
    headers = dict(record.headers)
    assert (headers["event-id"], headers["event-type"], headers["source"]) == (b"1", b"kind=order", b"/s")
    assert record.value == EVENT.data


def test_what_came_as_null_stays_a_tombstone(shop: Any, registry: FakeRegistry) -> None:
    for name in ("toAvro", "toFormat", "toPlain"):
        event = EVENT.replace({"type": "order"} if name == "toPlain" else {}, absent)
        assert write(shop, registry, name, event, null_value=True).value is None


def test_only_an_envelope_can_say_that_an_event_has_no_data(shop: Any, registry: FakeRegistry) -> None:
    assert write(shop, registry, "toAvro", EVENT.replace({}, absent)).value is None
    record = write(shop, registry, "toFormat", EVENT.replace({}, absent))
    assert record.value is not None
    event = KafkaBinding().decode(record)
    assert (event.id, event.data) == ("1", absent)


@pytest.mark.parametrize(
    ("name", "change", "data", "why"),
    [
        ("toAvro", {}, b'{"order":"a"}', "total: it is missing"),
        ("toAvro", {}, b"{", "not JSON"),
        ("toAvro", {"datacontenttype": "text/plain"}, b"x", "is Avro, the data is text/plain"),
        ("toAvro", {"type": "x"}, b"{}", "no message for type x"),
        ("toFramed", {"datacontenttype": "text/plain"}, b"x", "is JSON, the data is"),
        ("toProto", {}, b"{}", "is Protobuf"),
    ],
)
def test_what_a_message_cannot_hold_is_refused(
    shop: Any, registry: FakeRegistry, name: str, change: dict[str, str], data: bytes, why: str
) -> None:
    with pytest.raises(CannotEncode, match=why):
        write(shop, registry, name, EVENT.replace(change, data))


def test_avro_that_nobody_looked_into_passes_as_it_is(shop: Any, registry: FakeRegistry) -> None:
    raw = b"\x00\x00\x00\x00\x09\x02a"
    record = write(shop, registry, "toAvro", EVENT.replace({"datacontenttype": "application/avro"}, raw))
    assert record.value == raw
    assert ("__value_schema_id", b"old") in record.headers


def test_cloudevents_with_json_need_no_writer(shop: Any) -> None:
    for name in ("toJson", "toStructured"):
        assert writer_of(shop.operation(name), shop.contract(), Schemas()) is None


def test_decimals_keep_their_digits() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 20}
    form = Form(name="amount", selector=Selector(), codec="avro", schema=json.dumps(schema))
    event = EVENT.replace({}, b"1234567890.12345678901234567890")
    record = ContractWriter(operation="to", forms=(form,), written={})(event, None, ())
    read = schemaless_reader(io.BytesIO(record.value or b""), parse_schema(schema), None)
    assert str(read) == "1234567890.12345678901234567890"


def test_a_batch_is_written_row_by_row(shop: Any, registry: FakeRegistry) -> None:
    records = [KafkaBinding().encode(each) for each in (EVENT, EVENT.replace({"type": "x"}))]
    headers = [[{"key": k, "value": v} for k, v in (*r.headers, ("app", b"1"))] for r in records]
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array([r.value for r in records], pa.binary()), "headers": pa.array(headers, HEADERS)}
    )
    schemas = Schemas(open=registry.open)  # type: ignore[arg-type]
    writer = writer_of(shop.operation("toAvro"), shop.contract(), schemas)
    assert writer is not None
    written = write_batch(read_cloud_events(batch), writer)
    assert written.code.to_pylist() == [None, "cannot-encode"]
    assert decode_payload(written.value[0].as_py())[0] == SchemaId(number=1)
    assert {"key": "app", "value": b"1"} in written.headers[0].as_py()


# The driver's schemas


def schemas_of(registry: FakeRegistry, clock: list[float]) -> Schemas:
    return Schemas(open=registry.open, clock=lambda: clock[0])  # type: ignore[arg-type]


def test_the_driver_fetches_all_versions_once(shop: Any, registry: FakeRegistry) -> None:
    registry.add("avro-value", '"string"')
    registry.add("avro-value", '"int"', references=(("line", 1),))
    registry.add("line", '"long"')
    schemas = schemas_of(registry, [0.0])
    table = schemas.table(shop.operation("onAvro"))
    assert table.known == {"id:1": ('"string"',), "id:2": ('"long"', '"int"')}
    assert schemas.table(shop.operation("onAvro")) == table
    assert registry.calls == ["versions avro-value"]


def test_versions_that_could_not_be_fetched_are_fetched_by_the_next_call(
    shop: Any, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add("avro-value", '"string"')
    schemas = schemas_of(registry, [0.0])
    with monkeypatch.context() as away, pytest.raises(Unreachable):
        away.setattr(registry, "version", Mock(side_effect=Unreachable("the registry is away")))
        schemas.table(shop.operation("onAvro"))
    assert schemas.table(shop.operation("onAvro")).known == {"id:1": ('"string"',)}


def test_ids_that_a_batch_names_are_looked_up_and_missing_ones_asked_again_later(
    shop: Any, registry: FakeRegistry
) -> None:
    clock = [0.0]
    schemas = schemas_of(registry, clock)
    operation = shop.operation("onAvro")
    assert schemas.table(operation).known == {}
    other = registry.add("elsewhere", '"string"')
    failed = f"Traceback ... {UnknownSchemas('onAvro', [f'id:{other}', 'id:99'])} in a worker"
    assert schemas.learn(failed)
    table = schemas.table(operation)
    assert (table.known, table.missing) == ({"id:1": ('"string"',)}, frozenset({"id:99"}))
    assert table.news(["id:99", "id:100"]) == {"id:100"}
    clock[0] = 61.0
    assert schemas.table(operation).news(["id:99"]) == {"id:99"}
    assert not schemas.learn("something else failed")
    assert not schemas.learn(str(UnknownSchemas("onOther", ["id:1"])))


def test_what_a_table_has_told_is_no_reason_to_run_a_batch_again(shop: Any, registry: FakeRegistry) -> None:
    schemas, operation = schemas_of(registry, [0.0]), shop.operation("onAvro")
    schemas.table(operation)
    other = registry.add("elsewhere", '"string"')
    failed = str(UnknownSchemas("onAvro", [f"id:{other}", "id:99"]))
    assert schemas.learn(failed)
    assert schemas.learn(failed), "who was told nothing yet asks again"
    assert schemas.table(operation).known
    assert not schemas.learn(failed), "it would name them for ever"


def test_noise_is_not_looked_up_for_ever(shop: Any, registry: FakeRegistry) -> None:
    schemas = schemas_of(registry, [0.0])
    operation = shop.operation("onAvro")
    rounds = 0
    while schemas.table(operation).asks:
        rounds += 1
        first = rounds * 100
        schemas.learn(str(UnknownSchemas("onAvro", [f"id:{n}" for n in range(first, first + 100)])))
    assert rounds == 10


def test_a_source_without_avro_asks_no_registry(shop: Any, registry: FakeRegistry) -> None:
    assert not schemas_of(registry, [0.0]).table(shop.operation("onJson")).asks
    assert registry.calls == []


def test_no_secret_travels_to_the_workers(shop: Any, registry: FakeRegistry) -> None:
    registry.add("avro-value", '"string"')
    path = shop.pipeline({"r": {"receive": "onAvro", "send": ["toWide", "toJson"], "check": "schema"}})
    security = {"username": "somebody", "password": "hunter2"}
    context = {
        "servers": {"kafka": {"kind": "kafka", "address": "k:9092", "security": security}},
        "registry": {"address": "http://r:8081", "security": security},
    }
    (shop.folder / "penstock.yaml").write_text(json.dumps({"contexts": {"test": context}}))
    pipeline = load_pipeline(path, context=load(start=shop.folder).context())
    (source,) = sources_of(pipeline)
    assert source.receive.messages[0].registry.connection.security.password.reveal() == "hunter2"
    stage = pickle.dumps(stage_of(source, pipeline, schemas_of(registry, [0.0])))
    assert b"com.shop" in stage
    assert b"hunter2" not in stage
    assert b"somebody" not in stage


def test_a_target_whose_ids_have_no_clear_width_is_a_finding(shop: Any) -> None:
    path = shop.pipeline({"r": {"receive": "onJson", "send": "toAvro"}})
    contract = json.loads((shop.folder / "asyncapi.yaml").read_text())
    binding = contract["channels"]["avro"]["messages"]["order"]["bindings"]["kafka"]
    del binding["schemaIdPayloadEncoding"]
    (shop.folder / "asyncapi.yaml").write_text(json.dumps(contract))
    assert [finding.rule.id for finding in check_pipeline(path).errors] == ["PK523"]
