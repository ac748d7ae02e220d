"""The first contact with a Kafka cluster, and what is written, with a client that does what a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.brokers import kafka_contact
from penstock.brokers.kafka_contact import Contact
from penstock.brokers.kafka_records import publish
from penstock.config.secret import Reference
from penstock.errors import AccessDenied, ClusterError, RecordRefused, Unreachable, UsageError
from penstock.record import KafkaRecord


class Client:
    """A client of librdkafka: acknowledges the first `acknowledged` records, and then is silent."""

    def __init__(self, *troubles: int, acknowledged: int = 0) -> None:
        self.troubles, self.left = troubles, acknowledged
        self.asked = self.waiting = self.waited = 0
        self.options: dict[str, Any] = {}
        self.logins: list[tuple[str, str]] = []

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.logins.append((username, password))

    def list_topics(self, *_: object, timeout: float) -> object:
        self.asked += 1
        if self.troubles:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return object()

    def poll(self, seconds: float) -> None:
        for code in self.troubles:
            self.options["error_cb"](KafkaError(code))
        if seconds:
            self.answer(seconds)

    def answer(self, seconds: float) -> None:
        self.waited += 1

    def __len__(self) -> int:
        return self.waiting

    def produce(self, *_: object, on_delivery: Callable[[Any, Any], None], **__: object) -> None:
        if self.left:
            self.left -= 1
            on_delivery(None, None)
        else:
            self.waiting += 1


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


class Ended(Client):
    """A producer that was ended for a missing right while the first request waited for its answer."""

    def poll(self, _: float) -> None:
        raise KafkaException(
            KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no idempotence", fatal=True)
        )


def test_a_client_that_ends_before_the_first_answer_says_why(use: Callable[[Client], Client]) -> None:
    use(Ended(KafkaError._TIMED_OUT))
    contact = Contact("Producer", {"bootstrap.servers": "h:1"}, name="prod")
    with pytest.raises(AccessDenied, match="no idempotence"):
        contact.require()
    with pytest.raises(AccessDenied, match="no idempotence"):
        contact.silence(1.0)


def test_a_login_that_was_refused_once_is_not_the_reason_of_a_later_outage(
    use: Callable[[Client], Client],
) -> None:
    client = use(Client(KafkaError._AUTHENTICATION))
    contact = Contact("AdminClient", {"bootstrap.servers": "h:1"}, name="prod", seconds=0.01)
    with pytest.raises(ClusterError, match="user name and password"):
        contact.metadata()
    client.troubles = ()
    contact.metadata()
    client.troubles = (KafkaError._TRANSPORT,)
    with pytest.raises(Unreachable, match="cannot reach prod"):
        contact.metadata()


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


def test_what_was_read_before_an_error_of_the_source_is_sent(use: Callable[[Client], Client]) -> None:
    client = use(Client())

    def records() -> Iterator[KafkaRecord]:
        yield KafkaRecord(value=b"x", topic="t")
        raise UsageError("a line is too long")

    with pytest.raises(UsageError, match="a line is too long"):
        publish({"bootstrap.servers": "h:1"}, records(), patience=0.01)
    assert client.waiting == 1
    assert client.waited


def test_what_is_acknowledged_is_counted(use: Callable[[Client], Client]) -> None:
    use(Client(acknowledged=2))
    assert publish({"bootstrap.servers": "h:1"}, [KafkaRecord(value=b"x", topic="t")] * 2) == 2


def test_a_password_that_was_written_anew_is_used_by_new_connections(
    use: Callable[[Client], Client], tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("old")
    password = Reference("${file:password}", "here", tmp_path)()
    client = use(Client())
    contact = Contact("AdminClient", {"sasl.username": "me", "sasl.password": password}, name="k")
    assert (client.options["sasl.password"], client.logins) == ("old", [])
    file.write_text("new")
    contact.require()
    contact.require()
    assert client.logins == [("me", "new")]
    file.write_text("newer")
    client.options["error_cb"](KafkaError(KafkaError._AUTHENTICATION))
    assert client.logins == [("me", "new"), ("me", "newer")]
    assert not contact.is_refused
    client.options["error_cb"](KafkaError(KafkaError._AUTHENTICATION))
    assert contact.is_refused


class Refusing(Client):
    """Collects records until one waits, as librdkafka does, and refuses the batch for the sake of some."""

    def __init__(self, *bad: bytes, code: int) -> None:
        super().__init__()
        self.bad, self.code = bad, code
        self.batch: list[tuple[bytes, Callable[[Any, Any], None]]] = []
        self.log: list[bytes] = []

    def produce(
        self, _topic: str, value: bytes, *_: object, on_delivery: Callable[[Any, Any], None], **__: object
    ) -> None:
        self.batch.append((value, on_delivery))

    def __len__(self) -> int:
        return len(self.batch)

    def answer(self, seconds: float) -> None:
        batch, self.batch = self.batch, []
        if any(value in self.bad for value, _ in batch):
            for _, answer in batch:
                answer(KafkaError(self.code), None)
            return
        for value, answer in batch:
            self.log.append(value)
            answer(None, None)


REFUSALS = [KafkaError.INVALID_RECORD, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_TIMESTAMP]


@pytest.mark.parametrize("code", REFUSALS)
def test_the_record_for_whose_sake_a_batch_is_refused_is_named(
    use: Callable[[Client], Client], code: int
) -> None:
    client = Refusing(b"c", code=code)
    use(client)
    records = [KafkaRecord(value=value, topic="t") for value in (b"a", b"b", b"c", b"d")]
    sent: list[KafkaRecord] = []
    with pytest.raises(RecordRefused, match=r"record b'c' was refused \(2 written\)") as caught:
        publish(
            {"bootstrap.servers": "h:1"},
            records,
            on_sent=sent.append,
            named=lambda record: f"record {record.value!r}",
        )
    assert caught.value.record is records[2]
    assert caught.value.next is not None
    assert (client.log, sent) == ([b"a", b"b"], records[:2])


def test_a_batch_that_is_only_too_large_as_a_whole_is_written_one_by_one(
    use: Callable[[Client], Client],
) -> None:
    client = Refusing(code=KafkaError.MSG_SIZE_TOO_LARGE)
    use(client)
    answer = client.answer

    def limited(seconds: float) -> None:
        client.bad = tuple(value for value, _ in client.batch) if len(client.batch) > 1 else ()
        answer(seconds)

    client.answer = limited  # type: ignore[method-assign]
    assert publish({"bootstrap.servers": "h:1"}, [KafkaRecord(value=b"x", topic="t")] * 3) == 3


def test_nothing_is_sent_behind_a_failure_while_records_are_sent_one_by_one(
    use: Callable[[Client], Client],
) -> None:
    """The batch is too large as a whole; then the broker goes away at the second record."""
    client = Refusing(code=KafkaError.MSG_SIZE_TOO_LARGE)
    use(client)
    answer = client.answer

    def failing(seconds: float) -> None:
        client.bad = tuple(value for value, _ in client.batch) if len(client.batch) > 1 else (b"b", b"d")
        client.code = KafkaError.MSG_SIZE_TOO_LARGE if len(client.batch) > 1 else KafkaError._MSG_TIMED_OUT
        answer(seconds)

    client.answer = failing  # type: ignore[method-assign]
    a, b, c, d = (KafkaRecord(value=value, topic="t") for value in (b"a", b"b", b"c", b"d"))
    records = iter((a, b, c, None, d))
    with pytest.raises(ClusterError, match="only 1 records were written"):
        publish({"bootstrap.servers": "h:1"}, records)
    assert client.log == [b"a"]
    assert list(records) == [d]


def test_the_error_that_ends_a_producer_is_told_and_not_what_it_does_to_others(
    use: Callable[[Client], Client],
) -> None:
    client = Refusing(b"a", code=KafkaError._PURGE_QUEUE)
    use(client)
    answer = client.answer

    def fenced(seconds: float) -> None:
        answer(seconds)
        raise KafkaException(KafkaError(KafkaError._FENCED, "another one took over", fatal=True))

    client.answer = fenced  # type: ignore[method-assign]
    with pytest.raises(ClusterError) as caught:
        publish({"bootstrap.servers": "h:1"}, [KafkaRecord(value=b"a", topic="t")])
    assert "another one took over" in str(caught.value.why)


class Gone(Ended):
    """A producer that has ended before the first record: it takes none, and tells why behind that."""

    def poll(self, seconds: float) -> None:
        if seconds:
            super().poll(seconds)

    def produce(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))


def test_a_producer_that_takes_no_record_is_asked_why(use: Callable[[Client], Client]) -> None:
    use(Gone())
    with pytest.raises(AccessDenied, match="no idempotence"):
        publish({"bootstrap.servers": "h:1"}, [KafkaRecord(value=b"a", topic="t")])
