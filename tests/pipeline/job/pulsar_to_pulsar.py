"""A project whose routes read Pulsar and send to Pulsar, alone or beside Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pulsar_project import PulsarSide
from to_pulsar import ToPulsar, ask

__all__ = ["PulsarToPulsar"]


@dataclass(kw_only=True)
class PulsarToPulsar(ToPulsar):
    """Channels in, pout and pdead are on Pulsar; out and dead on Kafka, if `servers` has one."""

    source_partitions: int = 2

    @property
    def channels(self) -> tuple[str, ...]:
        on_kafka = ("out", "dead") if self.servers else ()
        return ("in", "pout", "pdead", *on_kafka)

    def is_on_pulsar(self, channel: str) -> bool:
        return channel == "in" or channel.startswith("p")

    def create(self, partitions: int = 2, settings: Any = None, *, targets: int = 2) -> PulsarToPulsar:
        """Create the topics: `in` with so many partitions, 0: without."""
        self.source_partitions = partitions
        for channel in self.channels:
            if not self.is_on_pulsar(channel):
                self.admin(channel).create_topic(self.topic(channel), partitions=2, replicas=1, settings={})
                continue
            count = partitions if channel == "in" else targets
            if count:
                ask(self.pulsar, "PUT", f"{self.path(channel)}/partitions", count)
            else:
                ask(self.pulsar, "PUT", self.path(channel))
        return self

    def write(self, route: Mapping[str, Any] | None = None, *, dead: str = "pdead", **pipeline: Any) -> Any:
        super().write(route, dead=dead, **pipeline)
        path = self.folder / "asyncapi.yaml"
        contract = json.loads(path.read_text(encoding="utf-8"))
        if not self.servers:
            del contract["operations"]["send"]  # to Kafka
        path.write_text(json.dumps(contract), encoding="utf-8")
        return self

    @contextmanager
    def source(self) -> Iterator[PulsarSide]:
        """A plain client that writes what is read."""
        side = PulsarSide(self.pulsar, self.topic("in"), self.source_partitions)
        try:
            yield side
        finally:
            side.close()

    def send(self, numbers: Iterable[int], **said: Any) -> None:
        """Write events, and behind every hundredth what is none."""
        with self.source() as side:
            side.send(numbers, **{"poison": 100, "keys": 50, **said})

    def progress_topics(self) -> list[str]:
        """Name the topics of the namespace that hold marks."""
        found = ask(self.pulsar, "GET", f"persistent/{self.namespace}")
        return sorted(each for each in found if "/__penstock_progress-" in each)
