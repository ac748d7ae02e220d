"""What a connection does with brokers that lie, hang up, keep silent or ask to be left alone."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.brokers.kafka_raw.calls import METADATA as METADATA_CALL
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.connection import _is_granted
from penstock.brokers.kafka_raw.settings import Settings
from penstock.config.secret import Reference
from penstock.errors import ClusterError, KafkaRefused, PenstockError, Unreachable, WireError

VERSIONS, METADATA, HANDSHAKE, AUTHENTICATE = 18, 3, 17, 36
Open = Callable[..., Cluster]
QUICK = {"deadline": 0.3, "topic_timeout": 0.3, "request_timeout": 0.5, "connect_timeout": 2.0}


def test_the_cluster_is_learned_from_any_broker(broker: Any, open_cluster: Open) -> None:
    cluster = open_cluster(broker)
    assert (cluster.cluster_id, cluster.partitions("t"), cluster.transactional) == ("cluster", 2, True)
    assert cluster.leader("t", 1).node == 1


def test_a_buffer_that_the_system_would_cut_is_left_to_grow_by_itself() -> None:
    assert _is_granted(4096)
    assert not _is_granted(2**30)


@pytest.mark.parametrize("size", [-1, 0, 3, 2**31 - 1])
def test_a_frame_of_a_size_that_cannot_be_is_refused(broker: Any, open_cluster: Open, size: int) -> None:
    broker.raw = lambda correlation, body: struct.pack(">i", size) + body
    with pytest.raises(WireError, match="announced an answer"):
        open_cluster(broker, **QUICK).partitions("t")


def test_an_answer_to_another_request_is_refused(broker: Any, open_cluster: Open) -> None:
    broker.raw = lambda correlation, body: struct.pack(">ii", 4 + len(body), correlation + 1) + body
    with pytest.raises(WireError, match="another request"):
        open_cluster(broker, **QUICK).partitions("t")


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_an_answer_that_ends_early_is_refused(broker: Any, open_cluster: Open, cut: int) -> None:
    broker.answers[METADATA] = lambda _: broker.metadata()[:cut]
    with pytest.raises(WireError):
        open_cluster(broker, **QUICK).partitions("t")


def test_answers_with_any_byte_changed_raise_only_what_is_ours(broker: Any, open_cluster: Open) -> None:
    chance = random.Random(7)
    cluster = open_cluster(broker, **QUICK | {"topic_timeout": 0.0})

    def mutated(_: bytes) -> bytes:
        data = bytearray(broker.metadata())
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        return bytes(data)

    broker.answers[METADATA] = mutated
    for _ in range(300):
        try:
            # A mutated throttle time is obeyed, for a while: take a new connection each time.
            cluster.close()
            cluster.partitions("t", refresh=True)
        except PenstockError:
            pass


@pytest.mark.parametrize(("host", "port"), [("a" * 300, 9), ("a..b", 9), ("", 9), ("h", 0), ("h", 70_000)])
def test_an_address_that_cannot_be_is_told(broker: Any, open_cluster: Open, host: str, port: int) -> None:
    at = struct.pack(">h", len(host)) + host.encode() + struct.pack(">i", port)
    broker.answers[METADATA] = lambda _: broker.metadata().replace(broker.address, at)
    cluster = open_cluster(broker, **QUICK)
    with pytest.raises((WireError, Unreachable)):
        cluster.partitions("t")
        cluster.ask(1, METADATA_CALL, (bytes(5),), lambda answer: None)


def test_more_elements_than_an_answer_needs_are_refused(broker: Any, open_cluster: Open) -> None:
    head = broker.metadata()[:4] + struct.pack(">i", 0) + struct.pack(">hi", -1, 0)
    broker.answers[METADATA] = lambda _: head + struct.pack(">i", 3_000_000) + bytes(6_000_000)
    with pytest.raises(WireError, match="3000000 elements"):
        open_cluster(broker, **QUICK | {"request_timeout": 30.0}).partitions("t")


def test_a_broker_that_hangs_up_is_asked_again(broker: Any, open_cluster: Open) -> None:
    answers = iter([None, None])
    broker.answers[METADATA] = lambda _: next(answers, broker.metadata())
    assert open_cluster(broker, topic_timeout=10.0).partitions("t") == 2
    assert broker.count(METADATA) == 3


def test_a_broker_that_keeps_silent_is_given_up(broker: Any, open_cluster: Open) -> None:
    broker.raw = lambda correlation, body: b""
    began = time.monotonic()
    with pytest.raises(Unreachable, match="does not answer"):
        open_cluster(broker, **QUICK).partitions("t")
    assert time.monotonic() - began < 5


def test_a_login_has_the_time_of_the_connect_and_no_more(broker: Any, open_cluster: Open) -> None:
    # Each answer comes in time for a request, and all of them together too late for the login.
    def slowly(answer: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def answered(body: bytes) -> bytes:
            time.sleep(0.4)
            return answer(body)

        return answered

    broker.answers[VERSIONS] = slowly(lambda _: broker.versions())
    broker.answers[HANDSHAKE] = slowly(lambda _: struct.pack(">hi", 0, 0))
    broker.answers[AUTHENTICATE] = slowly(lambda _: struct.pack(">hhiq", 0, -1, 0, 0))
    login = {"mechanism": "PLAIN", "username": "u", "password": "p", "request_timeout": 30.0}
    patient = open_cluster(broker, **login, connect_timeout=30.0, deadline=0.0)
    assert patient.cluster_id == "cluster"
    hasty = open_cluster(broker, **login, connect_timeout=1.0, deadline=0.0)
    began = time.monotonic()
    with pytest.raises(Unreachable, match="does not answer"):
        assert hasty.cluster_id
    assert time.monotonic() - began < 15


def test_a_connection_outlives_the_time_of_its_login(broker: Any, open_cluster: Open) -> None:
    def slowly(_: bytes) -> bytes:
        time.sleep(0.1)
        return bytes(broker.metadata())

    broker.answers[METADATA] = slowly
    cluster = open_cluster(broker, connect_timeout=1.0)
    began = time.monotonic()
    while time.monotonic() - began < 1.3:
        assert cluster.partitions("t", refresh=True) == 2
    assert broker.count(VERSIONS) == 1


def test_a_broker_that_never_logs_anybody_in_is_given_up_in_time(broker: Any, open_cluster: Open) -> None:
    broker.raw = lambda correlation, body: b""
    began = time.monotonic()
    with pytest.raises(Unreachable, match="does not answer"):
        assert open_cluster(broker, connect_timeout=0.5, request_timeout=60.0, deadline=0.0).cluster_id
    assert time.monotonic() - began < 30


def test_a_large_request_is_sent_where_the_system_has_no_hint_for_more() -> None:
    code = (
        "import socket; del socket.MSG_MORE\n"
        "from penstock.brokers.kafka_raw.address import Address\n"
        "from penstock.brokers.kafka_raw.calls import PRODUCE\n"
        "from penstock.brokers.kafka_raw.connection import Connection\n"
        "from penstock.brokers.kafka_raw.settings import Settings\n"
        "ours, theirs = socket.socketpair()\n"
        "connection = Connection(ours, Address('h', 1), Settings(bootstrap=(Address('h', 1),)))\n"
        "connection.send(PRODUCE, (bytes(40_000), bytes(40_000)))\n"
        "connection.close()\n"
        "print(sum(map(len, iter(lambda: theirs.recv(65536), b''))))"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 80_000


def test_nobody_there_is_told_with_the_address(open_cluster: Open) -> None:
    class Nobody:
        bootstrap = "127.0.0.1:1"

    with pytest.raises(Unreachable, match="127.0.0.1:1"):
        open_cluster(Nobody(), **QUICK).partitions("t")


def test_a_version_that_the_broker_does_not_have_is_named(broker: Any, open_cluster: Open) -> None:
    broker.answers[VERSIONS] = lambda _: struct.pack(">hihhh", 0, 1, METADATA, 9, 13)
    with pytest.raises(KafkaRefused, match="Metadata v7") as caught:
        open_cluster(broker, **QUICK).partitions("t")
    assert "9 to 13" in str(caught.value)


def test_a_topic_that_comes_late_is_waited_for(broker: Any, open_cluster: Open) -> None:
    codes = iter([3, 5])
    broker.answers[METADATA] = lambda _: broker.metadata(code=next(codes, 0))
    cluster = open_cluster(broker)
    assert cluster.partitions("t") == 2


def test_silence_that_is_asked_for_is_kept(broker: Any, open_cluster: Open) -> None:
    cluster = open_cluster(broker)
    broker.answers[METADATA] = lambda _: struct.pack(">i", 300) + broker.metadata()[4:]
    cluster.refresh()
    cluster.refresh()
    first, second = (at for key, at, _ in broker.requests if key == METADATA)
    assert second - first >= 0.3


# Login


def login(broker: Any, mechanism: str = "PLAIN") -> Cluster:
    options = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "me",
        "sasl.password": "hunter2",
    }
    return Cluster(Settings.of(options, **QUICK))


def test_plain_sends_name_and_password(broker: Any) -> None:
    broker.answers[HANDSHAKE] = lambda _: struct.pack(">hi", 0, 0)
    broker.answers[AUTHENTICATE] = lambda _: struct.pack(">hhiq", 0, -1, 0, 0)
    with login(broker) as cluster:
        assert cluster.partitions("t") == 2
    (token,) = (body for key, _, body in broker.requests if key == AUTHENTICATE)
    assert token[4:] == b"\0me\0hunter2"


def from_file(broker: Any, path: Path, **more: Any) -> Cluster:
    """A cluster whose password is in a file."""
    options = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": Reference(f"${{file:{path}}}", "test", path.parent)(),
    }
    return Cluster(Settings.of(options, **{**QUICK, **more}))


def tokens(broker: Any) -> list[bytes]:
    return [body[4:].rpartition(b"\0")[2] for key, _, body in broker.requests if key == AUTHENTICATE]


def test_a_password_in_a_file_is_read_again_for_each_connection(broker: Any, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("first")
    broker.answers[HANDSHAKE] = lambda _: struct.pack(">hi", 0, 0)
    broker.answers[AUTHENTICATE] = lambda _: struct.pack(">hhiq", 0, -1, 0, 0)
    with from_file(broker, tmp_path / "password") as cluster:
        cluster.refresh()
        (tmp_path / "password").write_text("second")
        cluster.close()
        cluster.refresh()
    assert tokens(broker) == [b"first", b"second"]


def test_a_password_that_worked_before_is_tried_again_until_the_file_is_written(
    broker: Any, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("first")

    def answer(body: bytes) -> bytes:
        if body.endswith(b"second"):
            return struct.pack(">hhiq", 0, -1, 0, 0)
        if len(tokens(broker)) == 3:
            (tmp_path / "password").write_text("second")
        return struct.pack(">hhi", 58, -1, 0)

    broker.answers[HANDSHAKE] = lambda _: struct.pack(">hi", 0, 0)
    broker.answers[AUTHENTICATE] = answer
    with from_file(broker, tmp_path / "password", proven=True, deadline=20.0) as cluster:
        assert cluster.partitions("t") == 2
    assert tokens(broker) == [b"first"] * 3 + [b"second"]


@pytest.mark.parametrize("proven", [True, False])
def test_a_password_that_never_worked_or_never_changes_is_wrong(
    broker: Any, tmp_path: Path, proven: bool
) -> None:
    (tmp_path / "password").write_text("first")
    broker.answers[HANDSHAKE] = lambda _: struct.pack(">hi", 0, 0)
    broker.answers[AUTHENTICATE] = lambda _: struct.pack(">hhi", 58, -1, 0)
    with (
        from_file(broker, tmp_path / "password", proven=proven) as cluster,
        pytest.raises(Unreachable if proven else KafkaRefused) as caught,
    ):
        cluster.partitions("t")
    assert isinstance(caught.value, KafkaRefused) is not proven
    with login(broker) as cluster, pytest.raises(KafkaRefused, match="refused our login"):
        cluster.partitions("t")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_login_that_is_refused_tells_no_secret(broker: Any, mechanism: str) -> None:
    broker.answers[HANDSHAKE] = lambda _: struct.pack(">hi", 0, 0)
    broker.answers[AUTHENTICATE] = lambda _: struct.pack(">hhi", 58, -1, 0)
    with (
        login(broker, mechanism) as cluster,
        pytest.raises(KafkaRefused, match="refused our login") as caught,
    ):
        cluster.partitions("t")
    assert not caught.value.retriable
    assert "hunter2" not in str(caught.value)
    assert broker.count(AUTHENTICATE) == 1


def test_a_mechanism_that_the_broker_does_not_have_is_told_with_those_it_has(broker: Any) -> None:
    broker.answers[HANDSHAKE] = lambda _: struct.pack(">hih", 33, 1, 6) + b"GSSAPI"
    with login(broker) as cluster, pytest.raises(ClusterError, match="does not log in by PLAIN") as caught:
        cluster.partitions("t")
    assert "GSSAPI" in str(caught.value)
