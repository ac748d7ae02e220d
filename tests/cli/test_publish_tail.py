"""`penstock publish` and `penstock tail` on the real Kafka and Pulsar."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.brokers.kafka_offsets import KafkaOffsets
from penstock.brokers.kafka_records import publish
from penstock.brokers.pulsar_admin import PulsarAdmin, PulsarSchema, PulsarTopicState
from penstock.cli.app import main
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from penstock.embedded.kafka import Kafka
    from penstock.embedded.pulsar import Pulsar

pytestmark = pytest.mark.server

CONTRACT = """\
asyncapi: 3.0.0
info: {title: shop, version: 1.0.0}
servers:
  kafka: {host: 'KAFKA', protocol: kafka}
  pulsar: {host: 'PULSAR', protocol: pulsar}
channels:
  orders:
    address: orders-NAME
    servers: [{$ref: '#/servers/kafka'}]
    messages:
      large: {contentType: application/cloudevents+json}
  parcels:
    address: parcels-NAME
    servers: [{$ref: '#/servers/pulsar'}]
operations:
  onOrder: {action: receive, channel: {$ref: '#/channels/orders'}}
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def name(kafka: Kafka, pulsar: Pulsar, isolated_home: Path) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    found = uuid.uuid4().hex[:8]
    (isolated_home / ".git").mkdir()
    text = CONTRACT.replace("KAFKA", kafka.bootstrap).replace("NAME", found)
    text = text.replace("PULSAR", pulsar.service_url.removeprefix("pulsar://"))
    (isolated_home / "asyncapi.yaml").write_text(text)
    (isolated_home / "penstock.yaml").write_text(
        "contexts:\n  dev:\n    servers:\n"
        f"      kafka: {{kind: kafka, address: '{kafka.bootstrap}'}}\n"
        f"      pulsar: {{kind: pulsar, address: '{pulsar.service_url}'}}\n"
    )
    admin = AdminClient(kafka.client_options())
    admin.create_topics([NewTopic(f"orders-{found}", 2, 1)])[f"orders-{found}"].result(30)
    with PulsarAdmin({"url": pulsar.admin_url}) as pulsar_admin:
        pulsar_admin.create_topic(f"persistent://public/default/parcels-{found}", 1)
    return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def tail(run: Run, *words: str) -> list[dict[str, object]]:
    code, out, err = run("tail", *words, "--until-end", "-o", "json")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_an_event_by_flags_through_kafka(name: str, run: Run) -> None:
    flags = ("--type", "placed", "--id", "1", "--data", '{"total": 5}', "--key", "ada", "-A", "rank=7")
    code, _, err = run("publish", "onOrder", *flags, "-H", "trace=x")
    assert (code, f"1 sent to orders-{name} on kafka" in err) == (0, True)
    (shown,) = tail(run, "orders")
    assert shown["key"] == "ada"
    assert shown["event"] == {
        "specversion": "1.0",
        "id": "1",
        "source": "/penstock/publish",
        "type": "placed",
        "datacontenttype": "application/json",
        "rank": "7",
        "data": {"total": 5},
    }
    # The contract declares structured mode, so that is what was written.
    code, out, _ = run("tail", f"orders-{name}", "--server", "kafka", "--until-end", "--raw")
    assert ["content-type", "application/cloudevents+json; charset=utf-8"] in json.loads(out)["headers"]


def test_lines_and_conditions(name: str, run: Run, isolated_home: Path) -> None:
    lines = [
        json.dumps({"specversion": "1.0", "id": str(n), "source": "/s", "type": "t", "data": {"n": n}})
        for n in range(20)
    ]
    (isolated_home / "events.jsonl").write_text("\n".join(lines))
    assert run("publish", "orders", "events.jsonl")[0] == 0
    found = [shown["event"]["id"] for shown in tail(run, "orders", "--where", "data.n >= 17")]  # type: ignore[index]
    assert sorted(found) == ["17", "18", "19"]
    assert tail(run, "orders", "--type", "other") == []
    assert len(tail(run, "orders", "--from", "-5")) == 5
    assert len(tail(run, "orders", "--from", "10m")) == 20
    code, out, _ = run("tail", "orders", "--from", "beginning", "--limit", "3")
    assert (code, len(out.splitlines())) == (0, 3)


def test_nothing_is_hidden(name: str, kafka: Kafka, run: Run) -> None:
    publish(kafka.client_options(), [KafkaRecord(value=b"\xff", topic=f"orders-{name}", partition=0)])
    assert run("publish", "orders", "--tombstone", "--key", "ada")[0] == 0
    reasons = {str(shown["reason"]) for shown in tail(run, "orders")}
    assert "a null value, no event" in reasons
    assert len(reasons) == 2
    code, out, _ = run("tail", "orders", "--until-end")
    assert out.count("not an event: ") == 2


def test_a_bad_line_sends_nothing(name: str, run: Run, isolated_home: Path) -> None:
    (isolated_home / "bad.jsonl").write_text(
        '{"specversion":"1.0","id":"1","source":"/s","type":"t"}\n{"id":"2"}\n'
    )
    code, _, err = run("publish", "orders", "bad.jsonl")
    assert code == 2
    assert "line 2" in err
    assert "nothing was sent" in err
    assert tail(run, "orders") == []


@pytest.mark.parametrize("channel", ["orders", "parcels"])
def test_lines_of_a_pipe_are_sent_as_they_come(name: str, run: Run, channel: str) -> None:
    command = [sys.executable, "-m", "penstock", "publish", channel, "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as running:
        assert running.stdin is not None
        assert running.stderr is not None
        try:
            for number in (1, 2):
                running.stdin.write(b'{"specversion":"1.0","id":"%d","source":"/s","type":"t"}\n' % number)
                # It ends when the event is there, and the pipe is still open.
                code, out, err = run("tail", channel, "--from", "beginning", "--limit", str(number))
                assert (code, len(out.splitlines())) == (0, number), err
            running.stdin.write(b"nonsense\n")
            running.stdin.close()
            said = running.stderr.read().decode()
            assert running.wait(30) == 2, said
        finally:
            running.kill()
    assert "line 3" in said
    assert "1 lines are no events; 2 others were sent" in said


def test_a_pipe_can_be_read_to_its_end_first(name: str, run: Run) -> None:
    lines = b'{"specversion":"1.0","id":"1","source":"/s","type":"t"}\nnonsense\n'
    command = [sys.executable, "-m", "penstock", "publish", "orders", "-", "--all-or-nothing"]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=60, check=False)
    assert (done.returncode, b"nothing was sent" in done.stderr) == (2, True)
    assert tail(run, "orders") == []


def test_events_through_pulsar(name: str, pulsar: Pulsar, run: Run) -> None:
    import pulsar as client

    for number in range(3):
        words = ("--type", "sent", "--id", str(number), "--data", f'{{"n": {number}}}', "--key", "k")
        code, _, err = run("publish", "parcels", *words)
        assert code == 0, err
    topic = f"persistent://public/default/parcels-{name}"
    foreign = client.Client(pulsar.service_url)
    producer = foreign.create_producer(
        topic, batching_enabled=True, compression_type=client.CompressionType.LZ4
    )
    for number in range(3, 6):
        properties = {"ce_specversion": "1.0", "ce_id": str(number), "ce_source": "/s", "ce_type": "sent"}
        producer.send_async(b"x", lambda _result, _id: None, properties=properties)
    producer.flush()
    foreign.close()
    shown = tail(run, "parcels")
    assert [each["event"]["id"] for each in shown] == ["0", "1", "2", "3", "4", "5"]  # type: ignore[index]
    assert shown[0]["key"] == "k"
    assert [each["event"]["id"] for each in tail(run, "parcels", "--from", "-2")] == ["4", "5"]  # type: ignore[index]
    assert run("publish", f"parcels-{name}", "--server", "pulsar", "--tombstone", "--key", "k")[0] == 0
    assert tail(run, "parcels", "--from", "-1")[0]["reason"] == "a null value, no event"


def test_a_topic_that_takes_only_producers_with_its_schema(
    name: str, pulsar: Pulsar, run: Run, isolated_home: Path
) -> None:
    namespace = f"public/strict-{name}"
    topic = f"persistent://{namespace}/orders"
    document = (isolated_home / "asyncapi.yaml").read_text()
    (isolated_home / "asyncapi.yaml").write_text(
        document.replace(
            "channels:\n",
            "channels:\n"
            "  strict:\n"
            "    address: orders\n"
            "    servers: [{$ref: '#/servers/pulsar'}]\n"
            f"    bindings: {{pulsar: {{namespace: strict-{name}, persistence: persistent}}}}\n"
            "    messages:\n"
            "      order:\n"
            "        payload:\n"
            "          schemaFormat: application/vnd.apache.avro;version=1.11.0\n"
            "          schema: {type: record, name: Order, fields: [{name: id, type: string}]}\n",
            1,
        )
    )
    with PulsarAdmin({"url": pulsar.admin_url}) as admin:
        admin.create_namespace(namespace)
        admin.create_topic(topic, 2)
        assert admin._rest.call("POST", f"/namespaces/{namespace}/schemaValidationEnforced", True).ok
        schema = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
        admin.set_schema(topic, PulsarSchema(type="AVRO", definition=schema))
        flags = (
            "--type",
            "com.shop.order",
            "--source",
            "/t",
            "--data",
            "\x02a",
            "--content-type",
            "avro/binary",
        )
        assert run("publish", "strict", *flags)[0] == 0
        code, _, told = run("publish", topic, "--server", "pulsar", *flags)
        assert code == 1
        assert "declare the Avro record of the topic" in told
        state = admin.topics([topic])[topic]
        assert isinstance(state, PulsarTopicState) and state.schema is not None
        assert state.schema.version == 0  # the same schema, no further version


def test_places_that_are_not_there(name: str, run: Run) -> None:
    code, _, err = run("tail", "nowhere", "--until-end")
    assert (code, "on which server is nowhere?" in err) == (2, True)
    code, _, err = run("tail", "parcels", "--from", "17", "--until-end")
    assert (code, "Pulsar has no offsets" in err) == (2, True)
    code, _, err = run("tail", "orders", "--from", "yesterday")
    assert (code, "is no place in a topic" in err) == (2, True)


def lines_of(*sizes: int) -> str:
    return "\n".join(
        json.dumps({"specversion": "1.0", "id": f"e{n}", "source": "/s", "type": "t", "data": "x" * size})
        for n, size in enumerate(sizes)
    )


def alter(kafka: Kafka, topic: str, **settings: str) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    KafkaOffsets(kafka.client_options()).change_settings(topic, named)


def test_an_event_that_its_topic_refuses_is_named(
    name: str, run: Run, kafka: Kafka, isolated_home: Path
) -> None:
    (isolated_home / "events.jsonl").write_text(lines_of(10, 10))
    alter(kafka, f"orders-{name}", cleanup_policy="compact")
    code, _, err = run("publish", "orders", "events.jsonl")
    assert code == 1
    # Without keys they may go to different partitions, which answer in any order.
    assert any(f"event '{each}' of '/s' was refused (0 written)" in err for each in ("e0", "e1"))
    assert "key" in err
    assert run("publish", "orders", "events.jsonl", "--key", "k")[0] == 0


def test_of_several_events_the_one_that_is_too_large_is_named(
    name: str, run: Run, kafka: Kafka, isolated_home: Path
) -> None:
    (isolated_home / "events.jsonl").write_text(lines_of(10, 600, 10, 9000, 10))
    # Together they are too large as well, and only one of them is by itself.
    alter(kafka, f"orders-{name}", max_message_bytes="1000")
    code, _, err = run("publish", "orders", "events.jsonl", "--key", "k")
    assert code == 1
    assert "event 'e3' of '/s' was refused (3 written)" in err
    assert "max.message.bytes" in err
    assert [shown["event"]["id"] for shown in tail(run, "orders")] == ["e0", "e1", "e2"]  # type: ignore[index]


def test_an_event_that_pulsar_does_not_take_is_named(name: str, run: Run, isolated_home: Path) -> None:
    (isolated_home / "events.jsonl").write_text(lines_of(10, 6_000_000, 10))
    code, _, err = run("publish", "parcels", "events.jsonl")
    assert code == 1
    assert "event 'e1' of '/s' was refused (1 written)" in err
    assert [shown["event"]["id"] for shown in tail(run, "parcels")] == ["e0"]  # type: ignore[index]
