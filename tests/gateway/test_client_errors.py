"""What a client does not get is in the log: once a kind, with its reason, and again when it goes on."""

from __future__ import annotations

import logging

import pytest

from penstock.gateway.client_errors import ClientErrors
from penstock.gateway.entities import entity
from penstock.gateway.told import Told
from penstock.testing import MemoryKafka
from penstock.wire.kafka import ErrorCode

CREATE_TOPICS, FETCH = 19, 1


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "penstock.gateway.clients")
    return caplog


def test_a_refusal_is_logged_once_with_its_reason(logged: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    errors = ClientErrors(clock)
    code = ErrorCode.INVALID_CONFIG
    for _ in range(5):
        errors.note("mirror", CREATE_TOPICS, [code, code], {code: "there is no setting x"})
    assert logged.messages == [
        "client mirror was answered INVALID_CONFIG by CreateTopics: there is no setting x"
    ]
    clock.now += 601
    errors.note("mirror", CREATE_TOPICS, [code], {})
    assert logged.messages[1].endswith("by CreateTopics, 4 times more since it was last logged")


def test_every_client_api_and_code_is_a_kind_of_its_own(logged: pytest.LogCaptureFixture) -> None:
    errors = ClientErrors()
    errors.note("a", CREATE_TOPICS, [ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_PARTITIONS], {})
    errors.note("b", CREATE_TOPICS, [ErrorCode.INVALID_CONFIG], {})
    errors.note("a", FETCH, [ErrorCode.OFFSET_OUT_OF_RANGE], {})
    assert len(logged.messages) == 4


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ],
)
def test_the_ordinary_course_of_the_protocol_is_not_logged(
    code: ErrorCode, logged: pytest.LogCaptureFixture
) -> None:
    ClientErrors().note("a", FETCH, [code], {})
    assert logged.messages == []


def test_what_is_remembered_is_bounded(
    logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.gateway.client_errors._KINDS", 10)
    errors = ClientErrors()
    for number in range(50):
        errors.note(f"client-{number}", FETCH, [ErrorCode.OFFSET_OUT_OF_RANGE], {})
    assert len(errors._kinds) == 10
    errors.note("client-49", FETCH, [ErrorCode.OFFSET_OUT_OF_RANGE], {})
    assert len(logged.messages) == 50


def test_the_reason_comes_from_the_answer() -> None:
    from kio.index import load_response_schema

    with Told() as codes:
        topic = {"name": "t", "error_code": ErrorCode.INVALID_CONFIG, "error_message": "no such setting"}
        entity(load_response_schema(CREATE_TOPICS, 5), {"topics": [topic]})
    assert codes == [ErrorCode.INVALID_CONFIG]
    assert codes.why == {int(ErrorCode.INVALID_CONFIG): "no such setting"}


def test_a_client_that_is_refused_is_named_in_the_log(logged: pytest.LogCaptureFixture) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    with MemoryKafka() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "client.id": "mover"})
        with pytest.raises(KafkaException):
            admin.create_topics([NewTopic("t", 1, config={"no.such": "1"})])["t"].result(30)
    assert any("client mover was answered" in text and "CreateTopics" in text for text in logged.messages)
