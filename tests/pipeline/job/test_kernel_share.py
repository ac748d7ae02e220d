"""`routes --explain --sample`: what is read of a topic, and which share of it the kernel decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pulsar import PartitionsRoutingMode
from pulsar_project import PulsarSide, on_pulsar

from penstock.cli.app import main
from penstock.embedded.pulsar import Pulsar
from penstock.errors import PenstockError
from penstock.events.bindings.pulsar import Profile
from penstock.pipeline.dry_run.kernel_share import sample_sources
from penstock.pipeline.dry_run.newest_records import newest
from penstock.record import KafkaRecord

HEADERS = (
    ("ce_specversion", b"1.0"),
    ("ce_source", b"/s"),
    ("ce_type", b"t"),
    ("content-type", b"application/json"),
)
WHERE = {"where": "data.name = 'x'"}


def event(number: int, data: str = '{"name": "x"}', partition: int | None = None) -> KafkaRecord:
    return KafkaRecord(
        value=data.encode(), headers=(*HEADERS, ("ce_id", str(number).encode())), partition=partition
    )


def escaped(number: int, partition: int | None = None) -> KafkaRecord:
    """An event of which the kernel is not certain: the string that the route reads has an escape."""
    return event(number, '{"name": "\\u0078"}', partition)


@pytest.mark.parametrize(
    ("end", "count", "taken"),
    [
        ({0: 100, 1: 100}, 10, [5, 5]),
        ({0: 100, 1: 3}, 10, [7, 3]),
        ({0: 2, 1: 3}, 10, [2, 3]),
        ({0: 0, 1: 3}, 2, [0, 2]),
        ({0: 9, 1: 9, 2: 9}, 1, [0, 0, 1]),
    ],
)
def test_every_partition_gives_its_part_of_the_newest(
    end: dict[int, int], count: int, taken: list[int]
) -> None:
    start = newest({}, end, count)
    assert [end[part] - start[part] for part in sorted(end)] == taken


@pytest.mark.server
def test_the_share_is_of_the_newest_records(project: Callable[..., Any]) -> None:
    """The older half is all uncertain and is not read; of the newer one a quarter is."""
    made = project().create(partitions=2).write(WHERE)
    made.produce(escaped(number, number % 2) for number in range(40))
    made.produce(
        (escaped if number // 2 % 4 == 0 else event)(number, partition=number % 2) for number in range(40)
    )
    (found,) = sample_sources(made.pipeline(), 40)
    (share,) = found.shares
    assert (found.records, found.offsets, found.partitions, found.note) == (40, 40, 2, "")
    assert (share.route, share.evaluator, share.by_kernel, share.stops) == ("r", "kernel", 30, ())
    assert found.by_kernel == 30
    (more,) = sample_sources(made.pipeline(), 1000)
    assert (more.records, more.by_kernel) == (80, 30)


@pytest.mark.server
def test_nothing_is_written_and_no_group_is_used(project: Callable[..., Any]) -> None:
    made = project(group={"type": "string", "const": "sampled"}).create().write(WHERE)
    made.produce([event(1), KafkaRecord(value=b"no event")])
    (found,) = sample_sources(made.pipeline(), 10)
    assert (found.records, found.by_kernel) == (2, 1)
    assert [*made.read("out"), *made.read("dead")] == []
    assert made.admin().committed("sampled", made.topic("in")) == {}


@pytest.mark.server
def test_routes_of_one_topic_are_counted_alone_and_together(project: Callable[..., Any]) -> None:
    """One route reads the string with the escape, the other one does not."""
    made = project().create().write(WHERE)
    document = json.loads((made.folder / "pipeline.yaml").read_text())
    document["routes"]["plain"] = {"receive": "receive", "send": "send", "where": "type = 't'"}
    (made.folder / "pipeline.yaml").write_text(json.dumps(document))
    made.produce([escaped(1), event(2), event(3)])
    (found,) = sample_sources(made.pipeline(), 10)
    assert {share.route: share.by_kernel for share in found.shares} == {"r": 2, "plain": 3}
    assert found.by_kernel == 2


@pytest.mark.server
def test_what_is_not_committed_is_not_read(project: Callable[..., Any]) -> None:
    made = project().create().write(WHERE)
    options = {**made.server("in").client_options(), "transactional.id": f"{made.prefix}-t", "log_level": 0}
    producer = Producer(options)
    producer.init_transactions(30)
    for number, end in enumerate((producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        record = event(number)
        producer.produce(made.topic("in"), record.value, headers=list(record.headers))
        producer.flush(30)
        end(30)
    (found,) = sample_sources(made.pipeline(), 10)
    assert (found.records, found.offsets, found.by_kernel) == (1, 4, 1)


@pytest.mark.server
def test_few_bytes_are_the_newest_ones(project: Callable[..., Any]) -> None:
    """A hundred batches: those at the end are read, and it is said that it was less."""
    made = project().create().write(WHERE)
    for number in range(30):
        made.produce([(event if number >= 25 else escaped)(number)])
    (found,) = sample_sources(made.pipeline(), 30, max_bytes=600)
    assert 0 < found.records <= 5
    assert found.by_kernel == found.records
    assert found.note == "the newest 600 bytes, about"


@pytest.mark.server
def test_an_empty_topic_is_said(
    project: Callable[..., Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project().create().write(WHERE)
    with at_home(made.folder, monkeypatch):
        assert main(["routes", "--explain", "--sample", "5", "-C", "test"]) == 0
    said = capsys.readouterr()
    assert "the topic is empty" in said.err
    assert "%" not in said.out


@pytest.mark.server
def test_the_command_prints_a_table_and_json(
    project: Callable[..., Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project().create().write(WHERE)
    made.produce([escaped(1), event(2), event(3)])
    with at_home(made.folder, monkeypatch):
        assert main(["routes", "--explain", "--sample", "100", "-C", "test"]) == 0
        said = capsys.readouterr()
        assert main(["routes", "--explain", "--sample", "100", "-o", "json", "-C", "test"]) == 0
        (route,) = json.loads(capsys.readouterr().out)
    assert "66.6 %" in said.out
    assert "evaluator kernel" in said.out
    assert f"{made.topic('in')} (kafka): read 3 records of 3 offsets in 1 partitions" in " ".join(
        said.err.split()
    )
    assert (route["evaluator"], route["notKernel"]) == ("kernel", [])
    assert (route["sample"]["records"], route["sample"]["byKernel"]) == (3, 2)


@pytest.mark.server
def test_a_topic_that_is_not_there_is_an_error(project: Callable[..., Any]) -> None:
    made = project().write(WHERE)
    with pytest.raises(PenstockError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        sample_sources(made.pipeline(), 5, max_seconds=2)


# Sources on Pulsar


@pytest.fixture
def side_of(project: Callable[..., Any], pulsar: Pulsar) -> Iterator[Callable[..., tuple[Any, PulsarSide]]]:
    """Make a project whose topic that is read is on Pulsar."""
    sides: list[PulsarSide] = []

    def make(broker: Pulsar = pulsar, **more: Any) -> tuple[Any, PulsarSide]:
        made = project()
        sides.append(on_pulsar(made, broker, **more).create())
        return made, sides[-1]

    yield make
    for side in sides:
        side.close()


def subscriptions(side: PulsarSide) -> dict[str, Any]:
    """What subscriptions the topic has, as its broker tells."""
    found: dict[str, Any] = side.rest("/partitioned-stats" if side.partitions else "/stats")["subscriptions"]
    return found


@pytest.mark.server
@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("profile", list(Profile))
def test_the_share_of_a_source_on_pulsar(
    profile: Profile, partitions: int, side_of: Callable[..., tuple[Any, PulsarSide]]
) -> None:
    """The older half is no event and is not read, nor is anything written or left behind."""
    made, side = side_of(partitions=partitions, route={"where": "type = 't' AND data.n >= 0"})
    even = {"message_routing_mode": PartitionsRoutingMode.RoundRobinDistribution, "batching_enabled": False}
    side.send(range(50), profile=profile, poison=1, **even)
    (older,) = sample_sources(made.pipeline(), 1000)
    assert (older.records, older.offsets, older.by_kernel) == (100, 100, 50)
    side.send(range(100), profile=profile, **even)
    (found,) = sample_sources(made.pipeline(), 40)
    (share,) = found.shares
    assert (found.records, found.offsets, found.note) == (40, 40, "")
    assert found.partitions == max(partitions, 1)
    assert (share.evaluator, share.by_kernel, share.stops) == ("kernel", 40, ())
    (more,) = sample_sources(made.pipeline(), 1000)
    assert (more.records, more.by_kernel) == (200, 150)
    assert subscriptions(side) == {}
    assert [*made.read("out"), *made.read("dead")] == []


@pytest.mark.server
def test_a_batch_of_pulsar_is_cut_where_the_newest_begin(
    side_of: Callable[..., tuple[Any, PulsarSide]],
) -> None:
    made, side = side_of(route=WHERE)
    side.send(range(100), batching_max_messages=100, batching_max_publish_delay_ms=2000)
    (found,) = sample_sources(made.pipeline(), 7)
    assert (found.records, found.offsets, found.by_kernel) == (7, 7, 7)
    (few,) = sample_sources(made.pipeline(), 100, max_bytes=500)
    assert 0 < few.records < 50
    assert few.note == "the newest 500 bytes, about"


@pytest.mark.server
def test_an_empty_topic_of_pulsar_is_said_and_one_that_is_not_there_is_an_error(
    side_of: Callable[..., tuple[Any, PulsarSide]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, side = side_of(route=WHERE, partitions=2)
    with at_home(made.folder, monkeypatch):
        assert main(["routes", "--explain", "--sample", "5", "-C", "test"]) == 0
    assert "the topic is empty" in capsys.readouterr().err
    side.delete()
    with pytest.raises(PenstockError, match="not there|not found|does not exist"):
        sample_sources(made.pipeline(), 5, max_seconds=10)


@pytest.mark.server
@pytest.mark.slow
def test_a_topic_of_pulsar_without_an_index(side_of: Callable[..., tuple[Any, PulsarSide]]) -> None:
    """Positions cannot be counted back, so entries are: here each is one record."""
    with Pulsar(durable=False, settings={"brokerEntryMetadataInterceptors": ""}) as plain:
        made, side = side_of(plain, route=WHERE)
        side.send(range(50), poison=1, batching_enabled=False)
        side.send(range(60), batching_enabled=False)
        (found,) = sample_sources(made.pipeline(), 40)
        assert 20 <= found.records == found.offsets <= 60
        assert found.by_kernel == found.records
        assert found.note.startswith("the broker keeps no index")
        assert subscriptions(side) == {}


def test_a_sample_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["routes", "--sample", "5", str(tmp_path / "pipeline.yaml")]) == 2
    assert "penstock routes --explain --sample N" in capsys.readouterr().err


@contextmanager
def at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        yield
