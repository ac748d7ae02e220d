"""The fused engine: one range of one partition, from Kafka's bytes to Kafka's bytes; no Spark is known here.

Done with transactions (reference: KIP-98 and KIP-447): InitProducerId under the name of (group, topic,
partition) fences who worked on it before, the committed offset of the group says what is done, the loop goes
on from there, and the output and the new mark are one transaction. So a range may be given out any number of
times and is done once. A partition must not be cut between two: each would fence the other. At least once it
may be; then nothing inside of a part is marked, and a part that is interrupted is done again as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from time import monotonic
from typing import Final

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.group_offsets import GroupOffsets
from penstock.errors import JobFailed, KafkaRefused, Refused
from penstock.pipeline.fused.feed import Feed
from penstock.pipeline.fused.mark import Mark, read_mark
from penstock.pipeline.fused.narrowing import redo
from penstock.pipeline.fused.outlet import Outlet, opened
from penstock.pipeline.fused.spans import Span
from penstock.pipeline.fused.work import TRANSACTION_SECONDS, Work

__all__ = ["run_range", "run_ranges"]

_LONGEST: Final = TRANSACTION_SECONDS / 4
"""A transaction is committed after so many seconds, and the range goes on in the next one."""
_PATIENCE: Final = 120.0
"""So long may nothing at all come of a range that the broker said is there."""
_TURN: Final = 1.0


def run_ranges(work: Work, spans: Iterable[Span]) -> Counter[str]:
    """Do several ranges one after the other; give what was counted."""
    spans = tuple(spans)
    parts = [span.partition for span in spans if not span.is_cut]
    is_cut = len(parts) < len(spans)
    if len(set(parts)) < len(parts) or (is_cut and work.exactly_once):
        raise Refused(
            "a partition was cut into several ranges",
            where=work.topic,
            why="Exactly once, a partition has one mark and one transaction at a time.",
            next="--at-least-once allows it",
        )
    counts: Counter[str] = Counter()
    with Cluster(work.settings) as cluster:
        for span in spans:
            counts.update(run_range(work, span, cluster))
    return counts


def run_range(work: Work, span: Span, cluster: Cluster) -> Counter[str]:
    """Do a range, or what is left of it; give what was counted by all who ever worked on it."""
    with opened(work, cluster, str(span.partition), marks=not span.is_cut) as outlet:
        mark = Mark(span.start, span.start) if span.is_cut else _mark(work, span, cluster)
        if mark.offset < span.end:
            mark = _finished(work, span, cluster, outlet, mark)
        return Counter(mark.counts)


def _mark(work: Work, span: Span, cluster: Cluster) -> Mark:
    found = GroupOffsets(cluster, work.group).committed(work.topic).get(span.partition)
    return read_mark(span.start, *((None, "") if found is None else (found.offset, found.metadata)))


def _finished(work: Work, span: Span, cluster: Cluster, outlet: Outlet, mark: Mark) -> Mark:
    part, quiet = span.partition, monotonic()
    short_until = -1  # what a topic refused is looked for in short transactions up to this offset
    with closing(Feed(work, cluster, outlet.put, {part: mark.offset}, {part: span.end})) as feed:
        while feed.waiting:
            is_short = mark.offset < short_until
            try:
                advanced = _advanced(feed, outlet, part, mark, 0.0 if is_short else _LONGEST)
            except KafkaRefused:
                if not outlet.was_refused:
                    raise
                outlet.restart()
                advanced, short_until = mark, feed.reached[part]
                limits: Mapping[int, int] = {}
                if is_short:
                    advanced, limits = _redone(work, cluster, outlet, part, mark, short_until)
                feed.rewind({part: advanced.offset}, limits)
                quiet = monotonic()
            if advanced is not mark:
                mark, quiet = advanced, monotonic()
            elif monotonic() - quiet > _PATIENCE:
                raise JobFailed(
                    f"nothing came for {_PATIENCE:.0f} s",
                    where=f"{work.topic}, partition {part}, offset {mark.offset}",
                    why=f"The range ends at {span.end}.",
                    next="run again: the checkpoint knows where to go on",
                )
    return mark


def _advanced(feed: Feed, outlet: Outlet, part: int, mark: Mark, seconds: float) -> Mark:
    """Do one transaction of so many seconds, and give its mark; the same mark if nothing came."""
    if not _filled(feed, seconds):
        return mark
    feed.flush()
    advanced = mark.advanced(feed.positions[part], feed.taken())
    outlet.commit({part: advanced})
    return advanced


def _redone(
    work: Work, cluster: Cluster, outlet: Outlet, part: int, mark: Mark, end: int
) -> tuple[Mark, Mapping[int, int]]:
    """Do a range in which records were refused again, so that they become dead letters."""

    def commit(offset: int, counts: Mapping[str, int]) -> None:
        nonlocal mark
        advanced = mark.advanced(offset, counts)
        outlet.commit({part: advanced})
        mark = advanced

    limits = redo(work, cluster, outlet, part, mark.offset, end, commit)
    return mark, limits


def _filled(feed: Feed, seconds: float) -> bool:
    """Feed until the range ends or the transaction is long enough; say whether anything came."""
    began, moved = monotonic(), feed.poll(_TURN)
    while feed.waiting and monotonic() - began < seconds:
        moved |= feed.poll(_TURN)
    return moved
