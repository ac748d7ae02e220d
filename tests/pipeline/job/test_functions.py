"""Functions in a job on real Kafka and Spark: every event ends in an output, a dead letter or a drop."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter
from penstock.pipeline.functions.receipts import TYPE
from penstock.pipeline.plan.identity import derived_id
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

MODULE = """
import os
from pathlib import Path
from penstock.events import Dead, Drop, Retry

def tries(event):
    # In a file: a crash of another record takes the memory of this process with it.
    with Path(__file__).with_name(event.id).open("a+") as calls:
        calls.write("x")
        calls.seek(0)
        return len(calls.read())

def work(batch):
    for event in batch:
        want = event.attribute_str("want")
        if want == "crash":
            os._exit(9)
        if want == "raise":
            raise ValueError("no way")
        if want == "later" and tries(event) < 3 or want == "never":
            yield Retry("busy")
        elif want == "dead":
            yield Dead("unwanted")
        elif want == "drop":
            yield Drop()
        elif want == "change":
            yield event.to_cloudevent().replace({"subject": "changed"})
        else:
            yield event

def key_of(event):
    return "key of " + event.id
"""
WANTS = ("keep", "change", "drop", "later", "keep", "dead", "raise", "never", "crash", "keep")
DEAD = {
    "dead": ("function-dead", "unwanted", 1),
    "raise": ("function-error", "ValueError: no way", 1),
    "never": ("retries-exhausted", "busy", 4),
    "crash": ("function-exit", "the process ended with exit code 9", 1),
}
COUNT = 200


def record(number: int, want: str) -> KafkaRecord:
    attributes = {"id": f"e-{number}", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    if number >= COUNT - len(WANTS):
        attributes["receiptqueue"] = "receipts" if number % 10 else "nowhere"
    event = CloudEvent(attributes, json.dumps({"want": want}).encode())
    return KafkaBinding().encode(event, key=b"k%d" % number)


def test_every_outcome_ends_where_it_should(project: Callable[..., Any], spark: SparkSession) -> None:
    wants = [
        WANTS[number % 10] if number % 50 < 10 or number >= COUNT - 10 else "keep" for number in range(COUNT)
    ]
    shop = project(places={"receipts": "kafka"}).create()
    (shop.folder / "work.py").write_text(MODULE, encoding="utf-8")
    delivery = {"retry": 3, "backoffDelay": "PT0.01S"}
    call = {"function": "work:work", "batch": 50}
    shop.write({"apply": call, "key": "work:key_of", "ordering": "key", "delivery": delivery})
    shop.produce(record(number, want) for number, want in enumerate(wants))
    counts = shop.run(spark).counts

    by_want = Counter(wants)
    ids = {number: f"e-{number}" for number in range(COUNT)}
    ids |= {n: derived_id("r", "/s", f"e-{n}") for n, want in enumerate(wants) if want == "change"}
    expected = [ids[n] for n, want in enumerate(wants) if want in ("keep", "change", "later")]
    out = [(each.key, KafkaBinding().decode(each)) for each in shop.read("out")]
    assert [event.id for _, event in out] == expected
    assert [key for key, _ in out] == [f"key of {id}".encode() for id in expected]

    letters = [read_dead_letter(KafkaBinding().decode(each)) for each in shop.read("dead")]
    found = Counter((each.code, each.reason.splitlines()[-1], each.attempt, each.route) for each in letters)
    assert found == Counter({(*DEAD[want], "r"): by_want[want] for want in DEAD})

    assert (counts["n_in"], counts["n_dropped"]) == (COUNT, by_want["drop"])
    # A batch that is split calls its function again: the third call of an event may come early.
    assert 0 <= counts["n_retried"] - 3 * by_want["never"] <= 2 * by_want["later"]
    assert counts["n_unfollowed"] == 1

    receipts = [KafkaBinding().decode(each) for each in shop.read("receipts")]
    assert {event.type for event in receipts} == {TYPE}
    told: list[Any] = [event.json() for event in receipts]
    ends = {"keep": "emitted", "change": "emitted", "later": "emitted", "drop": "dropped"}
    assert {each["id"]: each["outcome"] for each in told} == {
        f"e-{number}": ends.get(wants[number], "dead") for number in range(COUNT - 10, COUNT) if number % 10
    }
