"""What the planner of a topic on Pulsar takes a message to weigh; the broker is a fake."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from penstock.pipeline.delivery.pulsar.log import Numbering
from penstock.pipeline.delivery.pulsar.planner import PulsarPlanner


def test_the_size_of_a_message_is_that_of_those_that_are_left() -> None:
    """A topic of which much was removed has few messages, and a high index."""
    asked: list[Mapping[int, int]] = []

    def sizes(topic: str, held: Mapping[int, int]) -> dict[int, float]:
        asked.append(held)
        return dict.fromkeys(held, 10.0)

    client: Any = SimpleNamespace(earliest=lambda topic: {0: 900, 1: 0}, sizes=sizes)
    planner = PulsarPlanner.__new__(PulsarPlanner)
    planner.topic, planner.source = "t", SimpleNamespace(numbering=Numbering.INDEX)  # type: ignore[assignment]
    planner._client, planner._sizes, planner._sized_at = client, None, 0.0
    planner._known = {0: 1000, 1: 50, 2: 7}
    assert planner._bytes_per_offset({0: 950, 1: 0}) == {0: 10.0, 1: 10.0}
    assert asked == [{0: 100, 1: 50}]


def test_a_batch_ends_behind_an_entry_that_claims_very_many_messages() -> None:
    """Batches of a million offsets were planned through two thousand million that hold one message."""
    asked: list[Mapping[int, int]] = []

    def behind(topic: str, positions: Mapping[int, int]) -> dict[int, int]:
        asked.append(positions)
        return {0: 1 << 31}

    client: Any = SimpleNamespace(behind_entries=behind)
    planner = PulsarPlanner.__new__(PulsarPlanner)
    planner.topic, planner._client = "t", client
    latest = {0: (1 << 31) + 5, 1: 90, 2: 7}
    ends = planner._past_holes({0: 1, 1: 0, 2: 7}, {0: 1000, 1: 40, 2: 7}, latest)
    assert ends == {0: 1 << 31, 1: 40, 2: 7}
    assert asked == [{0: 1}]
    assert planner._past_holes({1: 0}, {1: 40}, latest) == {1: 40} and len(asked) == 1
