"""`penstock dlq` on the real Kafka: letters counted by reason, one shown, records restored bit for bit."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.brokers.kafka_records import publish, scan
from penstock.cli.app import main
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import DeadLetter, dead_letter_event
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from penstock.embedded.kafka import Kafka

pytestmark = pytest.mark.server

CONTRACT = """\
asyncapi: 3.0.0
info: {title: shop, version: 1.0.0}
servers: {kafka: {host: 'HOST', protocol: kafka}}
channels:
  orders: {address: orders-NAME, x-penstock-dead-letter: {$ref: '#/channels/dead'}}
  other: {address: other-NAME}
  dead: {address: dead-NAME}
operations:
  onOrder: {action: receive, channel: {$ref: '#/channels/orders'}}
"""
NASTY = (
    KafkaRecord(value=b"\xff\xfe", key=b"\x00", headers=(("a", b"1"), ("a", None), ("ce_id", b"\xff"))),
    KafkaRecord(value=None, key=None, headers=()),
    KafkaRecord(value=b"{", key=b"", headers=(("content-type", b"application/cloudevents+json"),)),
)


class Shop:
    """A contract with a source, another topic and a topic of dead letters."""

    def __init__(self, kafka: Kafka, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self.options, self.name, self.capsys = kafka.client_options(), uuid.uuid4().hex[:8], capsys
        (home / ".git").mkdir()
        text = CONTRACT.replace("HOST", kafka.bootstrap).replace("NAME", self.name)
        (home / "asyncapi.yaml").write_text(text)
        topics = [NewTopic(self.topic(kind), 2, 1) for kind in ("orders", "other", "dead")]
        admin = AdminClient(self.options)
        for future in admin.create_topics(topics).values():
            future.result(30)

    def topic(self, kind: str) -> str:
        return f"{kind}-{self.name}"

    def bury(
        self,
        code: str,
        *records: KafkaRecord,
        route: str | None = None,
        at: int = 1000,
        kept: bool = True,
        server: str | None = "kafka",
    ) -> None:
        for offset, record in enumerate(records):
            there = replace(record, topic=self.topic("orders"), partition=1, offset=offset, timestamp=at)
            reason = f"{code}: why {'so ' * 20}long"
            letter = DeadLetter(record=there, code=code, reason=reason, route=route, kept=kept, server=server)
            written = KafkaBinding().encode(dead_letter_event(letter, "shop"), key=record.key)
            publish(self.options, [replace(written, topic=self.topic("dead"))])

    def run(self, *words: str) -> tuple[int, str, str]:
        code = main(["dlq", *words])
        shown = self.capsys.readouterr()
        return code, shown.out, shown.err

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        return [(r.partition, r.key, r.value, r.headers) for r in scan(self.options, self.topic(kind))]


@pytest.fixture
def shop(kafka: Kafka, isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> Shop:
    return Shop(kafka, isolated_home, capsys)


def test_letters_are_counted_by_reason(shop: Shop) -> None:
    shop.bury("invalid-event", *NASTY)
    shop.bury("function-failed", NASTY[0], route="large")
    shop.bury("invalid-event", NASTY[0])  # what a restarted job writes again
    publish(shop.options, [KafkaRecord(value=b"not ours", topic=shop.topic("dead"))])
    code, out, err = shop.run("list", "-o", "json")
    assert code == 0
    assert [(row["code"], row["route"], row["letters"]) for row in json.loads(out)] == [
        ("invalid-event", None, 3),
        ("function-failed", "large", 1),
    ]
    assert f"4 open in {shop.topic('dead')} · 1 written twice · 1 no dead letters of ours" in err
    code, out, _ = shop.run("list", "--each", "--route", "large", "-o", "json")
    (row,) = json.loads(out)
    assert row["origin"] == f"kafka/{shop.topic('orders')}/1/0"
    assert row["reason"].endswith("so long")  # only a table shortens it
    _, out, _ = shop.run("list", "--route", "large")
    assert "..." in out.splitlines()[1]


def test_one_letter_is_shown_with_its_record(shop: Shop) -> None:
    shop.bury("invalid-event", NASTY[0])
    (letter,) = json.loads(shop.run("list", "--each", "-o", "json")[1])
    code, out, _ = shop.run("show", letter["id"][:8])
    assert code == 0
    for line in ("reason    invalid-event: why so", "key       0x00", "value     0xfffe", "ce_id = 0xff"):
        assert line in out
    code, out, _ = shop.run("show", letter["id"], "-o", "json")
    assert json.loads(out)["record"]["value"] == "//4="
    code, _, err = shop.run("show", "zzz")
    assert code == 2
    assert "no open letter begins with 'zzz'" in err


def test_restored_records_equal_the_originals(shop: Shop) -> None:
    shop.bury("invalid-event", *NASTY)
    code, out, err = shop.run("restore", "--all", "--yes")
    assert code == 0
    assert shop.records("orders") == [(1, r.key, r.value, r.headers) for r in NASTY]
    assert "3 restored; 3 open before, 0 now" in err
    code, out, err = shop.run("list", "-o", "json")
    assert (json.loads(out), "3 restored before" in err) == ([], True)
    assert shop.run("restore", "--all", "--yes")[0] == 0
    assert len(shop.records("orders")) == 3


def test_the_time_is_that_of_now_or_kept(shop: Shop) -> None:
    begin = time.time_ns() // 1_000_000
    shop.bury("late", NASTY[0], at=begin - 60_000)
    assert shop.run("restore", "--all", "--to", "other", "--keep-time", "--yes")[0] == 0
    shop.bury("late", NASTY[1], at=begin - 60_000, route="large")
    assert shop.run("restore", "--all", "--yes")[0] == 0
    (kept,), (fresh,) = scan(shop.options, shop.topic("other")), scan(shop.options, shop.topic("orders"))
    assert kept.timestamp == begin - 60_000
    assert fresh.timestamp is not None
    assert fresh.timestamp >= begin


def test_only_what_was_chosen_is_restored_elsewhere(shop: Shop) -> None:
    shop.bury("invalid-event", *NASTY[:2])
    shop.bury("late", NASTY[2], route="large")
    code, out, _ = shop.run("restore", "--code", "late", "--to", "other", "--dry-run", "-o", "json")
    assert (code, json.loads(out)) == (
        0,
        [{"server": "kafka", "topic": shop.topic("other"), "records": 1}],
    )
    assert shop.records("other") == []
    assert shop.run("restore", "--code", "late", "--to", "other", "--yes")[0] == 0
    assert [row[1:] for row in shop.records("other")] == [(b"", b"{", NASTY[2].headers)]
    assert shop.records("orders") == []


def test_a_letter_without_its_record_writes_nothing_and_stays(shop: Shop) -> None:
    shop.bury("too-large", NASTY[0], kept=False)
    shop.bury("late", NASTY[0], route="large", server=None)  # as an older version wrote it
    code, _, err = shop.run("restore", "--all", "--yes")
    assert code == 0
    assert [row[1:3] for row in shop.records("orders")] == [(b"\x00", b"\xff\xfe")]
    assert "1 without its record" in err
    (left,) = json.loads(shop.run("list", "--each", "-o", "json")[1])
    assert (left["code"], left["record"]) == ("too-large", "not kept")
    code, _, err = shop.run("restore", "--id", left["id"], "--yes")
    assert (code, "does not keep its record" in err) == (4, True)
    assert len(shop.records("orders")) == 1


def test_nothing_is_written_unasked(shop: Shop) -> None:
    shop.bury("late", NASTY[0])
    code, _, err = shop.run("restore", "--all")
    assert (code, "add --yes" in err) == (2, True)
    code, _, err = shop.run("restore", "--yes")
    assert (code, "nothing is chosen" in err) == (2, True)
    assert shop.records("orders") == []
