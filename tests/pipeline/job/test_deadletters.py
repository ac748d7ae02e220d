"""Dead letters: which one is which, one for each record and route; which can be restored, and where to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from routed import rows_of

from penstock.cli.app import main
from penstock.errors import ClusterError, RecordRefused, Refused, Unreachable
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline import deadletters
from penstock.pipeline.deadletter import DeadLetter, dead_letter_event, read_dead_letter
from penstock.pipeline.deadletters import Letter, read_letters, restore_letters
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import KafkaRecord

RECORD = KafkaRecord(key=b"k", value=b"v", topic="orders", partition=0, offset=7, timestamp=1000)
LETTER = DeadLetter(record=RECORD, code="too-large", reason="why", route="r", server="east")


def stored(letter: DeadLetter, **origin: Any) -> KafkaRecord:
    """Give a letter as a topic holds it; an origin of None leaves the field out, as older ones do."""
    event = dead_letter_event(letter, "shop")
    data: Any = event.json()
    data["origin"] = {k: v for k, v in (data["origin"] | origin).items() if v is not None}
    written = KafkaBinding().encode(CloudEvent(event.attributes, json.dumps(data).encode()))
    return replace(written, topic="dead", partition=0, offset=0, timestamp=5)


class Brokers:
    """What two clusters hold and were given, by bootstrap address: the calls that letters need, no more."""

    def __init__(self, dead: Iterable[KafkaRecord]) -> None:
        self.dead = list(dead)
        self.written: list[tuple[str, KafkaRecord]] = []

    def scan(self, options: Mapping[str, str], topic: str, **_: Any) -> Iterator[KafkaRecord]:
        assert topic == "dead"
        yield from self.dead

    def publish(self, options: Mapping[str, str], records: Iterable[KafkaRecord], **_: Any) -> int:
        before = len(self.written)
        for record in records:
            self.written.append((options["bootstrap.servers"], record))
            if record.topic == "dead":
                self.dead.append(replace(record, offset=len(self.dead), timestamp=6))
        return len(self.written) - before

    @property
    def restored(self) -> list[tuple[str, str | None, bytes | None]]:
        return [(at, r.topic, r.value) for at, r in self.written if r.topic != "dead"]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers(())
    monkeypatch.setattr(deadletters, "scan", found.scan)
    monkeypatch.setattr(deadletters, "publish", found.publish)
    return found


# Ids


@pytest.mark.parametrize(
    "other",
    [
        {"server": "west"},
        {"route": "s"},
        {"record": replace(RECORD, offset=8)},
        # The topic was deleted and made again: its offsets begin anew, and it is another record.
        {"record": replace(RECORD, timestamp=1001)},
    ],
)
def test_another_record_or_route_has_another_id(other: dict[str, Any]) -> None:
    assert dead_letter_event(replace(LETTER, **other), "shop").id != dead_letter_event(LETTER, "shop").id


def test_the_same_record_and_route_have_the_same_id_whatever_happened_in_this_run() -> None:
    again = replace(LETTER, attempt=3, reason="else", code="function-failed", kept=False)
    assert dead_letter_event(again, "shop").id == dead_letter_event(LETTER, "shop").id


def test_the_server_comes_back_and_a_letter_of_the_version_before_has_none() -> None:
    assert read_dead_letter(dead_letter_event(LETTER, "shop")).server == "east"
    assert read_dead_letter(KafkaBinding().decode(stored(LETTER, server=None))).server is None


def test_letters_of_two_clusters_are_two(brokers: Brokers) -> None:
    brokers.dead = [stored(LETTER), stored(replace(LETTER, server="west")), stored(LETTER)]
    found = read_letters({}, "dead")
    assert [letter.letter.server for letter in found.letters] == ["east", "west"]
    assert found.repeated == 1


def test_letters_of_the_version_before_with_one_id_and_two_records_are_two(brokers: Brokers) -> None:
    brokers.dead = [stored(LETTER, server=None)]
    other = stored(replace(LETTER, record=replace(RECORD, value=b"w")), server=None)
    brokers.dead += [replace(other, headers=brokers.dead[0].headers), brokers.dead[0]]
    found = read_letters({}, "dead")
    assert [letter.letter.record.value for letter in found.letters] == [b"v", b"w"]
    assert found.repeated == 1


@pytest.mark.parametrize(
    "data",
    [
        b'{"code":1,"reason":"r","route":null,"attempt":1,"origin":{},"record":null}',
        b'{"code":"c","reason":"r","route":{},"attempt":1,"origin":{},"record":null}',
        b'{"code":"c","reason":"r","route":null,"attempt":1,"origin":{"server":[]},"record":null}',
        b'{"code":"c","reason":"r","route":null,"attempt":1,"origin":{"topic":{}},"record":null}',
        b'{"code":"c","reason":"r","route":null,"attempt":1,"origin":[],"record":null}',
        b"[]",
    ],
)
def test_what_only_looks_like_a_letter_is_no_letter(brokers: Brokers, data: bytes) -> None:
    event = CloudEvent(dead_letter_event(LETTER, "shop").attributes, data)
    brokers.dead = [replace(KafkaBinding().encode(event), topic="dead"), stored(LETTER)]
    found = read_letters({}, "dead")
    assert (len(found.letters), found.foreign) == (1, 1)


# One letter for each record and route


def order(total: int) -> KafkaRecord:
    event = CloudEvent({"id": str(total), "source": "/shop", "type": "placed"}, b"%d" % total)
    return KafkaBinding().encode(event, key=b"k")


def letters_of(stage: Stage, *records: KafkaRecord) -> tuple[list[DeadLetter], dict[str, int]]:
    rows, counts = rows_of(stage, records)
    events = [
        KafkaBinding().decode(
            KafkaRecord(value=row["value"], headers=tuple((h["key"], h["value"]) for h in row["headers"]))
        )
        for row in rows
        if row["topic"] == "dead"
    ]
    assert len({event.id for event in events}) == len(events)
    return [read_dead_letter(event) for event in events], counts


def test_two_targets_that_are_too_small_make_one_letter_that_names_both() -> None:
    route = StageRoute(
        plan=RoutePlan(name="r"),
        targets=(Target(topic="a", limit=10), Target(topic="b", limit=20), Target(topic="c")),
        dead=Target(topic="dead"),
    )
    stage = Stage(pipeline="shop", routes=(route,), dead=Target(topic="dead"), servers=("east",))
    (first, second), counts = letters_of(stage, order(1), order(2))
    for letter in (first, second):
        assert letter.code == "too-large"
        assert "a takes 10" in letter.reason
        assert "b takes 20" in letter.reason
        assert letter.server == "east"
    assert (counts["n_out"], counts["n_dead"]) == (2, 2)


def test_each_route_has_its_own_letter() -> None:
    dead = Target(topic="dead")
    routes = tuple(
        StageRoute(plan=RoutePlan(name=name), targets=(Target(topic="a", limit=10),), dead=dead)
        for name in "xy"
    )
    letters, counts = letters_of(Stage(pipeline="shop", routes=routes, dead=dead), order(1))
    assert [letter.route for letter in letters] == ["x", "y"]
    assert counts["n_dead"] == 2


# Restore


def test_a_letter_without_its_record_is_not_restored(brokers: Brokers) -> None:
    letters = [
        Letter(id="1", source="/s", letter=LETTER, stored=RECORD),
        Letter(id="2", source="/s", letter=replace(LETTER, kept=False), stored=RECORD),
    ]
    with pytest.raises(Refused, match="does not keep its record"):
        restore_letters(letters, to={"bootstrap.servers": "x"}, topic=None, marks={"bootstrap.servers": "x"})
    assert brokers.written == []


CONTRACT = """\
asyncapi: 3.0.0
info: {title: shop, version: 1.0.0}
servers:
  east: {host: 'east:9092', protocol: kafka}
  west: {host: 'west:9092', protocol: kafka}
channels:
  eastOrders: {address: orders, servers: [{$ref: '#/servers/east'}]}
  westOrders: {address: orders, servers: [{$ref: '#/servers/west'}]}
  only: {address: only, servers: [{$ref: '#/servers/west'}]}
  both: {address: both}
  dead: {address: dead, servers: [{$ref: '#/servers/east'}]}
operations:
  onEast: {action: receive, channel: {$ref: '#/channels/eastOrders'}}
  onWest: {action: receive, channel: {$ref: '#/channels/westOrders'}}
  onOnly: {action: receive, channel: {$ref: '#/channels/only'}}
  onBoth: {action: receive, channel: {$ref: '#/channels/both'}}
"""


@pytest.fixture
def dlq(brokers: Brokers, isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    (isolated_home / ".git").mkdir()
    (isolated_home / "asyncapi.yaml").write_text(CONTRACT)

    def run(verb: str, *words: str) -> tuple[int, str, str]:
        code = main(["dlq", verb, *words, "dead"] if verb != "show" else ["dlq", verb, *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_records_go_back_to_the_server_that_they_came_from(brokers: Brokers, dlq: Any) -> None:
    west = replace(LETTER, server="west", record=replace(RECORD, value=b"w"))
    both = replace(LETTER, server="west", record=replace(RECORD, value=b"b", topic="both"))
    brokers.dead = [stored(LETTER), stored(west), stored(both)]
    code, _, err = dlq("restore", "--all", "--yes")
    assert code == 0, err
    assert brokers.restored == [
        ("east:9092", "orders", b"v"),
        ("west:9092", "orders", b"w"),
        ("west:9092", "both", b"b"),
    ]
    assert json.loads(dlq("list", "--each", "-o", "json")[1]) == []


def test_a_letter_of_the_version_before_goes_to_the_only_server_that_has_its_topic(
    brokers: Brokers, dlq: Any
) -> None:
    old = replace(LETTER, server=None, record=replace(RECORD, topic="only"))
    brokers.dead = [stored(old, server=None)]
    assert dlq("restore", "--all", "--yes")[0] == 0
    assert brokers.restored == [("west:9092", "only", b"v")]


def test_a_letter_of_the_version_before_is_not_guessed_onto_one_of_two_servers(
    brokers: Brokers, dlq: Any
) -> None:
    brokers.dead = [stored(LETTER, server=None)]
    code, _, err = dlq("restore", "--all", "--yes")
    assert code == 2
    assert "eastOrders" in err
    assert "westOrders" in err
    assert "--to" in err
    assert brokers.written == []
    assert dlq("restore", "--all", "--yes", "--to", "westOrders")[0] == 0
    assert brokers.restored == [("west:9092", "orders", b"v")]


@pytest.fixture
def twins(brokers: Brokers) -> str:
    """Two letters of the version before, of two clusters, the first of them written twice; give their id."""
    first = stored(LETTER, server=None)
    second = stored(replace(LETTER, record=replace(RECORD, value=b"w")), server=None)
    brokers.dead = [first, replace(second, headers=first.headers, offset=1), replace(first, offset=2)]
    return dead_letter_event(LETTER, "shop").id


def test_of_two_letters_with_one_id_the_place_chooses(brokers: Brokers, dlq: Any, twins: str) -> None:
    code, _, err = dlq("restore", "--id", twins[:12], "--to", "westOrders", "--yes")
    assert code == 2
    assert f"{twins[:12]}@0/0, {twins[:12]}@0/1" in err
    code, _, err = dlq("restore", "--id", f"{twins[:6]}@0/1", "--to", "westOrders", "--yes")
    assert code == 0, err
    assert brokers.restored == [("west:9092", "orders", b"w")]
    (left,) = read_letters({}, "dead").letters
    assert left.letter.record.value == b"v"
    assert dlq("restore", "--id", f"{twins}@0/1", "--to", "westOrders", "--yes")[0] == 2
    assert dlq("restore", "--id", twins, "--to", "eastOrders", "--yes")[0] == 0
    assert brokers.restored[1:] == [("east:9092", "orders", b"v")]
    assert len({record.headers for _, record in brokers.written if record.topic == "dead"}) == 2


def test_a_mark_covers_every_copy_of_its_letter(brokers: Brokers, dlq: Any, twins: str) -> None:
    assert dlq("restore", "--id", f"{twins}@0/0", "--to", "eastOrders", "--yes")[0] == 0
    del brokers.dead[0]  # its retention is over, the copy is still there
    brokers.dead.append(replace(brokers.dead[1], offset=9))  # a restarted job writes it once more
    assert [each.letter.record.value for each in read_letters({}, "dead").letters] == [b"w"]


def test_a_mark_of_the_version_before_covers_every_letter_of_its_id(brokers: Brokers, twins: str) -> None:
    mark = {"id": "m", "source": "shop", "type": deadletters.RESTORED, "causationid": twins}
    brokers.dead.append(replace(KafkaBinding().encode(CloudEvent(mark)), topic="dead"))
    found = read_letters({}, "dead")
    assert (found.letters, found.restored) == ((), 2)


def test_a_server_that_the_contract_does_not_have_is_named(brokers: Brokers, dlq: Any) -> None:
    brokers.dead = [stored(replace(LETTER, server="north"))]
    code, _, err = dlq("restore", "--all", "--yes")
    assert (code, brokers.written) == (2, [])
    assert "north" in err


def test_letters_without_their_record_stay_open_and_are_listed(brokers: Brokers, dlq: Any) -> None:
    gone = replace(LETTER, kept=False, record=replace(RECORD, offset=8))
    brokers.dead = [stored(LETTER), stored(gone)]
    code, out, err = dlq("restore", "--all", "--yes")
    assert code == 0
    assert brokers.restored == [("east:9092", "orders", b"v")]
    assert "1 without its record" in err
    assert "orders/0/8" in err
    assert "1 restored; 2 open before, 1 now" in err
    rows = json.loads(dlq("list", "--each", "-o", "json")[1])
    assert [(row["origin"], row["record"]) for row in rows] == [("east/orders/0/8", "not kept")]


def test_one_that_was_named_and_cannot_be_restored_is_an_error(brokers: Brokers, dlq: Any) -> None:
    brokers.dead = [stored(replace(LETTER, kept=False))]
    name = dead_letter_event(LETTER, "shop").id
    code, _, err = dlq("restore", "--id", name, "--yes")
    assert (code, brokers.written) == (4, [])
    assert "does not keep its record" in err
    assert "orders/0/7" in err
    code, out, _ = dlq("show", name, "dead")
    assert code == 0
    assert "not kept" in out
    assert "null" not in out


def test_a_letter_is_not_marked_before_its_record_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers([])
    letter = Letter(id="1", source="/s", letter=LETTER, stored=stored(LETTER))

    def publish(options: Mapping[str, str], records: Iterable[KafkaRecord], **more: Any) -> int:
        if options["bootstrap.servers"] == "away":
            raise Unreachable("away")
        return brokers.publish(options, records, **more)

    monkeypatch.setattr(deadletters, "publish", publish)
    marks = {"bootstrap.servers": "here"}
    with pytest.raises(Unreachable):
        restore_letters([letter], to={"bootstrap.servers": "away"}, topic=None, marks=marks)
    assert brokers.written == []
    assert restore_letters([letter], to=marks, topic=None, marks=marks) == []
    assert [record.topic for _, record in brokers.written] == ["orders", "dead"]


def test_letters_whose_record_is_refused_stay_open_and_the_others_are_restored(brokers: Brokers) -> None:
    letters = [
        Letter(
            id=str(n),
            source="/s",
            letter=replace(LETTER, record=replace(RECORD, value=b"%d" % n)),
            stored=stored(LETTER),
        )
        for n in range(5)
    ]
    write = brokers.publish

    def publish(options: Mapping[str, str], records: Iterable[KafkaRecord], **more: Any) -> int:
        count = 0
        for record in records:
            if record.value in (b"1", b"4"):
                raise RecordRefused(ClusterError("it was refused", why="no key"), record)
            count += write(options, [record])
            if "on_sent" in more:
                more["on_sent"](record)
        return count

    where = {"bootstrap.servers": "x"}
    with patch.object(deadletters, "publish", publish):
        refused = restore_letters(letters, to=where, topic=None, marks=where)
    assert [(letter.id, exc.why) for letter, exc in refused] == [("1", "no key"), ("4", "no key")]
    assert [value for _, _, value in brokers.restored] == [b"0", b"2", b"3"]
    marks = [record for _, record in brokers.written if record.topic == "dead"]
    causes = [dict(record.headers)["ce_causationid"] for record in marks]
    assert causes == [b"0", b"2", b"3"]
