"""The dead letters that a topic holds: each once, without those that were restored; and how one is restored.

A letter that was restored stays in its topic: behind it comes a mark, an event of type RESTORED whose
causationid is the id of the letter, and whose recorddigest is that of the record in it. The mark is written
after the record, so that nothing is lost between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.brokers.kafka_records import publish, scan
from penstock.errors import EventError, RecordRefused, Refused
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.arrow.bindings import Binding
from penstock.pipeline.deadletter import TYPE, DeadLetter, read_dead_letter
from penstock.pipeline.plan.identity import ID_LENGTH, derived_id
from penstock.record import KafkaRecord

__all__ = [
    "MOST_LETTERS",
    "RESTORED",
    "Letter",
    "Letters",
    "by_reason",
    "read_letters",
    "refuse_without_record",
    "restore_letters",
]

RESTORED: Final = "io.penstock.deadletter.restored"
MOST_LETTERS: Final = 100_000
"""How many letters are held in memory; more are counted and left out."""
_CHUNK: Final = 500
_DIGEST: Final = "recorddigest"
_KAFKA: Final = KafkaBinding()

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter where it lies."""

    id: str
    source: str
    letter: DeadLetter
    stored: KafkaRecord

    @property
    def place(self) -> str:
        """Where it lies in its topic: partition and offset."""
        return f"{self.stored.partition}/{self.stored.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """What was found in a topic."""

    letters: tuple[Letter, ...]
    restored: int
    repeated: int
    """Letters that are there more than once: a job that was restarted wrote them again."""
    foreign: int
    """Records that are no dead letters of ours."""
    left_out: int


def read_letters(
    options: Options,
    topic: str,
    *,
    binding: Binding = _KAFKA,
    most: int = MOST_LETTERS,
    on_size: Callable[[int], None] | None = None,
) -> Letters:
    """Read every dead letter of a topic, which is written in a binding; the oldest comes first."""
    # Older letters of two clusters may share an id: they are the same only if their records are.
    found: dict[tuple[str, KafkaRecord], Letter] = {}
    # A mark of the version before has no digest: it covers every letter of its id.
    restored: dict[str, set[str | None]] = {}
    counts = {"repeated": 0, "foreign": 0, "left_out": 0}
    for record in scan(options, topic, on_size=on_size):
        event = _event(record, binding)
        if event is not None and event.type == RESTORED:
            restored.setdefault(str(event.get("causationid")), set()).add(event.get(_DIGEST))
            continue
        letter = _letter(event, record)
        if letter is None:
            counts["foreign"] += 1
        elif (key := (letter.id, letter.letter.record)) in found:
            counts["repeated"] += 1
        elif len(found) >= most:
            counts["left_out"] += 1
        else:
            found[key] = letter
    left = (letter for letter in found.values() if not _is_restored(letter, restored.get(letter.id, ())))
    # The partitions of a topic come in any order; records are restored in that in which they died.
    open_letters = tuple(sorted(left, key=lambda letter: letter.stored.timestamp or 0))
    return Letters(letters=open_letters, restored=len(found) - len(open_letters), **counts)


def _is_restored(letter: Letter, digests: Collection[str | None]) -> bool:
    return bool(digests) and (None in digests or _digest(letter.letter.record) in digests)


def _digest(record: KafkaRecord) -> str:
    """Tell records apart whose letters share an id; copies of a letter have the same one."""
    place = [record.topic, record.partition, record.offset, record.timestamp]
    headers = [[name, _hex(value)] for name, value in record.headers]
    parts = json.dumps([*place, _hex(record.key), _hex(record.value), headers])
    return hashlib.sha256(parts.encode()).hexdigest()[:ID_LENGTH]


def _hex(raw: bytes | None) -> str | None:
    return None if raw is None else raw.hex()


def _event(record: KafkaRecord, binding: Binding) -> CloudEvent | None:
    try:
        return binding.decode(record)
    except EventError:
        return None


def _letter(event: CloudEvent | None, record: KafkaRecord) -> Letter | None:
    if event is None or event.type != TYPE:
        return None
    try:
        return Letter(id=event.id, source=event.source, letter=read_dead_letter(event), stored=record)
    except EventError:
        return None


def restore_letters(
    letters: Sequence[Letter],
    *,
    to: Options,
    topic: str | None,
    marks: Options,
    binding: Binding = _KAFKA,
    keep_time: bool = False,
    on_restored: Callable[[int], None] | None = None,
) -> list[tuple[Letter, RecordRefused]]:
    """Write the records back as they were, to `topic` or to where each came from, and mark the letters.

    They get the time of now unless `keep_time`: a broker deletes a record that is older than its retention.
    If it is stopped, what was restored is marked up to the last chunk; a record of that chunk may come twice.
    Gives the letters whose record the topic refused, each with why: they stay open, the others are restored.
    Refused, before anything is written, if one of the letters does not keep its record.
    """
    refuse_without_record(letters)
    refused: list[tuple[Letter, RecordRefused]] = []
    left = list(letters)
    while left:
        records = [_restored(letter, topic, keep_time) for letter in left[:_CHUNK]]
        written, failed = _written(to, records, left)
        if written:
            publish(marks, (_mark(letter, binding) for letter in written))
        refused += failed
        done = {id(letter) for letter in (*written, *(letter for letter, _ in failed))}
        left = [letter for letter in left if id(letter) not in done]
        if on_restored is not None:
            on_restored(len(written))
    return refused


def _written(
    to: Options, records: Sequence[KafkaRecord], letters: Sequence[Letter]
) -> tuple[list[Letter], list[tuple[Letter, RecordRefused]]]:
    """Write the records of letters; give those that are written, and the one that was refused."""
    own = {id(record): letter for record, letter in zip(records, letters, strict=False)}
    sent: list[Letter] = []

    def on_sent(record: KafkaRecord) -> None:
        sent.append(own[id(record)])

    def named(record: KafkaRecord) -> str:
        return f"the record of letter {own[id(record)].id[:12]}"

    try:
        publish(to, records, on_sent=on_sent, named=named)
    except RecordRefused as exc:
        return sent, [(own[id(exc.record)], exc)]
    return list(own.values()), []


def refuse_without_record(letters: Sequence[Letter]) -> None:
    """Raise Refused if a letter does not keep its record: what would be written in its place is empty."""
    for letter in letters:
        if not letter.letter.kept:
            raise Refused(
                f"letter {letter.id} does not keep its record",
                where=letter.letter.origin,
                why="The record was too large for the dead-letter topic.",
                next="read the record at its origin while the topic has it, and publish it again",
            )


def _restored(letter: Letter, topic: str | None, keep_time: bool) -> KafkaRecord:
    record = letter.letter.record
    time = record.timestamp if keep_time else None
    if topic is None or topic == record.topic:
        return replace(record, offset=None, timestamp=time)
    # Another topic has other partitions: the key decides.
    return replace(record, topic=topic, partition=None, offset=None, timestamp=time)


def _mark(letter: Letter, binding: Binding) -> KafkaRecord:
    digest = _digest(letter.letter.record)
    event = CloudEvent(
        {
            "specversion": "1.0",
            "id": derived_id(f"restored {digest}", letter.source, letter.id),
            "source": letter.source,
            "type": RESTORED,
            "causationid": letter.id,
            _DIGEST: digest,
        }
    )
    record = binding.encode(event, key=letter.stored.key)
    return replace(record, topic=letter.stored.topic, partition=letter.stored.partition)


def by_reason(letters: Sequence[Letter]) -> Iterator[tuple[str, str | None, list[Letter]]]:
    """Group letters by code and route, the largest group first."""
    groups: dict[tuple[str, str | None], list[Letter]] = {}
    for letter in letters:
        groups.setdefault((letter.letter.code, letter.letter.route), []).append(letter)
    for (code, route), members in sorted(groups.items(), key=lambda group: -len(group[1])):
        yield code, route, members
