"""Typed and plain data on real servers: Kafka, a schema registry and Spark, read back by other clients."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.brokers.kafka_records import scan
from penstock.config import Context, load
from penstock.contract.schema_ids import (
    IdKind,
    SchemaId,
    decode_payload,
    encode_apicurio_header,
    encode_payload,
)
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.deadletter import read_dead_letter
from penstock.pipeline.job import Job, JobOptions, Totals, job_of
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.embedded.kafka import Kafka
    from penstock.embedded.registry import Registry

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

V1 = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [{"name": "order", "type": "string"}, {"name": "total", "type": "double"}],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "coupon", "type": ["null", "string"], "default": None}]}


class Cluster:
    """The servers as other programs see them, and the shop's pipeline on them."""

    def __init__(
        self, shop: Any, kafka: Kafka, registry: Registry, spark: SparkSession, schemas: SchemaRegistryClient
    ) -> None:
        self.shop, self.kafka, self.registry, self.spark = shop, kafka, registry, spark
        self.schemas = schemas
        shop.prefix = f"{uuid.uuid4().hex[:8]}."
        self.options = {**kafka.client_options(), "log_level": "0"}

    def topic(self, name: str) -> str:
        return f"{self.shop.prefix}{name}"

    def create(self, *names: str) -> None:
        admin = AdminClient(self.options)
        for done in admin.create_topics([NewTopic(self.topic(name), 1, 1) for name in names]).values():
            done.result(30)

    def produce(self, name: str, records: Iterable[KafkaRecord]) -> None:
        producer = Producer(self.options)
        for record in records:
            producer.produce(self.topic(name), record.value, record.key, headers=list(record.headers))
        assert producer.flush(60) == 0

    def read(self, name: str) -> list[KafkaRecord]:
        found = scan(self.options, self.topic(name))
        return [KafkaRecord(value=each.value, key=each.key, headers=each.headers) for each in found]

    def context(self) -> Context:
        context = {
            "servers": {"kafka": {"kind": "kafka", "address": self.kafka.bootstrap}},
            "registry": {"address": self.registry.url},
        }
        (self.shop.folder / "penstock.yaml").write_text(json.dumps({"contexts": {"test": context}}))
        found = load(start=self.shop.folder).context()
        assert found is not None
        return found

    def run(self, engine: str | None = None, **routes: Any) -> Totals:
        path = self.shop.pipeline(routes)
        options = JobOptions(once=True, engine=engine)
        with job_of(load_pipeline(path, context=self.context()), options) as job:
            job.prepare()
            assert {each.guarantee[:15] for each in job.plan} == {"exactly once on"}
            job.run(self.spark)
            (totals,) = job.totals.values()
            return totals

    def serialized(self, schema: object, value: object, topic: str) -> bytes:
        """Write a value as another program does it, with Confluent's own client."""
        write = AvroSerializer(self.schemas, json.dumps(schema))
        raw = write(value, SerializationContext(self.topic(topic), MessageField.VALUE))
        assert isinstance(raw, bytes)
        return raw

    def deserialized(self, record: KafkaRecord, topic: str) -> Any:
        read = AvroDeserializer(self.schemas)
        return read(record.value, SerializationContext(self.topic(topic), MessageField.VALUE))


@pytest.fixture
def cluster(shop: Any, kafka: Kafka, registry: Registry, spark: SparkSession) -> Iterator[Cluster]:
    with SchemaRegistryClient({"url": registry.url}) as schemas:
        yield Cluster(shop, kafka, registry, spark, schemas)


def event(
    id: str, value: bytes | None, *more: tuple[str, bytes | None], type: str = "com.shop.order"
) -> KafkaRecord:
    headers = {"ce_specversion": "1.0", "ce_id": id, "ce_source": "/shop", "ce_type": type}
    own = tuple((name, text.encode()) for name, text in headers.items())
    return KafkaRecord(value=value, key=b"key", headers=(*own, ("content-type", b"application/avro"), *more))


def dead_letters(cluster: Cluster) -> dict[str, tuple[str, bytes | None]]:
    letters = [read_dead_letter(KafkaBinding().decode(record)) for record in cluster.read("dead")]
    return {letter.code: (letter.reason, letter.record.value) for letter in letters}


@pytest.mark.parametrize("engine", ["spark", "loop"])
def test_avro_of_two_writers_goes_to_avro_and_to_json(cluster: Cluster, engine: str) -> None:
    cluster.create("avro", "wide", "json", "dead")
    first = cluster.serialized(V1, {"order": "small", "total": 10.0}, "avro")
    second = cluster.serialized(V2, {"order": "large", "total": 500.0, "coupon": "c"}, "avro")
    assert decode_payload(first)[0] != decode_payload(second)[0]
    unknown = encode_payload(SchemaId(number=999_999), b"\x02a")
    broken = first[:-3]
    cluster.produce(
        "avro",
        [event("1", first), event("2", second), event("3", unknown), event("4", broken), event("5", None)],
    )
    routes = {
        "large": {"receive": "onAvro", "send": "toWide", "where": "data.total >= 100"},
        "all": {
            "receive": "onAvro",
            "send": "toJson",
            "set": {"subject": "data.order"},
            "tombstones": "pass",
        },
    }
    totals = cluster.run(engine, **routes)
    assert (totals.counts["n_in"], totals.counts["n_dead"]) == (5, 2)
    (wide,) = cluster.read("wide")
    schema_id, body = decode_payload(wide.value or b"", width=8)
    narrow = encode_payload(SchemaId(number=schema_id.number), body)
    assert cluster.deserialized(KafkaRecord(value=narrow), "wide") == {
        "order": "large",
        "total": 500.0,
        "note": None,
    }
    assert (wide.key, dict(wide.headers)["ce_id"]) == (b"key", b"2")
    written = {KafkaBinding().decode(record).get("causationid"): record for record in cluster.read("json")}
    json_events = {name: KafkaBinding().decode(record) for name, record in written.items()}
    assert json_events["1"].json() == {"order": "small", "total": 10.0, "note": None}
    assert (json_events["2"].subject, json_events["2"].datacontenttype) == ("large", "application/json")
    dead = dead_letters(cluster)
    assert dead["unknown-schema"] == ("the registry has no schema with id:999999", unknown)
    assert dead["data-invalid"][1] == broken


@pytest.mark.parametrize(("engine", "function"), [("spark", "looker:look"), ("loop", None)])
def test_a_schema_that_is_new_while_the_job_runs_is_looked_up(
    cluster: Cluster, engine: str, function: str | None
) -> None:
    """The id belongs to a subject that the contract does not name, so that nobody can fetch it beforehand.

    A function sees the data as JSON.
    """
    cluster.create("avro", "json", "dead")
    text = json.dumps({**V1, "doc": cluster.shop.prefix})
    number = cluster.schemas.register_schema(f"{cluster.shop.prefix}elsewhere", Schema(text, "AVRO"))
    raw = cluster.serialized(V1, {"order": "o", "total": 1.0}, "avro")[5:]
    cluster.produce("avro", [event(str(n), encode_payload(SchemaId(number=number), raw)) for n in range(3)])
    code = "def look(batch):\n    return (e for e in batch if e.attribute_str('order') == 'o')\n"
    (cluster.shop.folder / "looker.py").write_text(code, encoding="utf-8")
    applied = {"apply": function} if function else {}
    totals = cluster.run(engine, r={"receive": "onAvro", "send": "toJson", "check": "schema", **applied})
    assert (totals.counts["n_out"], totals.counts["n_dead"]) == (3, 0)
    assert [KafkaBinding().decode(record).id for record in cluster.read("json")] == ["0", "1", "2"]


def _until(what: str, check: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@contextmanager
def _running(job: Job, spark: SparkSession) -> Iterator[None]:
    """Run a job without an end beside the test."""
    with job, ThreadPoolExecutor(1) as pool:
        job.prepare()
        ended = pool.submit(job.run, spark)
        try:
            yield
        finally:
            job.stop()
        ended.result(120)


def test_a_registry_that_is_away_holds_up_only_the_source_that_needs_it(
    shop: Any, kafka: Kafka, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    from penstock.embedded.registry import Registry

    with Registry() as registry, SchemaRegistryClient({"url": registry.url}) as schemas:
        cluster = Cluster(shop, kafka, registry, spark, schemas)
        cluster.create("avro", "json", "plain", "other", "dead")
        texts = [json.dumps({**V1, "doc": f"{shop.prefix} {number}"}) for number in range(2)]
        known, unknown = (
            schemas.register_schema(f"{shop.prefix}elsewhere", Schema(t, "AVRO")) for t in texts
        )
        raw = cluster.serialized(V1, {"order": "o", "total": 1.0}, "avro")[5:]

        def send(number: int, schema: int) -> None:
            cluster.produce("avro", [event(f"avro-{number}", encode_payload(SchemaId(number=schema), raw))])
            cluster.produce("plain", [KafkaRecord(value=b'{"order": "p", "total": 1}', key=b"key")])

        def arrived(name: str) -> int:
            return len(cluster.read(name))

        routes = {
            "typed": {"receive": "onAvro", "send": "toJson"},
            "plain": {"receive": "onPlain", "send": "toOther"},
        }
        path = shop.pipeline(routes)
        send(0, known)
        job = Job(load_pipeline(path, context=cluster.context()), JobOptions())
        with _running(job, spark):
            _until("nothing arrives", lambda: arrived("json") == arrived("other") == 1)
            registry.kill()
            send(1, unknown)
            _until("the outage is not told", job.stalled)
            (reason,) = job.stalled()
            assert "avro: the schema registry did not answer, tried for" in reason
            _until("the other source is held up", lambda: arrived("other") == 2)
            send(2, known)
            _until("the other source is held up", lambda: arrived("other") == 3)
            assert arrived("json") == 1
            assert len(job.stalled()) == 1
            registry.start()
            _until("the source does not go on", lambda: arrived("json") == 3)
            _until("the end of the outage is not told", lambda: not job.stalled())
        assert [KafkaBinding().decode(record).id for record in cluster.read("json")] == [
            "avro-0",
            "avro-1",
            "avro-2",
        ]
        assert arrived("dead") == 0
    # What Spark has to say of each attempt is the same again and again.
    assert len(capfd.readouterr().err.splitlines()) < 20


def test_ids_of_eight_bytes_and_in_headers(cluster: Cluster) -> None:
    cluster.create("wide", "header", "avro", "dead")
    number, raw = decode_payload(cluster.serialized(V1, {"order": "o", "total": 1.0}, "wide"))
    cluster.produce("wide", [event("1", encode_payload(number, raw, width=8))])
    cluster.run(r={"receive": "onWide", "send": "toHeader"})
    (record,) = cluster.read("header")
    headers = dict(record.headers)
    assert int.from_bytes(headers["apicurio.value.contentId"] or b"") > 0
    # Apicurio's own clients write global ids too: the same topic has both.
    own_id = _global_id(cluster, "wide")
    cluster.produce(
        "header", [event("2", raw, encode_apicurio_header(SchemaId(number=own_id, kind=IdKind.GLOBAL_ID)))]
    )
    totals = cluster.run(r={"receive": "onHeader", "send": "toAvro"})
    assert totals.counts["n_dead"] == 0
    read = [cluster.deserialized(each, "avro") for each in cluster.read("avro")]
    assert read == [{"order": "o", "total": 1.0, "note": None}] * 2
    assert all("apicurio.value.contentId" not in dict(each.headers) for each in cluster.read("avro"))


def _global_id(cluster: Cluster, topic: str) -> int:
    import httpx

    path = f"/apis/registry/v2/groups/default/artifacts/{cluster.topic(topic)}-value/versions"
    return int(httpx.get(f"{cluster.registry.apicurio_url}{path}").json()["versions"][0]["globalId"])


def test_dataframes_have_the_types_of_the_contract(cluster: Cluster) -> None:
    from penstock.spark import read_events, read_records, rejects_from, write_events

    cluster.create("avro", "wide")
    raw = cluster.serialized(V1, {"order": "o", "total": 2.5}, "avro")
    cluster.produce("avro", [event("1", raw), event("2", b"broken"), event("3", raw, type="x")])
    contract = cluster.shop.contract()
    place = {"stream": False, "context": cluster.context()}
    events = read_events(cluster.spark, contract, "onAvro", data="typed", **place)
    assert dict(events.dtypes)["data"] == "struct<order:string,total:double,note:string>"
    assert [(row.id, row.total) for row in events.select("id", "data.total").collect()] == [("1", 2.5)]
    write_events(events, contract, "toWide", context=cluster.context())
    (wide,) = cluster.read("wide")
    schema_id, body = decode_payload(wide.value or b"", width=8)
    narrow = encode_payload(SchemaId(number=schema_id.number), body)
    assert cluster.deserialized(KafkaRecord(value=narrow), "wide")["total"] == 2.5
    assert (wide.key, dict(wide.headers)["content-type"]) == (b"key", b"application/avro")
    records = read_records(cluster.spark, contract, "onAvro", **place)
    rejects = rejects_from(records, contract=contract, operation="onAvro", context=cluster.context())
    assert [row.code for row in rejects.orderBy("origin.offset").collect()] == ["data-invalid", "no-message"]


def test_json_schema_and_keys_are_checked_if_the_route_says_so(cluster: Cluster) -> None:
    cluster.create("json", "structured", "dead")

    def order(id: str, raw: bytes, key: bytes | None = b"key", type: str = "com.shop.order") -> KafkaRecord:
        made = event(id, raw, type=type)
        headers = tuple((n, b"application/json" if n == "content-type" else v) for n, v in made.headers)
        return KafkaRecord(value=raw, key=key, headers=headers)

    good = b'{"order":"o","total":1}'
    records = [
        order("1", good),
        order("2", b'{"order":"o","total":-1}'),
        order("3", good, key=b"k"),
        order("4", good, type="com.shop.other"),
    ]
    cluster.produce("json", records)
    cluster.run(r={"receive": "onJson", "send": "toStructured", "check": "schema", "mode": "structured"})
    (written,) = cluster.read("structured")
    assert KafkaBinding().decode(written).id == "1"
    dead = dead_letters(cluster)
    assert dead.keys() == {"schema-mismatch", "key-mismatch", "no-message"}
    assert "/total" in dead["schema-mismatch"][0]


def test_plain_records_become_cloudevents_and_go_back(cluster: Cluster) -> None:
    cluster.create("plain", "json", "other", "dead")
    body = b'{"order":"o","total":7}'
    own = (("event-id", b"mine"), ("event-type", b"kind=com.shop.order"), ("app", b"\xff"))
    records = [
        KafkaRecord(value=body, key=b"key"),
        KafkaRecord(value=body, headers=own),
        KafkaRecord(value=b"{"),
    ]
    cluster.produce("plain", records)
    routes = {
        "there": {
            "receive": "onPlain",
            "send": "toJson",
            "where": "data.total = 7",
            "set": {"type": "'com.shop.order'"},
        },
        "plain": {"receive": "onPlain", "send": "toOther"},
    }
    cluster.run(**routes)
    first, second = (KafkaBinding().decode(record) for record in cluster.read("json"))
    topic = cluster.topic("plain")
    assert (first.get("causationid"), first.source, first.subject) == (
        f"{topic}/0/0",
        f"/kafka/{topic}",
        topic,
    )
    assert (second.id, second.json()) == ("mine", {"order": "o", "total": 7})
    back = cluster.read("other")
    assert [record.value for record in back] == [body, body, b"{"]
    # Nobody asked for CloudEvents there: what was not changed has the headers that it came with.
    assert [record.headers for record in back] == [(), own, ()]


def test_events_of_a_format_that_nobody_knows_are_forwarded_bit_for_bit(cluster: Cluster) -> None:
    cluster.create("json", "structured", "unknown", "dead")
    strange = KafkaRecord(
        value=b"<event/>\xff",
        key=b"k",
        headers=(("content-type", b"application/cloudevents+xml"), ("app", None), ("app", b"2")),
    )
    cluster.produce("json", [strange])
    route = {"receive": "onJson", "send": "toStructured"}
    cluster.run(r={**route, "unknownFormat": {"forward": "toUnknown"}})
    assert cluster.read("unknown") == [strange]
    assert cluster.read("dead") == []
    cluster.produce("json", [strange])
    cluster.run(r=route)
    assert dead_letters(cluster)["unsupported-format"][1] == strange.value
