"""The Kafka admin client against real brokers, and its table of errors."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from penstock.brokers import kafka_admin
from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.brokers.kafka_contact import Contact
from penstock.brokers.kafka_layout import Setting, TopicLayout, TopicUsage
from penstock.embedded.kafka import Kafka
from penstock.errors import AccessDenied, ClusterError, ConfigError, Unreachable


@pytest.fixture
def topic() -> str:
    return f"admin-{uuid.uuid4().hex[:12]}"


@pytest.mark.server
def test_the_life_of_a_topic(kafka: Kafka, topic: str) -> None:
    admin = KafkaAdmin(kafka.client_options())
    admin.create_topic(topic, partitions=2, replicas=1, settings={"cleanup.policy": "compact"})
    cluster = admin.cluster()
    assert cluster.brokers == 1
    assert cluster.topics[topic] == TopicLayout(partitions=2, replicas=(1,))
    admin.add_partitions(topic, 3)
    admin.change_settings(topic, {"retention.ms": "5000"})
    settings = admin.settings([topic])[topic]
    assert settings["retention.ms"] == Setting(value="5000", source="topic")
    assert settings["cleanup.policy"] == Setting(value="compact", source="topic")
    assert settings["retention.bytes"] == Setting(value="-1", source="default")
    assert admin.cluster().topics[topic].partitions == 3
    admin.delete_topic(topic)
    assert topic not in admin.cluster().topics


@pytest.mark.server
def test_changes_are_seen_at_once(kafka: Kafka, topic: str) -> None:
    admin = KafkaAdmin(kafka.client_options())
    for number in range(40):  # without waiting one of twenty is seen too late
        name = f"{topic}-{number}"
        admin.create_topic(name, partitions=1, replicas=1, settings={})
        assert name in admin.cluster().topics
        admin.add_partitions(name, 2)
        assert admin.cluster().topics[name].partitions == 2
        admin.delete_topic(name)
        assert name not in admin.cluster().topics


class Slow(KafkaAdmin):
    """A cluster whose brokers show a change at the third look, or never."""

    def __init__(self, shown_after: int, *, seconds: float = 60.0) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1"}, connect_timeout=seconds)
        self.looks, self.shown_after = 0, shown_after
        self.topics: dict[str, int] = {"old": 1}
        self.made: dict[str, int] = dict(self.topics)
        self.config: dict[str, str] = {}

    def _finish(self, subject: str, request: Any, *args: Any, **_: Any) -> None:
        [asked] = args[0]
        if request == self._client.delete_topics:
            del self.made[asked]
        elif request == self._client.create_topics:
            self.made[asked.topic] = asked.num_partitions
        elif request == self._client.create_partitions:
            self.made[asked.topic] = asked.new_total_count
        self.config = {"retention.ms": "5000"}

    def _seen(self) -> bool:
        self.looks += 1
        return self.looks > self.shown_after

    def _by_name(self, topics: Sequence[str]) -> dict[str, TopicLayout]:
        shown = self.made if self._seen() else self.topics
        return {name: TopicLayout(partitions=shown[name], replicas=(1,)) for name in topics if name in shown}

    def _values(self, topic: str) -> dict[str, str]:
        return {"other": "1", **(self.config if self._seen() else {})}


CHANGES: Mapping[str, Callable[[KafkaAdmin], None]] = {
    "create": lambda admin: admin.create_topic("new", partitions=2, replicas=1, settings={}),
    "partitions": lambda admin: admin.add_partitions("old", 3),
    "settings": lambda admin: admin.change_settings("old", {"retention.ms": "5000"}),
    "delete": lambda admin: admin.delete_topic("old"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_waited_for_until_a_broker_shows_it(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_admin, "sleep", lambda seconds: None)
    admin = Slow(shown_after=3)
    CHANGES[change](admin)
    assert admin.looks == 4


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_never_shown_is_not_waited_for_for_ever(change: str) -> None:
    admin = Slow(shown_after=2**31, seconds=0.05)
    CHANGES[change](admin)
    assert admin.looks >= 1


@pytest.mark.server
def test_a_change_that_may_not_be_looked_at_is_made(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ClusterError("kafka refused: topic")

    monkeypatch.setattr(KafkaAdmin, "_by_name", refuse)
    KafkaAdmin(kafka.client_options()).create_topic(topic, partitions=3, replicas=1, settings={})
    monkeypatch.undo()
    assert KafkaAdmin(kafka.client_options()).cluster([topic]).topics[topic].partitions == 3


@pytest.mark.server
def test_numbers_are_left_to_the_broker(kafka: Kafka, topic: str) -> None:
    admin = KafkaAdmin(kafka.client_options())
    admin.create_topic(topic, partitions=None, replicas=None, settings={})
    assert admin.cluster([topic, "expected-but-not-there"]).topics[topic].partitions == 1


@pytest.mark.server
def test_settings_are_read_in_chunks(kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_admin, "CHUNK", 3)
    admin = KafkaAdmin(kafka.client_options())
    names = [f"{topic}-{'x' * number}" for number in range(8)]
    for name in names:
        admin.create_topic(name, partitions=1, replicas=1, settings={"retention.ms": f"{len(name)}000"})
    found = admin.settings(names)
    assert {name: found[name]["retention.ms"].value for name in names} == {n: f"{len(n)}000" for n in names}


@pytest.mark.server
def test_usage_counts_records_and_names_readers(kafka: Kafka, topic: str) -> None:
    admin = KafkaAdmin(kafka.client_options())
    admin.create_topic(topic, partitions=2, replicas=1, settings={})
    assert admin.usage(topic) == TopicUsage(records=0, groups=())
    producer = Producer(kafka.client_options())
    for number in range(5):
        producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(30) == 0
    group = f"group-{topic}"
    consumer = Consumer({**kafka.client_options(), "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    assert admin.usage(topic) == TopicUsage(records=5, groups=(group,))


@pytest.mark.server
def test_unknown_settings_are_found_without_a_topic(kafka: Kafka) -> None:
    admin = KafkaAdmin(kafka.client_options())
    asked = {"confluent.value.schema.validation": "true", "retention.ms": "1", "foo": "bar"}
    assert admin.unknown_settings(asked) == {"confluent.value.schema.validation", "foo"}
    assert not [name for name in admin.cluster().topics if "probe" in name]


@pytest.mark.server
@pytest.mark.parametrize(
    ("partitions", "replicas", "settings", "code"),
    [
        (1, 5, {}, "INVALID_REPLICATION_FACTOR"),
        (1, 1, {"foo": "bar"}, "INVALID_CONFIG"),
        (1, 1, {"retention.ms": "never"}, "INVALID_CONFIG"),
    ],
)
def test_a_refusal_carries_the_reason(
    kafka: Kafka, topic: str, partitions: int, replicas: int, settings: dict[str, str], code: str
) -> None:
    admin = KafkaAdmin(kafka.client_options(), name="staging")
    with pytest.raises(ClusterError, match=f"staging refused: topic {topic}") as refused:
        admin.create_topic(topic, partitions=partitions, replicas=replicas, settings=settings)
    assert code in (refused.value.why or "")
    assert refused.value.where == kafka.bootstrap
    assert refused.value.next
    assert not isinstance(refused.value, Unreachable)


@pytest.mark.server
def test_somebody_without_rights(secured_kafka: Kafka, topic: str) -> None:
    KafkaAdmin(secured_kafka.client_options("admin")).create_topic(
        topic, partitions=1, replicas=1, settings={}
    )
    guest = KafkaAdmin(secured_kafka.client_options("guest"))
    assert topic not in guest.cluster().topics
    seen = guest.cluster([topic])
    assert (topic in seen.topics, seen.hidden) == (False, {topic})
    for refused in (lambda: guest.settings([topic]), lambda: guest.delete_topic(topic)):
        with pytest.raises(AccessDenied, match="TOPIC_AUTHORIZATION_FAILED"):
            refused()


@pytest.mark.server
@pytest.mark.parametrize(
    ("change", "word"),
    [({"sasl.password": "wr0ng"}, "authentication"), ({"ssl.ca.location": ""}, "certificate")],
)
def test_credentials_that_are_wrong(secured_kafka: Kafka, change: dict[str, str], word: str) -> None:
    admin = KafkaAdmin({**secured_kafka.client_options(), **change}, connect_timeout=20)
    with pytest.raises(ClusterError, match=word) as refused:
        admin.cluster()
    assert not isinstance(refused.value, Unreachable)
    assert "of this server in the context" in (refused.value.next or "")
    assert "wr0ng" not in str(refused.value)


def test_nobody_there() -> None:
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, connect_timeout=0.5)
    with pytest.raises(Unreachable, match="Connection refused") as unreachable:
        admin.cluster()
    assert unreachable.value.exit_code == 5


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TIMED_OUT, Unreachable),
        (KafkaError.REQUEST_TIMED_OUT, Unreachable),
        (KafkaError._TRANSPORT, Unreachable),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AccessDenied),
        (KafkaError.POLICY_VIOLATION, ClusterError),
    ],
)
def test_errors_are_translated_by_the_table(code: int, kind: type[ClusterError]) -> None:
    contact = Contact("AdminClient", {"bootstrap.servers": "127.0.0.1:1"}, name="k")
    found = contact.error("topic x", KafkaError(code))
    assert type(found) is kind
    assert (found.where, bool(found.next)) == ("127.0.0.1:1", True)


@pytest.mark.parametrize(
    "options",
    [
        {"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"},
        {"security.protocol": "nonsense"},
        {"no.such.option": "x"},
    ],
)
def test_options_that_cannot_be_used(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="a client of staging cannot be made") as wrong:
        KafkaAdmin({"bootstrap.servers": "127.0.0.1:1", "sasl.password": "s3cret", **options}, name="staging")
    assert "s3cret" not in str(wrong.value)


@pytest.mark.server
def test_settings_of_a_topic_that_is_gone_are_left_out(kafka: Kafka, topic: str) -> None:
    admin = KafkaAdmin(kafka.client_options())
    admin.create_topic(topic, partitions=1, replicas=1, settings={})
    assert list(admin.settings([topic, f"{topic}-gone"])) == [topic]
