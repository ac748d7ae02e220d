"""A source on Pulsar, as the workers that read it are told of it; no kernel is imported here.

The client of Pulsar parses frames with kernels. A driver whose sources are all on Kafka never loads them;
one with a source on Pulsar loads them when that is prepared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.pipeline.delivery.pulsar.cluster import PulsarSettings
    from penstock.pipeline.delivery.pulsar.log import Numbering

__all__ = ["PulsarSource"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSource:
    """One topic on Pulsar; it pickles, and its settings show no secret."""

    settings: PulsarSettings
    topic: str
    partitions: int
    """How many it had when it was looked at; 0 for a topic without partitions, which stays one."""
    incarnation: str
    """What a topic that is deleted and made again does not keep; empty if the broker does not say."""
    numbering: Numbering
    subscription: str
    """The durable subscription that keeps what was not read and shows the backlog."""

    @property
    def is_indexed(self) -> bool:
        """Whether positions are the broker's index: ids of output are made of it."""
        return self.numbering.value == "index"
