"""`penstock topics` and `penstock groups` on the real Kafka, the real Pulsar, and a gateway between."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from penstock.brokers.kafka_groups import KafkaGroups
from penstock.brokers.pulsar_admin import PulsarAdmin
from penstock.cli.app import main

if TYPE_CHECKING:
    from penstock.embedded.gateway import Gateway
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
    bindings: {kafka: {partitions: 3}}
  refunds:
    address: refunds-NAME
    servers: [{$ref: '#/servers/kafka'}]
  parcels:
    address: parcels-NAME
    servers: [{$ref: '#/servers/pulsar'}]
operations:
  onOrder: {action: receive, channel: {$ref: '#/channels/orders'}}
"""
WITHIN = 60.0

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def gateway(pulsar: Pulsar) -> Iterator[Gateway]:
    from penstock.embedded.gateway import Gateway

    # A cluster of its own: other tests run gateways on the same Pulsar, and would share its partitions.
    options = ("--groups-namespace", "public/__kafka_cli", "--cursor-period", "1")
    with Gateway(pulsar, options=options) as server:
        yield server


@pytest.fixture
def name(kafka: Kafka, pulsar: Pulsar, gateway: Gateway, isolated_home: Path) -> str:
    """A project with topics of its own: ten records on Kafka in two partitions, twelve behind the gateway."""
    found = uuid.uuid4().hex[:8]
    (isolated_home / ".git").mkdir()
    text = CONTRACT.replace("KAFKA", kafka.bootstrap).replace("NAME", found)
    text = text.replace("PULSAR", pulsar.service_url.removeprefix("pulsar://"))
    (isolated_home / "asyncapi.yaml").write_text(text)
    (isolated_home / "penstock.yaml").write_text(
        "contexts:\n  dev:\n    servers:\n"
        f"      kafka: {{kind: kafka, address: '{kafka.bootstrap}'}}\n"
        f"      pulsar: {{kind: pulsar, address: '{pulsar.service_url}', admin: '{pulsar.admin_url}'}}\n"
        f"    gateway: {{address: '{gateway.bootstrap}'}}\n"
    )
    KafkaGroups(kafka.client_options()).create_topic(f"orders-{found}", partitions=2, replicas=1, settings={})
    with PulsarAdmin({"url": pulsar.admin_url}) as admin:
        admin.create_topic(f"persistent://public/default/parcels-{found}", 2)
    write(kafka.bootstrap, f"orders-{found}", 10)
    write(gateway.bootstrap, f"parcels-{found}", 12)
    return found


def write(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(WITHIN) == 0


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def rows(run: Run, *words: str) -> list[dict[str, Any]]:
    code, out, err = run(*words, "-o", "json")
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)
    return found


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    KafkaGroups({"bootstrap.servers": bootstrap}, connect_timeout=WITHIN).commit(group, topic, offsets)


def eventually(check: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WITHIN
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


# groups


def test_everybody_who_reads_is_listed(
    name: str, kafka: Kafka, gateway: Gateway, pulsar: Pulsar, run: Run
) -> None:
    import pulsar as foreign

    commit(kafka.bootstrap, f"billing-{name}", f"orders-{name}", {0: 2, 1: 5})
    commit(gateway.bootstrap, f"depot-{name}", f"parcels-{name}", {0: 6, 1: 0})
    client = foreign.Client(pulsar.service_url)
    subscription = client.subscribe(
        f"persistent://public/default/parcels-{name}",
        f"audit-{name}",
        initial_position=foreign.InitialPosition.Earliest,
    )
    try:
        # The cursor of the group behind the gateway comes within a period.
        eventually(lambda: [row["entries"] for row in rows(run, "groups", f"depot-{name}")] == [1])
        found = {row["group"]: row for row in rows(run, "groups", f"*-{name}")}
    finally:
        subscription.close()
        client.close()
    told = {
        group: tuple(row[key] for key in ("server", "kind", "state", "members", "topics", "lag", "entries"))
        for group, row in found.items()
    }
    assert told == {
        f"billing-{name}": ("kafka", "classic", "empty", 0, 1, 3, None),
        f"depot-{name}": ("gateway", "classic", "empty", 0, 1, 6, 1),
        f"audit-{name}": ("pulsar", "subscription", "active", 2, 1, None, 2),
    }
    assert list(found) == [f"depot-{name}", f"billing-{name}", f"audit-{name}"], "the worst first"


def test_a_committed_offset_beside_its_pulsar_cursor(name: str, gateway: Gateway, run: Run) -> None:
    group = f"depot/{name} 1"  # a name that Pulsar's internal statistics write as in a URL
    for offset, cursor, entries in ((0, ":-1", 1), (6, ":0", 0)):
        commit(gateway.bootstrap, group, f"parcels-{name}", {0: offset})

        def placed(offset: int = offset, cursor: str = cursor, entries: int = entries) -> bool:
            """Pulsar is asked three times for a row; the cursor may move between."""
            [found] = rows(run, "groups", group)
            [part] = found["partitions"]
            assert (part["committed"], part["end"], part["lag"]) == (offset, 6, 6 - offset)
            placed = (part["messages"], part["entries"]) == (6 - offset, entries)
            return placed and part["cursor"].endswith(cursor)

        eventually(placed)


def test_members_and_their_partitions(name: str, kafka: Kafka, run: Run) -> None:
    with_member = consumer(kafka.bootstrap, f"busy-{name}", f"orders-{name}")
    try:
        [found] = rows(run, "groups", f"busy-{name}")
    finally:
        with_member.close()
    assert (found["state"], found["lag"]) == ("stable", None)
    [member] = found["members"]
    assert member["partitions"] == f"orders-{name}/0, orders-{name}/1"
    assert {part["member"] for part in found["partitions"]} == {member["member"]}
    code, _, err = run("groups", "nobody-at-all")
    assert (code, "nobody reads as 'nobody-at-all'" in err) == (2, True)


def consumer(bootstrap: str, group: str, topic: str) -> Consumer:
    """A member that has its partitions."""
    options = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    made = Consumer(options)
    made.subscribe([topic])
    eventually(lambda: (made.poll(0.1), made.assignment())[1])
    return made


# reset


@pytest.mark.parametrize("where", ["kafka", "gateway"])
def test_a_group_is_moved(name: str, kafka: Kafka, gateway: Gateway, run: Run, where: str) -> None:
    server, topic = {"kafka": (kafka, f"orders-{name}"), "gateway": (gateway, f"parcels-{name}")}[where]
    group, client = f"mover-{name}", KafkaGroups({"bootstrap.servers": server.bootstrap})
    commit(server.bootstrap, group, topic, {0: 2})
    end = 5 if where == "kafka" else 6
    words = ("groups", "reset", group, "--topic", topic)

    def moved(*more: str) -> list[tuple[int | None, int]]:
        return [(row["before"], row["after"]) for row in rows(run, *words, *more, "--yes")]

    assert moved("--to", "latest") == [(2, end), (None, end)]
    assert client.committed(group, topic) == {0: end, 1: end}
    assert moved("--to", "earliest", "--partition", "1") == [(end, 0)]
    assert client.committed(group, topic) == {0: end, 1: 0}
    assert moved("--to", "3") == [(end, 3), (0, 3)]
    assert moved("--to", "900", "--partition", "0") == [(3, end)], "no offset behind the end"
    assert moved("--to", "1h") == [(end, 0), (3, 0)]
    assert moved("--to", "2100-01-01T00:00Z") == [(0, end), (0, end)]
    assert moved("--to", "-2") == [(end, end - 2), (end, end - 2)]
    assert client.committed(group, topic) == {0: end - 2, 1: end - 2}
    code, _, err = run(*words, "--to", "-2", "--yes")
    assert (code, "is there already" in err) == (0, True)


def test_what_is_not_said_is_not_done(name: str, kafka: Kafka, gateway: Gateway, run: Run) -> None:
    group, topic = f"still-{name}", f"orders-{name}"
    commit(kafka.bootstrap, group, topic, {0: 2})
    assert run("groups", "reset", group, "--topic", topic)[0] == 2
    assert run("groups", "reset", group, "--to", "latest")[0] == 2
    code, out, err = run("groups", "reset", group, "--topic", topic, "--to", "latest")
    assert (code, "add --yes" in err) == (2, True)
    assert "lag after" in out, "what would be done is shown before it is asked for"
    for words, told in {
        ("typo", "--topic", topic, "--to", "0"): "there is no group 'typo'",
        (group, "--topic", "typo", "--to", "0"): "there is no topic typo",
        (group, "--topic", topic, "--to", "0", "--partition", "7"): "has no partition 7",
        (group, "--topic", topic, "--to", "soon"): "'soon' is no place in a topic",
    }.items():
        code, _, err = run("groups", "reset", *words, "--yes")
        assert (code, told in err) == (2, True), err
    assert KafkaGroups(kafka.client_options()).committed(group, topic) == {0: 2}
    client = KafkaGroups({"bootstrap.servers": gateway.bootstrap})
    assert client.partitions([f"typo-{name}", f"parcels-{name}"]) == {f"parcels-{name}": 2}
    assert f"typo-{name}" not in client.cluster().topics, "looking must not create"


def test_active_groups_are_refused(name: str, kafka: Kafka, pulsar: Pulsar, run: Run) -> None:
    import pulsar as foreign

    member = consumer(kafka.bootstrap, f"busy-{name}", f"orders-{name}")
    words = ("--to", "latest", "--yes")
    try:
        code, _, err = run("groups", "reset", f"busy-{name}", "--topic", f"orders-{name}", *words)
    finally:
        member.close()
    assert (code, "it has members" in err) == (4, True)
    client = foreign.Client(pulsar.service_url)
    client.subscribe(f"persistent://public/default/parcels-{name}", f"audit-{name}")
    try:
        code, _, err = run("groups", "reset", f"audit-{name}", "--topic", f"parcels-{name}", *words)
    finally:
        client.close()
    assert (code, "it has consumers" in err) == (4, True)


def test_a_subscription_of_pulsar_is_moved(name: str, pulsar: Pulsar, run: Run) -> None:
    import pulsar as foreign

    subscription = f"audit-{name}"
    client = foreign.Client(pulsar.service_url)
    client.subscribe(f"persistent://public/default/parcels-{name}", subscription)
    client.close()

    def move(to: str) -> list[tuple[int, int]]:
        words = ("groups", "reset", subscription, "--topic", f"parcels-{name}", "--to", to, "--yes")
        eventually(lambda: run(*words)[0] == 0)
        [found] = rows(run, "groups", subscription)
        return [(part["entries"], part["messages"]) for part in found["partitions"]]

    assert move("earliest") == [(1, 6), (1, 6)]
    assert move("latest") == [(0, 0), (0, 0)]
    assert move("1h") == [(1, 6), (1, 6)]
    code, _, err = run("groups", "reset", subscription, "--topic", f"parcels-{name}", "--to", "3", "--yes")
    assert (code, "Pulsar has no offsets" in err) == (2, True)


# topics


def test_topics_of_kafka_and_pulsar_side_by_side(name: str, kafka: Kafka, gateway: Gateway, run: Run) -> None:
    commit(kafka.bootstrap, f"billing-{name}", f"orders-{name}", {0: 2, 1: 5})
    code, out, err = run("topics", "--limit", "1000", "-o", "json")
    assert code == 0
    found = {row["topic"]: row for row in json.loads(out) if name in row["topic"]}
    assert found == {
        f"orders-{name}": {
            "topic": f"orders-{name}",
            "server": "kafka",
            "partitions": 2,
            "records": 10,
            "entries": None,
            "groups": [{"group": f"billing-{name}", "lag": 3}],
            "channel": "orders",
        },
        f"persistent://public/default/parcels-{name}": {
            "topic": f"persistent://public/default/parcels-{name}",
            "server": "pulsar",
            "partitions": 2,
            "records": None,
            "entries": 2,
            "groups": [],
            "channel": "parcels",
        },
    }
    assert f"refunds-{name} (kafka)" in err, "what the contract wants and is not there is told"
    assert "__consumer_offsets" not in out
    assert len(rows(run, "topics", f"*-{name}", "--limit", "1")) == 1
    [internal] = rows(run, "topics", "__consumer_offsets*", "--internal", "--server", "kafka")
    assert internal["topic"] == "__consumer_offsets"


def test_one_topic_in_detail(name: str, kafka: Kafka, gateway: Gateway, run: Run) -> None:
    commit(kafka.bootstrap, f"billing-{name}", f"orders-{name}", {0: 2, 1: 5})
    commit(gateway.bootstrap, f"depot-{name}", f"parcels-{name}", {0: 6, 1: 0})
    [orders] = rows(run, "topics", "onOrder")
    assert (orders["topic"], orders["channel"], orders["replicas"]) == (f"orders-{name}", "orders", "1")
    assert [part["records"] for part in orders["partitions"]] == [5, 5]
    assert [(group["group"], group["lag"]) for group in orders["groups"]] == [(f"billing-{name}", 3)]
    [drift] = orders["drift"]
    assert f"~ topic orders-{name} partitions 2 -> 3" in drift
    [parcels] = rows(run, "topics", f"parcels-{name}")
    assert [(part["entries"], part["records"]) for part in parcels["partitions"]] == [(1, 6), (1, 6)]
    assert [(group["group"], group["lag"]) for group in parcels["groups"]] == [(f"depot-{name}", 6)]
    assert parcels["drift"] == []
    code, out, _ = run("topics", f"orders-{name}")
    assert (code, "drift" in out) == (0, True)
    code, _, err = run("topics", f"typo-{name}")
    assert (code, "there is no topic" in err) == (2, True)


def test_a_cluster_that_is_down_does_not_hide_the_others(name: str, isolated_home: Path, run: Run) -> None:
    settings = isolated_home / "penstock.yaml"
    lines = settings.read_text().splitlines()
    lines[4] = "      pulsar: {kind: pulsar, address: 'pulsar://127.0.0.1:1', admin: 'http://127.0.0.1:1'}"
    settings.write_text("\n".join(lines))
    code, out, err = run("topics", f"*-{name}", "-o", "json")
    assert (code, "cannot reach pulsar" in err) == (5, True)
    assert [row["topic"] for row in json.loads(out)] == [f"orders-{name}"]
    code, _, err = run("topics", "--server", "nowhere")
    assert (code, "name one of: kafka, pulsar, gateway" in err) == (2, True)
