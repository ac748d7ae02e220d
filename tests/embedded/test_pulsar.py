"""The embedded Pulsar: the settings a gateway needs are on, and the cut jar list does all it must."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pulsar as pulsar_client
import pytest

from penstock.embedded.pulsar import PULSAR_VERSION, Pulsar

pytestmark = pytest.mark.server

COMPRESSIONS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
INTERCEPTORS = "org.apache.pulsar.common.intercept"


@pytest.fixture
def client(pulsar: Pulsar) -> Iterator[pulsar_client.Client]:
    opened = pulsar_client.Client(pulsar.service_url)
    yield opened
    opened.close()


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/embedded-{uuid.uuid4().hex}"


def admin(pulsar: Pulsar, path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(f"{pulsar.admin_url}/admin/v2/{path}", method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        body = answer.read()
    return json.loads(body) if body else None


def test_the_bookie_has_a_port_that_no_connection_gets(pulsar: Pulsar) -> None:
    sockets = psutil.Process(pulsar.pid).net_connections(kind="tcp")
    listening = {opened.laddr.port for opened in sockets if opened.status == psutil.CONN_LISTEN}
    assert len(listening) == 3, "broker, admin, bookie"
    assert max(listening) < 32768


def of_topic(topic: str, what: str) -> str:
    return f"{topic.replace('://', '/')}/{what}"


def values(client: pulsar_client.Client, topic: str, **options: bool) -> list[tuple[str, bytes]]:
    reader = client.create_reader(topic, pulsar_client.MessageId.earliest, **options)
    found = []
    while reader.has_message_available():
        message = reader.read_next(60_000)
        found.append((message.partition_key(), message.data()))
    return found


def test_the_settings_that_others_rely_on(pulsar: Pulsar) -> None:
    settings = admin(pulsar, "brokers/configuration/runtime")
    expected = {
        "brokerDeduplicationEnabled": "true",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "exposingBrokerEntryMetadataToClientEnabled": "true",
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
        "bindAddress": "127.0.0.1",
    }
    assert {name: settings[name] for name in expected} == expected
    assert f"{INTERCEPTORS}.AppendIndexMetadataInterceptor" in settings["brokerEntryMetadataInterceptors"]
    assert (
        f"{INTERCEPTORS}.AppendBrokerTimestampMetadataInterceptor"
        in settings["brokerEntryMetadataInterceptors"]
    )


def test_it_is_the_version_it_says(pulsar: Pulsar) -> None:
    with urllib.request.urlopen(f"{pulsar.admin_url}/admin/v2/brokers/version", timeout=60) as answer:
        assert answer.read().decode() == PULSAR_VERSION


def test_every_message_has_an_index_and_a_timestamp(
    pulsar: Pulsar, client: pulsar_client.Client, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"value") for _ in range(3)]
    for index, sent in enumerate(ids):
        url = f"{pulsar.admin_url}/admin/v2/{of_topic(topic, 'ledger')}/{sent.ledger_id()}"
        with urllib.request.urlopen(f"{url}/entry/{sent.entry_id()}", timeout=60) as answer:
            assert answer.headers["X-Pulsar-Broker-Entry-METADATA-index"] == str(index)
            assert answer.headers["X-Pulsar-Broker-Entry-METADATA-timestamp"]


def test_a_message_sent_twice_is_kept_once(client: pulsar_client.Client, topic: str) -> None:
    for value in (b"first", b"again"):
        producer = client.create_producer(topic, producer_name="same", batching_enabled=False)
        producer.send(value, sequence_id=7)
        producer.close()
    assert values(client, topic) == [("", b"first")]


def test_all_compressions_are_read_and_compacted(
    pulsar: Pulsar, client: pulsar_client.Client, topic: str, eventually: Callable[..., None]
) -> None:
    sent = []
    for compression in COMPRESSIONS:
        producer = client.create_producer(
            topic,
            compression_type=getattr(pulsar_client.CompressionType, compression),
            batching_enabled=True,
            batching_max_publish_delay_ms=50,
            block_if_queue_full=True,
        )
        for number in range(10):
            sent.append((f"{compression}-{number % 2}", b"%d " % number + b"x" * 500))
            producer.send_async(sent[-1][1], callback=None, partition_key=sent[-1][0])
        producer.flush()
        producer.close()
    assert values(client, topic) == sent

    # The broker opens every batch to compact it: here it needs each codec itself.
    admin(pulsar, of_topic(topic, "compaction"), "PUT")
    eventually(lambda: admin(pulsar, of_topic(topic, "compaction"))["status"] != "RUNNING", within=120)
    assert admin(pulsar, of_topic(topic, "compaction"))["status"] == "SUCCESS"
    # This client shows what was compacted out of a batch as a message without key and data.
    compacted = [(key, data) for key, data in values(client, topic, is_read_compacted=True) if key]
    assert sorted(compacted) == sorted(dict(sent).items())


def test_a_message_of_the_largest_size_is_one_entry(
    pulsar: Pulsar, client: pulsar_client.Client, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    largest = bytes(5 * 1024 * 1024 - 1024)
    producer.send(largest)
    producer.send(b"next")
    assert [len(data) for _, data in values(client, topic)] == [len(largest), 4]
    # Without room in the bookie's frame each try of the write makes one more ledger, without end.
    assert len(admin(pulsar, of_topic(topic, "internalStats"))["ledgers"]) == 1


def test_schemas_are_kept(pulsar: Pulsar, client: pulsar_client.Client, topic: str) -> None:
    class Order(pulsar_client.schema.Record):
        number = pulsar_client.schema.Integer()

    producer = client.create_producer(topic, schema=pulsar_client.schema.AvroSchema(Order))
    producer.send(Order(number=5))
    schema = admin(pulsar, f"schemas/{of_topic(topic, 'schema').removeprefix('persistent/')}")
    assert schema["type"] == "AVRO"
