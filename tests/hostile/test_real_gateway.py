"""Hostile clients of a real gateway on a real Pulsar: an honest producer and consumer beside them go on."""

from __future__ import annotations

import socket
import struct
import time
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.embedded.gateway import Gateway
from penstock.embedded.pulsar import Pulsar

pytestmark = pytest.mark.server
WITHIN = 20.0
"""Seconds for an honest record, there and back, on a busy machine; a gateway that stands takes minutes."""


@pytest.fixture(scope="module")
def gateway(pulsar: Pulsar) -> Iterator[Gateway]:
    with Gateway(pulsar) as found:
        yield found


class Honest:
    """Produces a record and reads it again, on connections that stay open."""

    def __init__(self, gateway: Gateway, topic: str) -> None:
        common = {"bootstrap.servers": gateway.bootstrap, "log_level": 0}
        self._topic = topic
        self._producer = Producer(common | {"linger.ms": 0})
        self._consumer = Consumer(common | {"group.id": topic, "enable.auto.commit": False})
        self._sent = 0

    def turn(self, within: float = WITHIN) -> float:
        began = time.monotonic()
        value = str(self._sent).encode()
        self._producer.produce(self._topic, value)
        assert self._producer.flush(within) == 0
        if not self._sent:
            self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        self._sent += 1
        while time.monotonic() - began < within:
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                assert message.value() == value
                return time.monotonic() - began
        raise AssertionError(f"record {value!r} did not come back within {within:g} s")

    def close(self) -> None:
        self._consumer.close()


def connect(gateway: Gateway) -> socket.socket:
    host, _, port = gateway.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_an_honest_client_is_served_beside_hostile_ones(gateway: Gateway) -> None:
    honest = Honest(gateway, "hostile")
    honest.turn(60.0)
    open_sockets: list[socket.socket] = []
    # Announced and never sent: together more than the gateway's budget.
    for _ in range(10):
        open_sockets.append(connect(gateway))
        open_sockets[-1].sendall(bytes.fromhex("06400000 00000000"))
    honest.turn()
    # Fetches whose answers nobody reads.
    fetch = struct.pack(">hhih", 1, 4, 1, -1) + struct.pack(">iiiib", -1, 0, 1, 1 << 26, 0)
    fetch += struct.pack(">ih", 1, 7) + b"hostile" + struct.pack(">iiqi", 1, 0, 0, 1 << 26)
    for _ in range(20):
        open_sockets.append(connect(gateway))
        open_sockets[-1].sendall((struct.pack(">i", len(fetch)) + fetch) * 100)
    honest.turn()
    # Half-open connections, garbage, and clients that go away in the middle.
    for number in range(200):
        each = connect(gateway)
        each.sendall(b"\0\0" if number % 2 else b"\xff" * 64)
        if number % 4:
            each.close()
        else:
            open_sockets.append(each)
    honest.turn()
    assert honest.turn() < WITHIN
    with urllib.request.urlopen(f"{gateway.metrics_url}/readyz", timeout=20) as answer:
        assert answer.read() == b"ready\n"
    for each in open_sockets:
        each.close()
    honest.turn()
    honest.close()
