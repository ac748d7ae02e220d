"""What was begun by earlier routes holds records with a schema id that nobody knows: the job gets on."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.brokers.kafka_offsets import KafkaOffsets
from penstock.brokers.kafka_records import scan
from penstock.config import load
from penstock.contract.schema_ids import SchemaId, encode_payload
from penstock.embedded.kafka import Kafka
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.job import JobOptions, job_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.embedded.registry import Registry

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]

HEADERS = {"specversion": "1.0", "source": "/shop", "type": "com.shop.order"}
PLACES = {"avro": "kafka", "json": "kafka", "dead": "kafka", "away": "west"}


@pytest.fixture(scope="module")
def west() -> Iterator[Kafka]:
    with Kafka() as server:
        yield server


class Orders:
    """Six orders with an unknown schema id, routed to a cluster that is also read and to another one."""

    def __init__(self, shop: Any, servers: dict[str, Kafka], registry: Registry) -> None:
        self.folder, self.servers = shop.folder, servers
        self.prefix = shop.prefix = f"{uuid.uuid4().hex[:8]}."
        shop.write()
        path = self.folder / "asyncapi.yaml"
        contract = json.loads(path.read_text())
        channels = contract["channels"]
        channels["away"] = {**channels["json"], "address": self.topic("away")}
        contract["channels"] = {
            name: {**channels[name], "servers": [{"$ref": f"#/servers/{place}"}]}
            for name, place in PLACES.items()
        }
        contract["servers"]["west"] = {"host": "unused:9092", "protocol": "kafka"}
        contract["operations"] = {
            f"{verb}{name.title()}": {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
            for name in PLACES
            for verb, action in (("on", "receive"), ("to", "send"))
        }
        path.write_text(json.dumps(contract))
        known = {name: {"kind": "kafka", "address": each.bootstrap} for name, each in servers.items()}
        context = {"servers": known, "registry": {"address": registry.url}}
        (self.folder / "penstock.yaml").write_text(json.dumps({"contexts": {"test": context}}))
        for name, place in PLACES.items():
            admin = AdminClient(servers[place].client_options())
            for done in admin.create_topics([NewTopic(self.topic(name), 1, 1)]).values():
                done.result(60)

    def topic(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def produce(self) -> None:
        producer = Producer(self.servers["kafka"].client_options())
        value = encode_payload(SchemaId(number=999_999), b"\x02a")
        for number in range(6):
            own = {f"ce_{name}": text.encode() for name, text in HEADERS.items()}
            headers = [*own.items(), ("ce_id", b"%d" % number), ("content-type", b"application/avro")]
            producer.produce(self.topic("avro"), value, b"key", headers=headers)
        assert producer.flush(60) == 0

    def run(self, subject: str, engine: str, spark: SparkSession | None = None, **options: Any) -> Any:
        route = {"receive": "onAvro", "send": ["toJson", "toAway"], "set": {"subject": f"'{subject}'"}}
        document = {"name": "orders", "engine": engine, "routes": {"r": route}}
        (self.folder / "pipeline.yaml").write_text(json.dumps(document))
        pipeline = load_pipeline(self.folder / "pipeline.yaml", context=load(start=self.folder).context())
        with job_of(pipeline, JobOptions(once=True, **options)) as job:
            job.prepare()
            job.run(spark)
            (totals,) = job.totals.values()
            return totals.counts["n_in"], totals.counts["n_dead"]

    def letters(self) -> int:
        options = self.servers["kafka"].client_options()
        return sum(1 for _ in scan(options, self.topic("dead")))


@pytest.fixture
def orders(shop: Any, kafka: Kafka, west: Kafka, registry: Registry) -> Orders:
    made = Orders(shop, {"kafka": kafka, "west": west}, registry)
    made.produce()
    return made


def test_a_batch_of_spark_is_finished_although_a_schema_is_not_known(
    orders: Orders, spark: SparkSession
) -> None:
    run: Callable[[str], Any] = partial(orders.run, engine="spark", spark=spark)
    assert run("old") == (6, 6)
    checkpoints = orders.folder / ".penstock" / "checkpoints"
    (mark,) = checkpoints.glob("kafka-*.json")
    commits = checkpoints / mark.stem / "commits"
    # As after a crash before the batch was over, with less on the cluster that is read.
    for name in ("0", ".0.crc"):
        (commits / name).unlink(missing_ok=True)
    group = json.loads(mark.read_text())["query"]
    admin = KafkaOffsets(orders.servers["kafka"].client_options())
    admin.commit(group, orders.topic("avro"), {0: 2})
    run("new")
    assert (commits / "0").exists()
    assert orders.letters() == 6 + 4, "what was open is done on the cluster that was behind"
    assert admin.committed(group, orders.topic("avro")) == {0: 6}


def test_a_loop_finishes_what_was_begun_although_a_schema_is_not_known(orders: Orders) -> None:
    group = f"g-{orders.prefix}"
    run: Callable[[str], Any] = partial(orders.run, engine="loop", group=group)
    assert run("old") == (6, 6)
    admin = KafkaOffsets(orders.servers["kafka"].client_options())
    admin.commit(group, orders.topic("avro"), {0: 2})
    run("new")
    assert orders.letters() == 6 + 4
    assert admin.committed(group, orders.topic("avro")) == {0: 6}
