"""The first contact with a Kafka cluster, and what is written, with a client that does what a test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.brokers import kafka_contact
from penstock.brokers.kafka_contact import Contact
from penstock.brokers.kafka_records import publish
from penstock.errors import ClusterError, Unreachable
from penstock.record import KafkaRecord


class Client:
    """A client of librdkafka: acknowledges the first `acknowledged` records, and then is silent."""

    def __init__(self, *troubles: int, acknowledged: int = 0) -> None:
        self.troubles, self.left = troubles, acknowledged
        self.asked = self.waiting = 0
        self.options: dict[str, Any] = {}

    def list_topics(self, *_: object, timeout: float) -> object:
        self.asked += 1
        if self.troubles:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return object()

    def poll(self, _: float) -> None:
        for code in self.troubles:
            self.options["error_cb"](KafkaError(code))

    def produce(self, *_: object, on_delivery: Callable[[Any, Any], None], **__: object) -> None:
        if self.left:
            self.left -= 1
            on_delivery(None, None)
        else:
            self.waiting += 1

    def flush(self, _: float) -> int:
        return self.waiting


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client], Client]:
    """Give the client to whoever makes one."""

    def install(client: Client) -> Client:
        def make(_kind: str, options: Any, _name: str) -> Client:
            client.options = dict(options)
            return client

        monkeypatch.setattr(kafka_contact, "make_client", make)
        return client

    return install


def test_wrong_credentials_are_told_at_once(use: Callable[[Client], Client]) -> None:
    client = use(Client(KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN))
    with pytest.raises(ClusterError, match="user name and password") as caught:
        Contact("Consumer", {"bootstrap.servers": "h:1"}, name="prod", seconds=60.0).metadata()
    assert not isinstance(caught.value, Unreachable)
    assert caught.value.next is not None and "password" in caught.value.next
    assert client.asked == 1


def test_one_that_is_away_is_asked_again(use: Callable[[Client], Client]) -> None:
    client = use(Client(KafkaError._TRANSPORT))
    with pytest.raises(Unreachable, match="cannot reach prod"):
        Contact("Consumer", {"bootstrap.servers": "h:1"}, name="prod", seconds=0.01).metadata()
    assert client.asked > 1


@pytest.mark.parametrize("acknowledged", [0, 2])
def test_a_record_without_an_acknowledgement_is_not_written(
    use: Callable[[Client], Client], acknowledged: int
) -> None:
    use(Client(acknowledged=acknowledged))
    records = [KafkaRecord(value=b"x", topic="t")] * (acknowledged + 1)
    with pytest.raises(Unreachable, match=f"only {acknowledged} records were written"):
        publish({"bootstrap.servers": "h:1"}, records, patience=0.01)


def test_what_is_acknowledged_is_counted(use: Callable[[Client], Client]) -> None:
    use(Client(acknowledged=2))
    assert publish({"bootstrap.servers": "h:1"}, [KafkaRecord(value=b"x", topic="t")] * 2) == 2
