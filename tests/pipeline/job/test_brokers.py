"""Routes across brokers: Kafka and Pulsar in every direction, with a plain client of each on the far end."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest
from pulsar_project import PulsarSide

from penstock.brokers.kafka_offsets import KafkaOffsets
from penstock.brokers.kafka_records import publish, scan
from penstock.config import load
from penstock.embedded.gateway import Gateway
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.errors import CheckpointMismatch
from penstock.events import CloudEvent, Json
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.bindings.pulsar import PulsarBinding
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.deadletter import read_dead_letter
from penstock.pipeline.deadletters import read_letters, restore_letters
from penstock.pipeline.job import Job, JobOptions, Totals, Watcher, job_of
from penstock.record import KafkaRecord, PulsarMessage
from penstock.spark import events_from, read_events, read_records, rejects_from, to_records, write_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.slow]

_PATIENCE_MS = 60_000
_EVENT = {"headers": {"type": "object", "properties": {"ce_id": {"type": "string"}}}}
_OLD_EVENT = {"headers": {"type": "object", "properties": {"CE-EventID": {"type": "string"}}}}


@dataclass
class Shop:
    """A contract with channels on Kafka (in, out, dead) and on Pulsar (pin, pout, pdead)."""

    folder: Path
    kafka: Kafka
    pulsar: Pulsar
    gateway: str | None = None
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def topic(self, channel: str) -> str:
        local = f"{self.prefix}.{channel}"
        return f"persistent://public/shop/{local}" if channel.startswith("p") else local

    def create(self, *channels: str) -> Shop:
        admin = KafkaOffsets(self.kafka.client_options())
        rest = self.pulsar.admin_url + "/admin/v2"
        for channel in channels:
            if channel.startswith("p"):
                path = self.topic(channel).removeprefix("persistent://")
                _put(f"{rest}/namespaces/public/shop", {})
                _put(f"{rest}/persistent/{path}/partitions", 2)
            else:
                admin.create_topic(self.topic(channel), partitions=1, replicas=1, settings={})
        return self

    def write(self, dead: str, routes: Mapping[str, Mapping[str, Any]]) -> Shop:
        """Write contract, context and routes, all of which put dead letters into one channel."""
        told = {name: {**route, "delivery": {"deadLetterSink": dead}} for name, route in routes.items()}
        channels: dict[str, Any] = {}
        for name in ("in", "out", "dead", "pin", "pout", "pdead"):
            on_pulsar = name.startswith("p")
            channels[name] = {
                "address": f"{self.prefix}.{name}",
                "servers": [{"$ref": f"#/servers/{'pulsar' if on_pulsar else 'kafka'}"}],
                "messages": {"event": _OLD_EVENT if name == "pout" else _EVENT},
            }
            if on_pulsar:
                binding = {"namespace": "shop", "persistence": "persistent", "bindingVersion": "0.1.0"}
                channels[name]["bindings"] = {"pulsar": binding}
        operations = {
            f"{action}-{name}": {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
            for name in channels
            for action in ("receive", "send")
        }
        contract = {
            "asyncapi": "3.0.0",
            "info": {"title": "t", "version": "1.0.0"},
            "servers": {
                "kafka": {"host": "unused:9092", "protocol": "kafka"},
                "pulsar": {"host": "unused:6650", "protocol": "pulsar"},
            },
            "channels": channels,
            "operations": operations,
        }
        known: dict[str, Any] = {
            "servers": {
                "kafka": {"kind": "kafka", "address": self.kafka.bootstrap},
                "pulsar": {
                    "kind": "pulsar",
                    "address": self.pulsar.service_url,
                    "admin": self.pulsar.admin_url,
                },
            }
        }
        if self.gateway is not None:
            known["gateway"] = {"address": self.gateway}
        files = {"asyncapi": contract, "pipeline": {"routes": told}, "penstock": {"contexts": {"c": known}}}
        for name, value in files.items():
            (self.folder / f"{name}.yaml").write_text(json.dumps(value), encoding="utf-8")
        return self

    def run(self, spark: SparkSession, **settings: Any) -> dict[str, Totals]:
        pipeline = load_pipeline(self.folder / "pipeline.yaml", context=load(start=self.folder).context())
        with Job(pipeline, JobOptions(once=True, **settings)) as job:
            job.prepare()
            job.run(spark)
            return job.totals

    # Plain clients

    def on_kafka(self, channel: str) -> list[KafkaRecord]:
        return list(scan(self.kafka.client_options(), self.topic(channel)))

    def on_pulsar(self, client: Any, channel: str, count: int) -> list[Any]:
        return messages(client, self.topic(channel), count)


def messages(client: Any, topic: str, count: int) -> list[Any]:
    """Read so many messages by Pulsar's own client; one more would be noticed."""
    import pulsar

    first = pulsar.InitialPosition.Earliest
    consumer = client.subscribe(topic, f"test-{uuid.uuid4().hex}", initial_position=first)
    try:
        found = [consumer.receive(_PATIENCE_MS) for _ in range(count)]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(500)
        return found
    finally:
        consumer.close()


def _put(url: str, body: Any) -> None:
    from urllib.error import HTTPError

    raw = json.dumps(body).encode()
    request = Request(url, data=raw, method="PUT", headers={"Content-Type": "application/json"})
    try:
        urlopen(request, timeout=60).close()
    except HTTPError as exc:
        if exc.code != 409:  # it is there already
            raise


def as_message(got: Any) -> PulsarMessage:
    return PulsarMessage(payload=got.data(), properties=tuple(got.properties().items()))


def event(number: int, **more: str) -> CloudEvent:
    attributes = {"id": f"e-{number}", "source": "/shop", "type": "t", "datacontenttype": "application/json"}
    return CloudEvent({**attributes, **more}, Json({"n": number}))


@pytest.fixture
def client(pulsar: Pulsar) -> Iterator[Any]:
    import pulsar as plain

    client = plain.Client(pulsar.service_url, logger=plain.ConsoleLogger(plain.LoggerLevel.Error))
    yield client
    client.close()


def ids(events: Sequence[CloudEvent]) -> list[str]:
    return sorted(each.id for each in events)


def test_from_kafka_to_both_with_dead_letters_on_pulsar(
    tmp_path: Path, kafka: Kafka, pulsar: Pulsar, spark: SparkSession, client: Any
) -> None:
    shop = Shop(tmp_path, kafka, pulsar).create("in", "out", "pout", "pin", "pdead")
    shop.write(
        "pdead",
        {
            "both": {"receive": "receive-in", "send": ["send-out", "send-pout"]},
            "new": {
                "receive": "receive-in",
                "send": "send-pin",
                "where": "subject = 'a'",
                "mode": "structured",
            },
        },
    )
    good = [
        KafkaBinding().encode(event(number, subject="ab"[number % 2], n="5"), key=b"\xff%d" % number)
        for number in range(6)
    ]
    beside = (("app", b"\xff"), ("app", b"twice"), ("nothing", None))
    records = [KafkaRecord(**{**_fields(record), "headers": record.headers + beside}) for record in good]
    records.append(KafkaRecord(value=b"not an event", key=b"bad"))
    publish(
        kafka.client_options(), (KafkaRecord(**{**_fields(r), "topic": shop.topic("in")}) for r in records)
    )

    (totals,) = shop.run(spark).values()
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_dead"]) == (7, 15, 1)

    same = sorted(f"e-{number}" for number in range(6))
    assert ids([KafkaBinding().decode(record) for record in shop.on_kafka("out")]) == same
    old = shop.on_pulsar(client, "pout", 6)
    assert ids([PulsarBinding().decode(as_message(got)) for got in old]) == same
    by_id = {got.properties()["CE-EventID"]: got for got in old}
    first = by_id["e-0"]
    assert first.properties()["CE-CloudEventsVersion"] == "0.1"
    assert first.properties()["CE-X-N"] == '"5"'
    assert (first.data(), first.properties()["app"]) == (b'{"n":0}', "twice")
    assert first.properties()["kafka~b~app"] == "/w=="  # no text: the escape of the mapping
    assert first.partition_key() == "/zA="  # spec 001: the key, which is no text, in base64
    assert abs(first.event_timestamp() - first.publish_timestamp()) < 60_000
    new = [as_message(got) for got in shop.on_pulsar(client, "pin", 3)]
    assert ids([PulsarBinding().decode(message) for message in new]) == ["e-0", "e-2", "e-4"]
    assert "content-type" in dict(new[0].properties)  # profile 1.0, structured
    (letter,) = (PulsarBinding().decode(as_message(got)) for got in shop.on_pulsar(client, "pdead", 1))
    dead = read_dead_letter(letter)
    assert (dead.code, dead.record.key, dead.record.value) == ("not-a-cloudevent", b"bad", b"not an event")


def _fields(record: KafkaRecord) -> dict[str, Any]:
    return {"key": record.key, "value": record.value, "headers": record.headers}


@pytest.fixture(scope="module")
def gateway(pulsar: Pulsar) -> Iterator[Gateway]:
    flags = ("--groups-namespace", f"public/__routes_{uuid.uuid4().hex[:8]}")
    with Gateway(pulsar, options=flags) as server:
        yield server


def test_from_pulsar_to_kafka_and_to_pulsar_in_every_dialect_with_a_group(
    tmp_path: Path, kafka: Kafka, pulsar: Pulsar, gateway: Gateway, spark: SparkSession, client: Any
) -> None:
    shop = Shop(tmp_path, kafka, pulsar, gateway.bootstrap).create("out", "dead", "pin", "pout")
    shop.write(
        "dead",
        {
            "home": {"receive": "receive-pin", "send": "send-out", "dialects": ["sniffed"]},
            "on": {
                "receive": "receive-pin",
                "send": "send-pout",
                "where": "subject = 'a'",
                "profile": "1.0",
            },
        },
    )
    _send_every_dialect(client, shop.topic("pin"))
    (totals,) = shop.run(spark, group="routes").values()
    assert (totals.counts["n_in"], totals.counts["n_dead"]) == (6, 1)

    found = {KafkaBinding().decode(record).id: record for record in shop.on_kafka("out")}
    assert sorted(found) == ["new", "old", "sniffed", "structured", "written"]
    old = KafkaBinding().decode(found["old"])
    assert (found["old"].key, old.subject, old.get("n")) == (b"key", "a", "5")
    assert dict(found["old"].headers)["app"] == b"x"
    onward = [as_message(got) for got in shop.on_pulsar(client, "pout", 2)]
    assert ids([PulsarBinding().decode(message) for message in onward]) == ["new", "old"]
    assert {"ce_specversion", "ce_subject"} <= {name for message in onward for name, _ in message.properties}
    (letter,) = (KafkaBinding().decode(record) for record in shop.on_kafka("dead"))
    dead = read_dead_letter(letter)
    assert (dead.code, dead.record.topic) == ("invalid-event", shop.topic("pin"))
    assert dead.record.timestamp == 1_700_000_000_000  # spec 001: the event time is the record's

    # The group is the subscription that keeps unread data and shows the progress.
    assert PulsarSide(pulsar, shop.topic("pin"), partitions=2).backlog("routes") == 0
    again = shop.run(spark, group="routes")
    assert [totals.counts["n_in"] for totals in again.values()] == [0]
    _check_frames(shop, spark, client)
    _check_letters(shop, gateway.bootstrap)


class Notes(Watcher):
    """Keeps what a job tells."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize("engine", ["spark", "loop"])
def test_a_server_of_kafka_that_is_a_gateway_is_routed_by_the_kernel_at_least_once(
    project: Callable[..., Any], gateway: Gateway, spark: SparkSession, client: Any, engine: str
) -> None:
    options = {"bootstrap.servers": gateway.bootstrap}
    behind = SimpleNamespace(bootstrap=gateway.bootstrap, secured=False, client_options=lambda: options)
    shop = project(servers={"kafka": behind}).create(partitions=2).write({"where": "data.n < 15"})
    shop.produce(KafkaBinding().encode(event(number), key=b"k%d" % number) for number in range(20))
    shop.produce([KafkaRecord(value=b"poison", key=b"bad")])
    told = Notes()
    for _ in range(2):  # The second run has nothing to do: the marks are in a group of the gateway.
        with job_of(shop.pipeline(), JobOptions(once=True, engine=engine)) as job:
            job.watch(told)
            job.prepare()
            job.run(spark)
            (promise,) = {each.guarantee for each in job.plan}
    assert promise.startswith("at least once on kafka")
    assert any("because kafka has no transactions" in text for text in told.texts)
    (letter,) = (read_dead_letter(KafkaBinding().decode(record)) for record in shop.read("dead"))
    assert (letter.record.key, letter.record.value) == (b"bad", b"poison")
    # By Pulsar's own client.
    found = messages(client, f"persistent://public/default/{shop.topic('out')}", 15)
    events = [PulsarBinding().decode(as_message(got)) for got in found]
    assert ids(events) == sorted(f"e-{number}" for number in range(15))
    assert {got.partition_key() for got in found} == {f"k{number}" for number in range(15)}


def test_a_topic_that_is_made_again_behind_a_gateway_is_not_read_from_the_middle(
    project: Callable[..., Any], gateway: Gateway
) -> None:
    options = {"bootstrap.servers": gateway.bootstrap}
    behind = SimpleNamespace(bootstrap=gateway.bootstrap, secured=False, client_options=lambda: options)
    shop = project(servers={"kafka": behind}).create().write()
    event = KafkaBinding().encode(CloudEvent({"id": "e", "source": "/s", "type": "t"}, b"x"))
    shop.produce([event] * 3)
    assert shop.run(None, engine="loop").counts["n_in"] == 3
    admin, topic = shop.admin(), shop.topic("in")
    before = admin.topic_id(topic)
    admin.delete_topic(topic)
    admin.create_topic(topic, partitions=1, replicas=1, settings={})
    assert admin.topic_id(topic) != before
    shop.produce([event] * 5)
    with pytest.raises(CheckpointMismatch) as caught:
        shop.run(None, engine="loop")
    assert "deleted and made again" in str(caught.value.why)
    assert shop.run(None, engine="loop", fresh_checkpoint=True).counts["n_in"] == 5
    assert shop.run(None, engine="loop").counts["n_in"] == 0


def _remake(shop: Shop, channel: str) -> None:
    """Delete a topic on Pulsar and create it again by Pulsar's own admin API, whoever reads it."""
    path = shop.topic(channel).removeprefix("persistent://")
    url = f"{shop.pulsar.admin_url}/admin/v2/persistent/{path}/partitions?force=true"
    urlopen(Request(url, method="DELETE"), timeout=60).close()
    shop.create(channel)


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(True, id="a gateway of the job", marks=pytest.mark.soak),
        pytest.param(False, id="one of the context"),
    ],
)
def test_a_topic_that_is_made_again_on_pulsar_is_not_read_from_the_middle(
    tmp_path: Path,
    kafka: Kafka,
    pulsar: Pulsar,
    gateway: Gateway,
    spark: SparkSession,
    client: Any,
    own: bool,
) -> None:
    shop = Shop(tmp_path, kafka, pulsar, None if own else gateway.bootstrap).create("out", "dead", "pin")
    shop.write("dead", {"home": {"receive": "receive-pin", "send": "send-out"}})
    topic = shop.topic("pin")
    _send(client, topic, range(4))
    (totals,) = shop.run(spark).values()
    assert totals.counts["n_in"] == 4
    _remake(shop, "pin")
    _send(client, topic, range(10, 20))
    with pytest.raises(CheckpointMismatch) as caught:
        shop.run(spark)
    assert "the topic was deleted and made again: its partition 0 was created" in str(caught.value.why)
    (totals,) = shop.run(spark, fresh_checkpoint=True).values()
    assert totals.counts["n_in"] == 10
    assert ids([KafkaBinding().decode(record) for record in shop.on_kafka("out")]) == sorted(
        f"e-{number}" for number in (*range(4), *range(10, 20))
    )
    (totals,) = shop.run(spark).values()
    assert totals.counts["n_in"] == 0


@pytest.mark.soak
def test_another_pulsar_behind_the_same_name_is_refused(
    tmp_path: Path, kafka: Kafka, pulsar: Pulsar, spark: SparkSession, client: Any
) -> None:
    shop = Shop(tmp_path, kafka, pulsar).create("out", "dead", "pin")
    shop.write("dead", {"home": {"receive": "receive-pin", "send": "send-out"}})
    _send(client, shop.topic("pin"), range(4))
    shop.run(spark)
    with Pulsar() as other:
        there = replace(shop, pulsar=other).create("pin")
        there.write("dead", {"home": {"receive": "receive-pin", "send": "send-out"}})
        with pytest.raises(CheckpointMismatch) as caught:
            there.run(spark)
    assert "it belongs to cluster" in str(caught.value.why)


def _send(client: Any, topic: str, numbers: Iterable[int]) -> None:
    producer = client.create_producer(topic)
    for number in numbers:
        message = PulsarBinding().encode(event(number))
        producer.send(message.payload, properties=dict(message.properties))
    producer.close()


def _check_letters(shop: Shop, gateway: str) -> None:
    """A dead letter on Kafka is restored to Pulsar, where it came from, with all that it had."""
    kafka, through = shop.kafka.client_options(), {"bootstrap.servers": gateway}
    (letter,) = read_letters(kafka, shop.topic("dead")).letters
    restore_letters([letter], to=through, topic=None, marks=kafka, keep_time=True)
    assert read_letters(kafka, shop.topic("dead")).letters == ()
    came = [record for record in scan(through, shop.topic("pin")) if record.timestamp == 1_700_000_000_000]
    assert [record.headers for record in came] == [letter.letter.record.headers] * 2


def _check_frames(shop: Shop, spark: SparkSession, client: Any) -> None:
    """The same by penstock.spark: read from Pulsar, write to Pulsar in the contract's profile."""
    context, contract = load(start=shop.folder).context(), shop.folder / "asyncapi.yaml"
    told: dict[str, Any] = {"context": context, "stream": False}
    events = read_events(spark, contract, "receive-pin", dialects=["sniffed"], **told)
    assert sorted(row.id for row in events.collect()) == ["new", "old", "sniffed", "structured", "written"]
    records = read_records(spark, contract, "receive-pin", **told)
    assert [row.code for row in rejects_from(records, pulsar=True).select("code").collect()].count(
        "not-a-cloudevent"
    ) == 1  # without the dialect, what has no property is no event
    chosen = events.where("id = 'structured'")
    write_events(chosen, contract, "send-pout", context=context, key="id")
    found = [dict(as_message(got).properties) for got in shop.on_pulsar(client, "pout", 3)]
    assert [each["CE-CloudEventsVersion"] for each in found if each.get("CE-EventID") == "structured"] == [
        "0.1"
    ]
    back = events_from(to_records(chosen, profile="0.1"), pulsar=True).collect()
    assert [row.id for row in back] == ["structured"]


def _send_every_dialect(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    old = {"CE-CloudEventsVersion": "0.1", "CE-EventID": "old", "CE-Source": "/s", "CE-EventType": "t"}
    new = {"ce_specversion": "1.0", "ce_id": "new", "ce_source": "/s", "ce_type": "t", "ce_subject": "a"}
    written = PulsarBinding().encode(event(1, id="written"))
    structured = b'{"cloudEventsVersion":"0.1","eventID":"structured","source":"/s","eventType":"t","data":1}'
    sniffed = b'{"specversion":"1.0","id":"sniffed","source":"/s","type":"t"}'
    moment = {"event_timestamp": 1_700_000_000_000}
    beside = {"CE-X-Subject": "a", "CE-X-N": "5", "app": "x"}
    producer.send(b"{}", properties={**old, **beside}, partition_key="key")
    producer.send(b"{}", properties=new)
    producer.send(written.payload, properties=dict(written.properties))
    producer.send(structured, properties={"CE-ContentType": "application/cloudevents+json"})
    producer.send(sniffed)
    producer.send(b"{}", properties={**old, "CE-EventTime": "yesterday"}, **moment)
    producer.close()
