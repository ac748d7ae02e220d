"""Writes framed batches, each once and in order (idempotent, KIP-98): what is lost on the way is sent again.

Everything happens inside the calls; a caller who stops calling stops the producer. After an error that cannot
be mended the producer is done for, because what follows a missing batch would be refused. Only `offer`, which
waits for the answer to each batch, survives a batch that is refused for the sake of its records.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final, NamedTuple

from penstock.brokers.kafka_raw.calls import PRODUCE
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.identity import Identity, new_identity
from penstock.brokers.kafka_raw.lanes import Lanes
from penstock.brokers.kafka_raw.last_sequence import last_sequence
from penstock.brokers.kafka_raw.partition_queue import MOST_UNDER_WAY, Batch, PartitionQueue
from penstock.brokers.kafka_raw.produce_call import BatchError, ProduceAnswer, produce_request, read_produce
from penstock.brokers.kafka_raw.refusal import OF_RECORDS, refusal
from penstock.brokers.kafka_raw.retry import is_retriable
from penstock.errors import KafkaRefused, PenstockError, Unreachable, WireError
from penstock.wire.kafka.batch_body import BatchBody, framed
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["BatchRefusal", "Producer"]

_MIB: Final = 1024 * 1024
_TURN: Final = 0.05
_LOOK_AGAIN: Final = 0.01
_IN_THE_LOG: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})

_NOTHING_SAID: Final = BatchError()

_Request = list[tuple[PartitionQueue, Batch]]


class BatchRefusal(NamedTuple):
    """Why a broker refused a batch for the sake of its records."""

    code: int
    error: BatchError


class Producer:
    """An idempotent producer; `identity` is given by who has transactions.

    A batch must be acknowledged by all replicas in sync within `delivery_timeout`, all attempts together.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        identity: Identity | None = None,
        compression: str = "none",
        buffer_bytes: int = 32 * _MIB,
        request_bytes: int = 4 * _MIB,
        delivery_timeout: float = 120.0,
    ) -> None:
        self._cluster = cluster
        self._identity = identity or new_identity(cluster)
        self._compression = compression
        self._buffer_bytes = buffer_bytes
        self._request_bytes = request_bytes
        self._delivery_timeout = delivery_timeout
        self._lanes = Lanes(cluster)
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._requests: dict[int, deque[_Request]] = {}
        self._buffered = 0
        self._stale = False
        self._failure: PenstockError | None = None
        self._offered = 0
        """The records of the batch that is offered, 0 if none is."""
        self._refusal: BatchRefusal | None = None
        self.was_refused = False
        """Whether it is done for because of a batch that was refused for the sake of its records."""

    # What callers do

    def send(self, topic: str, partition: int, body: BatchBody) -> None:
        """Take a batch, which may be used again at once; wait while too much is not acknowledged."""
        self.enqueue(topic, partition, body)
        self.drain()

    def enqueue(self, topic: str, partition: int, body: BatchBody) -> None:
        """Take a batch and send nothing yet."""
        self._check()
        key = (topic, partition)
        queue = self._queues.get(key) or self._queues.setdefault(key, PartitionQueue(topic, partition))
        data = framed(
            body,
            compression=self._compression,
            producer_id=self._identity.producer_id,
            epoch=self._identity.epoch,
            sequence=queue.take_sequence(body.count),
            transactional=self._identity.transactional_id is not None,
        )
        queue.append(data, time.monotonic() + self._delivery_timeout)
        self._buffered += len(data)

    def drain(self) -> None:
        """Send what can be sent now; wait while too much is not acknowledged."""
        self._check()
        self._work(0.0)
        while self._buffered > self._buffer_bytes:
            self._work(_TURN)

    def offer(self, topic: str, partition: int, body: BatchBody) -> BatchRefusal | None:
        """Write a batch and wait until it is in the log; give why it was refused for the sake of its records.

        The sequences of a refused batch are given to the next one. If the answer to an earlier attempt was
        lost, that one may be in the log: what is written behind a refusal must not be relied on.
        """
        self.flush()
        self._offered, self._refusal = body.count, None
        try:
            self.enqueue(topic, partition, body)
            self.flush()
        finally:
            self._offered = 0
        return self._refusal

    @property
    def is_filling(self) -> bool:
        """Whether what is not acknowledged is little enough to wait for more before it is sent."""
        return self._buffered <= min(self._buffer_bytes, self._request_bytes) // 2

    def poll(self) -> None:
        """Take acknowledgments that are there, and send what waits."""
        self._check()
        self._work(0.0)

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        self._check()
        while self._buffered:
            self._work(_TURN)

    def settle(self) -> None:
        """Wait until nothing is under way, whatever becomes of it; nothing more is sent."""
        self._failure = self._failure or Unreachable("the producer was stopped")
        while any(lane.under_way for _, lane in self._lanes):
            for node in self._lanes.ready(_TURN):
                self._answers(node)
        self.close()

    def close(self) -> None:
        """Close the connections; what is not flushed is lost."""
        self._lanes.close()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # Turns

    def _work(self, timeout: float) -> None:
        try:
            self._turn(timeout)
        except PenstockError as exc:
            self._failure = exc
            raise

    def _turn(self, timeout: float) -> None:
        if self._stale:
            self._stale = False
            self._cluster.try_refresh({topic for topic, _ in self._queues})
        while self._send_some():
            pass
        if timeout and not any(lane.under_way for _, lane in self._lanes):
            time.sleep(min(timeout, _LOOK_AGAIN))
        for node in self._lanes.ready(timeout):
            self._take(node)
        now = time.monotonic()
        gives_up = self._cluster.gives_up()
        for queue in self._queues.values():
            if queue.overdue(now) or (gives_up and queue.failure is not None):
                raise self._too_late(queue)

    def _too_late(self, queue: PartitionQueue) -> PenstockError:
        return queue.failure or Unreachable(
            f"a batch was not acknowledged within {self._delivery_timeout:.0f} s",
            where=str(queue),
            next="look at the broker that leads the partition",
        )

    # Sending

    def _send_some(self) -> bool:
        """Send at most one request to each leader; say whether any was sent."""
        now = time.monotonic()
        nodes: dict[int, list[PartitionQueue]] = {}
        for queue in self._queues.values():
            if queue.can_send(now) and (node := self._leader(queue)) is not None and self._has_room(node):
                nodes.setdefault(node, []).append(queue)
        for node, queues in nodes.items():
            self._send(node, queues)
        return bool(nodes)

    def _leader(self, queue: PartitionQueue) -> int | None:
        try:
            if not queue.in_doubt:
                return self._cluster.leader(queue.topic, queue.partition).node
            self._find_place(queue)
        except PenstockError as exc:
            self._postpone(queue, exc)
        return None

    def _find_place(self, queue: PartitionQueue) -> None:
        """Ask which batches are in the log though the broker does not remember them; raise if none is."""
        refused = queue.failure
        assert refused is not None, "a queue is in doubt because a batch was refused"
        try:
            found = last_sequence(self._cluster, queue.topic, queue.partition, self._identity)
        except KafkaRefused as exc:
            # No right to look, or a broker without this request.
            raise (exc if exc.retriable else refused) from exc
        size = queue.found(found)
        if size is None:
            raise refused
        self._buffered -= size

    def _has_room(self, node: int) -> bool:
        lane = self._lanes.get(node)
        if lane is None or not lane.under_way:
            return lane is None or not lane.throttled
        return lane.under_way < MOST_UNDER_WAY and not lane.throttled and not lane.renewal_due

    def _send(self, node: int, queues: list[PartitionQueue]) -> None:
        request: _Request = []
        size = 0
        for queue in queues:
            request.append((queue, queue.take()))
            size += len(request[-1][1].data)
            if size > self._request_bytes:
                break
        timeout = int(self._cluster.settings.request_timeout * 1000)
        batches = [(queue.topic, queue.partition, batch.data) for queue, batch in request]
        body = produce_request(self._identity.transactional_id, timeout, batches)
        self._requests.setdefault(node, deque()).append(request)
        try:
            self._lanes.to(node).send(PRODUCE, body)
        except PenstockError as exc:
            self._lost(node, exc)

    # Taking answers

    def _take(self, node: int) -> None:
        answer = self._answers(node)
        if isinstance(answer, PenstockError):
            self._lost(node, answer)
            return
        for queue, batch in self._requests[node].popleft():
            code = answer.codes.get((queue.topic, queue.partition))
            if code is None:
                raise WireError("the broker left out a partition that it was sent", where=str(queue))
            self._settle(queue, batch, code, answer.errors.get((queue.topic, queue.partition), _NOTHING_SAID))

    def _answers(self, node: int) -> ProduceAnswer | PenstockError:
        lane = self._lanes[node]
        try:
            answer = read_produce(lane.receive())
        except PenstockError as exc:
            self._lanes.drop(node)
            return exc
        lane.throttle(answer.throttle_ms)
        return answer

    def _settle(self, queue: PartitionQueue, batch: Batch, code: int, error: BatchError) -> None:
        if code in _IN_THE_LOG:
            queue.acknowledged(batch)
            self._buffered -= len(batch.data)
            return
        if code in OF_RECORDS and self._offered:
            queue.withdraw(batch, self._offered)
            self._buffered -= len(batch.data)
            self._refusal = BatchRefusal(code, error)
            return
        self.was_refused = self.was_refused or code in OF_RECORDS
        what = f"a batch of {len(batch.data)} bytes was refused"
        self._failed(queue, batch, refusal(code, what, where=str(queue), why=error.message))

    def _failed(self, queue: PartitionQueue, batch: Batch, exc: PenstockError) -> None:
        if isinstance(exc, KafkaRefused) and exc.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            queue.out_of_order(batch, exc)
        elif is_retriable(exc):
            queue.failed(exc)
        else:
            raise exc
        self._stale = True

    def _postpone(self, queue: PartitionQueue, exc: PenstockError) -> None:
        if not is_retriable(exc):
            raise exc
        queue.postpone(exc)
        self._stale = True

    def _lost(self, node: int, exc: PenstockError) -> None:
        """Send again what was under way to a broker: it may be in the log or not, and is told apart there."""
        self._lanes.drop(node)
        for request in self._requests.pop(node, deque()):
            for queue, batch in request:
                self._failed(queue, batch, exc)
