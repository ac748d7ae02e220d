"""The broker that keeps a group's offsets or a transaction (FindCoordinator v2); found again if it moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeVar

from penstock.brokers.kafka_raw.address import Address
from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import FIND_COORDINATOR, Call
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.metadata import read_address
from penstock.brokers.kafka_raw.refusal import check
from penstock.brokers.kafka_raw.retry import retrying
from penstock.errors import KafkaRefused, PenstockError
from penstock.wire.buffer import Buffer
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.primitives import CLASSIC

__all__ = ["Coordinator", "CoordinatorKind"]

_Result = TypeVar("_Result")
_STAYS = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Failures that pass by where they are; any other may mean that the coordinator has moved."""
_SOON = 0.001
"""CONCURRENT_TRANSACTIONS is said for the moment in which markers of the last one are written."""


class CoordinatorKind(IntEnum):
    """What is coordinated, as FindCoordinator numbers it."""

    GROUP = 0
    TRANSACTION = 1


class Coordinator:
    """Asks the coordinator of a group or of a transactional id, wherever it is."""

    def __init__(self, cluster: Cluster, kind: CoordinatorKind, key: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self._node: int | None = None

    def ask(self, call: Call, body: Sequence[Buffer], read: Callable[[Answer], _Result]) -> _Result:
        """Ask it until it answers, within the deadline of the cluster."""

        def attempt() -> _Result:
            if self._node is None:
                self._node = self._find()
            return self._cluster.ask(self._node, call, body, read)

        return retrying(
            attempt,
            seconds=self._cluster.settings.deadline,
            between=self._lost,
            first=_SOON,
            gives_up=self._cluster.gives_up,
        )

    def _lost(self, exc: PenstockError) -> None:
        if not isinstance(exc, KafkaRefused) or exc.error_code not in _STAYS:
            self._node = None

    def _find(self) -> int:
        body = (CLASSIC.string(self._key), bytes((self._kind,)))
        node, address = self._cluster.ask_any(FIND_COORDINATOR, body, self._read)
        self._cluster.known(node, address)
        return node

    def _read(self, answer: Answer) -> tuple[int, Address]:
        code, message = answer.int16(), answer.nullable_string()
        what = f"the coordinator of {self._kind.name.lower()} {self._key} is not known"
        check(code, what, why=message)
        return answer.int32(), read_address(answer)
