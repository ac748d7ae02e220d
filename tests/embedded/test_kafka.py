"""The embedded Kafka: what it carries, what it does not do by itself, and its errors before it starts."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from penstock.embedded import kafka as module
from penstock.embedded.kafka import Kafka
from penstock.errors import StartupError

MakeTopic = Callable[..., str]

HEADERS = [("a", b"1"), ("empty", b""), ("a", b"2"), ("null", None), ("", b"no name"), ("bytes", b"\xff\x00")]


@pytest.fixture
def make_topic(kafka: Kafka) -> MakeTopic:
    def make(**config: str) -> str:
        name = f"embedded-{uuid.uuid4().hex}"
        admin = AdminClient(kafka.client_options())
        admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(60)
        return name

    return make


def consume(kafka: Kafka, topic: str, count: int, **options: str) -> list[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer(
        kafka.client_options() | {"group.id": topic, "auto.offset.reset": "earliest"} | options
    )
    consumer.subscribe([topic])
    messages: list[confluent_kafka.Message] = []
    try:
        while len(messages) < count:
            found = consumer.consume(count, timeout=60)
            assert found, f"{len(messages)} of {count} after a minute"
            messages += found
        assert [message.error() for message in messages] == [None] * count
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return messages


@pytest.mark.server
def test_records_and_headers_travel_unchanged(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = make_topic()
    sent = [(b"key", b"value", HEADERS), (None, b"", []), (b"", None, [("x", None)])]
    producer = confluent_kafka.Producer(kafka.client_options() | {"enable.idempotence": True})
    for key, value, headers in sent:
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(60) == 0
    received = consume(kafka, topic, len(sent))
    assert [(m.key(), m.value(), m.headers() or []) for m in received] == sent


@pytest.mark.server
@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_stored_by_the_broker(
    kafka: Kafka, make_topic: MakeTopic, compression: str
) -> None:
    # compression.type of the topic makes the broker compress again: its codec must be there.
    topic = make_topic(**{"compression.type": compression})
    producer = confluent_kafka.Producer(kafka.client_options())
    values = [b"%d %s" % (n, b"x" * 1000) for n in range(20)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    assert [message.value() for message in consume(kafka, topic, len(values))] == values


@pytest.mark.server
def test_the_newer_group_protocol_works(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = confluent_kafka.Producer(kafka.client_options())
    producer.produce(topic, b"value")
    assert producer.flush(60) == 0
    (message,) = consume(kafka, topic, 1, **{"group.protocol": "consumer"})
    assert message.value() == b"value"


@pytest.mark.server
def test_a_transaction_is_seen_when_it_is_committed(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = confluent_kafka.Producer(kafka.client_options() | {"transactional.id": topic})
    producer.init_transactions(60)
    for value, end in ((b"aborted", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(60) == 0
        end(60)
    (message,) = consume(kafka, topic, 1, **{"isolation.level": "read_committed"})
    assert message.value() == b"kept"


@pytest.mark.server
def test_no_topic_makes_itself(kafka: Kafka) -> None:
    missing = f"embedded-{uuid.uuid4().hex}"
    admin = AdminClient(kafka.client_options())
    assert admin.list_topics(missing, timeout=60).topics[missing].error is not None
    assert missing not in admin.list_topics(timeout=60).topics


@pytest.mark.server
def test_it_is_the_version_it_says(kafka: Kafka) -> None:
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient(kafka.client_options())
    settings = admin.describe_configs([resource])[resource].result(60)
    assert settings["auto.create.topics.enable"].value == "false"
    assert settings["process.roles"].value == "broker,controller"
    assert f"Kafka version: {module.KAFKA_VERSION}" in kafka.log.read_text()


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"admin": "x"}', b"null"])
def test_passwords_that_cannot_be_read(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "conf" / "passwords.json"
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(StartupError, match="passwords of this Kafka cannot be read") as caught:
        Kafka(data=tmp_path, secured=True).client_options()
    assert caught.value.where == str(file)


def test_formatting_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_args: object, **_options: object) -> None:
        raise subprocess.TimeoutExpired("java", 120)

    monkeypatch.setattr(module.subprocess, "run", run)
    with pytest.raises(StartupError, match="was not formatted within 120 s"):
        module._storage_tool("", tmp_path / "server.properties", [])


def test_ids_are_what_kafka_takes() -> None:
    ids = {module._kafka_uuid() for _ in range(500)}
    assert len(ids) == 500
    assert {len(text) for text in ids} == {22}
    assert not [text for text in ids if text.startswith("-")]
