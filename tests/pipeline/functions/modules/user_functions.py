"""Functions as users write them, good and bad; each acts up at the event whose data says so."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.events import CloudEvent, Dead, Drop, Emit, Event, EventBatch, Json, Retry
from penstock.events import content as event_content
from penstock.events.event_headers import Provenance
from penstock.pipeline.functions.frames import dump, write_frame

LEAK: list[bytes] = []


def is_bad(event: Event) -> bool:
    return bool(event.attribute("bad"))


def same(batch: EventBatch) -> Iterable[Event]:
    return batch.records


def enlarge(batch: EventBatch) -> Iterator[CloudEvent]:
    for event in batch:
        yield event.to_cloudevent().replace({"size": "large"})


def rekey(batch: EventBatch) -> Iterator[CloudEvent]:
    for event in batch:
        yield event.to_cloudevent().replace({"partitionkey": "new"})


def split(batch: EventBatch) -> Iterator[Emit]:
    for event in batch:
        made = Event("made", {"event-type": "kind=made", "app": "x"}, b"y")
        yield Emit(event, event, event.to_cloudevent().replace(data=Json({"part": 2})), made)


def decide(batch: EventBatch) -> Iterator[object]:
    outcomes = {"dead": Dead("never"), "drop": Drop("not wanted"), "retry": Retry("later")}
    for event in batch:
        yield outcomes.get(str(event.attribute("want")), event)


def tries(batch: EventBatch) -> Iterator[object]:
    """Note each call in a file; an event that is to be tried again says how often."""
    for event in batch:
        with Path(os.environ["CALLS"]).open("a") as calls:
            calls.write(f"{event.id}\n")
        so_far = Path(os.environ["CALLS"]).read_text().splitlines().count(str(event.id))
        yield event if so_far > (event.attribute_int("retries") or 0) else Retry("not yet")


def throws_at_the_end(batch: EventBatch) -> list[Event]:
    if any(map(is_bad, list(batch))):
        raise ValueError("one of them is bad")
    return list(batch)


def hangs(batch: EventBatch) -> Iterator[Event]:
    for event in batch:
        while is_bad(event):
            time.sleep(1)
        yield event


def eats(batch: EventBatch) -> Iterator[Event]:
    for event in batch:
        while is_bad(event):
            LEAK.append(b"x" * (1 << 20))
        yield event


def leaks(batch: EventBatch) -> Iterator[CloudEvent]:
    for event in batch:
        LEAK.append(b"x" * (40 << 20))
        yield event.to_cloudevent().replace({"pid": str(os.getpid())})


def says_its_pid(batch: EventBatch) -> Iterator[CloudEvent]:
    for event in batch:
        yield event.to_cloudevent().replace({"pid": str(os.getpid())})


def says_what_it_imported(batch: EventBatch) -> Iterator[CloudEvent]:
    for event in batch:
        heavy = sorted({"pyarrow", "pyspark", "numpy", "numba", "pandas"} & sys.modules.keys())
        yield event.to_cloudevent().replace({"heavy": ",".join(heavy) or "none"})


def floods_the_log(batch: EventBatch) -> Iterator[Event]:
    for event in batch:
        for number in range(2000):
            logging.getLogger("shop").info("line %s", number)
        yield event


def leave(event: Event) -> object:
    sys.exit(3)


def end(event: Event) -> object:
    os._exit(3)


def die(event: Event) -> object:
    os.abort()


def throw(event: Event) -> object:
    raise ValueError(f"cannot take {event.id} \udfff")


def break_a_rule(event: Event) -> object:
    return CloudEvent.unchecked({**event.to_cloudevent().attributes, "Not-Legal": "x"})


def forge(event: Event) -> object:
    """Write an answer of its own into the pipe to the worker."""
    write_frame(int(sys.argv[2]), dump(("hello", 1)))
    return time.sleep(60)


MISDEEDS: dict[str, Callable[[Event], object]] = {
    "leave": leave,
    "end": end,
    "die": die,
    "throw": throw,
    "return an object": lambda event: object(),
    "emit what is no JSON": lambda event: event.to_cloudevent().replace(data=Json(object())),
    "break a rule": break_a_rule,
    "flood": lambda event: event.to_cloudevent().replace(data=bytes(3 << 20)),
    "forge": forge,
}


def misbehaves(batch: EventBatch) -> Iterator[object]:
    for event in batch:
        yield MISDEEDS.get(str(event.attribute("bad")), lambda event: event)(event)


def forgets(batch: EventBatch) -> list[Event]:
    return [event for event in batch if not is_bad(event)]


def never_ends(batch: EventBatch) -> Iterator[Event]:
    while True:
        yield batch.records[0]


def returns_nothing(batch: EventBatch) -> None:
    list(batch)


def prints(batch: EventBatch) -> Iterator[Event]:
    log = logging.getLogger("shop")
    log.warning("before")
    for event in batch:
        print("printed")  # noqa: T201 - as users do
        os.write(1, b"raw\n")
        log.debug("looking closely")
        log.info("looking")
        yield event


def counts_parses(batch: EventBatch) -> Iterator[CloudEvent]:
    parsed: list[bytes] = []
    original = event_content.loads

    def counting(raw: bytes) -> Any:
        parsed.append(raw)
        return original(raw)

    event_content.loads = counting
    try:
        for event in batch:
            parsed.clear()
            asked = (event.attribute("a"), event.attribute_int("b"), event.attributes()["a"])
            event.to_cloudevent().json()
            yield event.to_cloudevent().replace({"parses": len(parsed), "asked": str(asked)})
    finally:
        event_content.loads = original


def looks(batch: EventBatch) -> Iterator[CloudEvent]:
    for event in batch:
        seen = (event.path, event.source_address, event.header("app"), event.timestamp.isoformat())
        yield event.to_cloudevent().replace(
            {"seen": str(seen), "list": str(batch.envelope.event_type), "listid": batch.envelope.id}
        )


def adds_a_header(batch: EventBatch) -> Iterator[Event]:
    for event in batch:
        yield event.appended({"trace": "t"}, by=Provenance.INVOKER)


def starts_another(batch: EventBatch) -> Iterator[Event]:
    """Leave a process behind that holds the pipe, then die."""
    started = os.fork()
    if started == 0:
        time.sleep(600)
    Path(os.environ["CALLS"]).write_text(str(started))
    os._exit(1)


def key_of(event: CloudEvent) -> str | bytes | None:
    return {"text": "k-" + event.id, "bytes": b"\xff", "none": None}[event.get("keyed") or "text"]


def throwing_key(event: CloudEvent) -> str:
    raise KeyError("region")


def bad_key(event: CloudEvent) -> int:
    return 7
