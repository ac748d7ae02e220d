"""An older librdkafka, compressed, and kcat if the machine has it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from penstock.embedded.home import penstock_home

pytestmark = pytest.mark.server

PINNED = Path(__file__).parent / "older-clients.txt"
COUNT, SIZE = 500, 1000
CLIENT = """
import json, sys
from confluent_kafka import Consumer, Producer, TopicPartition, libversion

bootstrap, topic, codec, count, size = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
failed, counted = [], []
producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50,
                     "statistics.interval.ms": 100,
                     "stats_cb": lambda text: counted.append(json.loads(text))})
for number in range(count):
    value = b"%06d" % number + b"x" * size
    producer.produce(topic, value, b"k%d" % number, partition=0, headers=[("h", b"v")],
                     on_delivery=lambda error, message: failed.append(str(error)) if error else None)
left = producer.flush(30)
seen = len(counted)
while len(counted) < seen + 2:
    producer.poll(0.1)
alone = {"group.id": "alone", "enable.auto.commit": False}
consumer = Consumer({"bootstrap.servers": bootstrap, **alone})
consumer.assign([TopicPartition(topic, 0, 0)])
found = []
while len(found) < count and (got := consumer.consume(count - len(found), 15)):
    found += [[m.offset(), m.key().decode(), m.value()[:6].decode(), len(m.value())] for m in got]
print(json.dumps({"version": libversion()[0], "left": left, "failed": failed, "found": found,
                  "sent_bytes": counted[-1]["tx_bytes"]}))
"""


@pytest.fixture(scope="module")
def older() -> dict[str, str]:
    """The environment of a Python that has the older client: fetched once, by hash, beside the jars."""
    stamp = hashlib.sha256(PINNED.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = penstock_home() / "test-clients" / stamp
    if not folder.is_dir():
        fresh = folder.with_name(f"{stamp}.{uuid.uuid4().hex}")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--target", str(fresh)]
        done = subprocess.run([*pip, "-r", str(PINNED)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        try:
            fresh.rename(folder)
        except OSError:
            # Another run was first: its folder is as good.
            assert folder.is_dir()
            shutil.rmtree(fresh)
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_an_older_librdkafka(process: Any, older: dict[str, str], codec: str) -> None:
    import confluent_kafka

    topic = f"older-{uuid.uuid4().hex[:8]}"
    words = [process.bootstrap, topic, codec, str(COUNT), str(SIZE)]
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, *words],
        capture_output=True,
        text=True,
        env=older,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert tuple(map(int, told["version"].split("."))) < tuple(
        map(int, confluent_kafka.libversion()[0].split("."))
    )
    assert (told["left"], told["failed"]) == (0, [])
    assert told["found"] == [[number, f"k{number}", f"{number:06d}", SIZE + 6] for number in range(COUNT)]
    # An older librdkafka leaves compression out, silently, if it believes the broker to be too old.
    assert (told["sent_bytes"] < COUNT * SIZE / 2) == (codec != "none")


def test_kcat(process: Any) -> None:
    kcat = shutil.which("kcat") or shutil.which("kafkacat")
    if kcat is None:
        pytest.skip("kcat is not on this machine's PATH")
    topic = f"kcat-{uuid.uuid4().hex[:8]}"
    lines = "".join(f"k{number}:v{number}\n" for number in range(100))

    def run(*words: str, given: str = "") -> str:
        where = [kcat, "-b", process.bootstrap, "-t", topic]
        done = subprocess.run(
            [*where, *words], input=given, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    run("-P", "-K:", "-z", "lz4", given=lines)
    assert run("-C", "-p", "0", "-o", "beginning", "-e", "-q", "-K:") == lines
