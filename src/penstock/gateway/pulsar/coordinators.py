"""Which gateway coordinates which groups: the partitions of the offsets topic, spread over the live gateways.

All gateways compute the same from who lives. The one whose turn it is takes the partition's log, which
fences the one that had it; one that was fenced, has lost its lease, or hears of a higher epoch stops at
once and sends clients on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from penstock.brokers.pulsar import Admin, Host, PulsarClient
from penstock.brokers.pulsar.tasks import Tasks
from penstock.errors import AccessDenied, ApiError, ClusterError, PenstockError
from penstock.gateway.groups.group import Limits
from penstock.gateway.groups.group_store import elsewhere
from penstock.gateway.groups.placing import node_of, partition_of
from penstock.gateway.groups.schemas import Record
from penstock.gateway.groups.shard import Shard
from penstock.gateway.pulsar.membership import Membership, Peer
from penstock.gateway.pulsar.names import partition_topic
from penstock.gateway.pulsar.offsets_log import OffsetsLog, mark_record
from penstock.wire.kafka import ErrorCode

__all__ = ["NAMESPACE", "PARTITIONS", "PulsarGroups"]

log = logging.getLogger("penstock.gateway")

NAMESPACE: Final = "public/__kafka"
PARTITIONS: Final = 8
"""Kafka has 50, one file each; here each is a topic that a gateway opens and reads at takeover. Eight are
enough to spread groups over as many gateways, and groups of one partition do not wait for each other."""
_OFFSETS: Final = "__consumer_offsets"
_GATEWAYS: Final = "__gateways"
_COMPACT_FROM: Final = 16 * 1024 * 1024
_KEEP: Final = {"retentionTimeInMinutes": -1, "retentionSizeInMB": 512}
"""What is not compacted yet is kept by the cursor of the compaction; this is for before there is one."""
_KEEP_NOTHING: Final = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
_GRACE: Final = 3.0
_LONGEST_PEACE: Final = 60.0
_PROVE_AFTER: Final = 1.0
"""Seconds of opening and reading after which it is asked once more whether the partition is ours."""
_RETRY: Final = 0.5
_LONGEST_RETRY: Final = 8.0


class PulsarGroups:
    """The groups of this gateway, and where all others are."""

    def __init__(
        self,
        client: PulsarClient,
        admin: Admin,
        *,
        namespace: str = NAMESPACE,
        partitions: int = PARTITIONS,
        limits: Limits | None = None,
        keeps_cursors: bool = False,
        tasks: Tasks | None = None,
    ) -> None:
        self.partitions = partitions
        self._tasks = tasks or Tasks()
        self._client = client
        self._admin = admin
        self._namespace = namespace
        self._limits = limits
        self._keeps_cursors = keeps_cursors
        self._topic = f"persistent://{namespace}/{_OFFSETS}"
        self._led: dict[int, tuple[Shard, OffsetsLog]] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = True
        self.on_view: Callable[[Sequence[Peer]], None] = lambda peers: None
        """Hears at each beat which gateways live, while this one does."""
        self._unproven: set[int] = set()
        """Partitions that somebody may have taken while this gateway had no lease."""
        self._not_before: dict[int, float] = {}
        self._losses: dict[int, int] = {}
        self._taken_at: dict[int, float] = {}
        self.membership = Membership(
            client,
            admin,
            f"persistent://{namespace}/{_GATEWAYS}",
            on_beat=self._look,
            held=lambda: {partition: kept.epoch for partition, (_, kept) in self._led.items()},
            tasks=self._tasks,
        )

    @property
    def node_id(self) -> int:
        """This gateway."""
        return self.membership.node_id

    # The port

    def shard(self, group_id: str) -> Shard:
        """Give the shard of a group, if it is here."""
        if self._closed:
            raise ApiError("not ready", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = partition_of(group_id, self.partitions)
        if not self.membership.has_lease or self._owner(partition) != self.node_id:
            raise ApiError("another gateway coordinates it", error_code=ErrorCode.NOT_COORDINATOR)
        if partition not in self._led or partition in self._unproven:
            raise ApiError("being read", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._led[partition][0]

    def shards(self) -> Sequence[Shard]:
        """Give all shards that are here."""
        if self._closed or self._opening or self._unproven or not self.membership.has_lease:
            raise ApiError("being read", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [shard for shard, _ in self._led.values()]

    async def coordinator(self, group_id: str) -> int:
        """Give the gateway whose turn it is."""
        return self._owner(partition_of(group_id, self.partitions))

    def _owner(self, partition: int) -> int:
        return node_of(f"group {partition}", self.membership.live())

    # The life

    async def start(
        self, node_id: int, addresses: Sequence[Host], beside: Sequence[Host] | None = None
    ) -> None:
        """Make the topics if need be, join the other gateways, and take what is ours."""
        await self._make_topics()
        self._closed = False
        await self.membership.start(node_id, addresses, beside)

    async def close(self) -> None:
        """Let go of everything, in order: nobody here answers for a group when another gateway begins to."""
        self._closed = True
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for partition in list(self._led):
            self._let_go(partition)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self.membership.close()

    async def _make_topics(self) -> None:
        await self._admin.create_namespace(self._namespace)
        gateways = f"persistent://{self._namespace}/{_GATEWAYS}"
        known = await self._admin.partitioned_topics(self._namespace)
        if self._topic not in known:
            await self._make(self._topic, self.partitions)
        await self._complete_policies()
        if gateways not in await self._admin.topics(self._namespace):
            await self._make(gateways, 0)
            await self._admin.set_policy(gateways, "retention", _KEEP_NOTHING)
        # Another gateway may have been started with another number: the topic decides.
        self.partitions = await self._client.partitions(self._topic)

    async def _complete_policies(self) -> None:
        """Set the policies of the offsets topic that it does not have.

        The gateway that made it may have ended before it set them. Without retention Pulsar removes offsets.
        """
        for name, value in (("retention", _KEEP), ("compactionThreshold", _COMPACT_FROM)):
            try:
                if await self._admin.policy(self._topic, name) is None:
                    await self._admin.set_policy(self._topic, name, value)
            except AccessDenied as exc:
                log.info("the policies of the offsets topic are not for this role: %s", exc)
                return

    async def _make(self, topic: str, partitions: int) -> None:
        try:
            await self._admin.create_topic(topic, partitions)
        except ClusterError:
            # Another gateway may have been faster.
            names = await self._admin.topics(self._namespace)
            if not any(name.startswith(topic) for name in names):
                raise

    # Who has what

    def _look(self) -> None:
        """Take what is ours now, let go of what is not."""
        if self._closed:
            return
        if not self.membership.has_lease:
            self._unproven.update(self._led)
            return
        higher = self._claimed_by_others()
        for partition in list(self._led):
            mine = self._owner(partition) == self.node_id
            if not mine or higher.get(partition, -1) > self._led[partition][1].epoch:
                log.info("gives partition %d of the groups away", partition)
                self._let_go(partition)
            elif partition in self._unproven:
                self._prove(partition)
        for partition in range(self.partitions):
            mine = self._owner(partition) == self.node_id and partition not in self._led
            if mine and self._may_take(partition, partition in higher):
                self._take_later(partition)
        self.on_view(self.membership.peers())

    def _prove(self, partition: int) -> None:
        """Write under our epoch: if that works, nobody has taken the partition meanwhile."""
        kept = self._led[partition][1]

        def proven(done: asyncio.Future[None]) -> None:
            # Looked at first: several are under way, and the first that fails lets the partition go.
            error = None if done.cancelled() else done.exception()
            if done.cancelled() or partition not in self._led or self._led[partition][1] is not kept:
                return
            if error is not None:
                self._failed(partition, error)
            elif self.membership.has_lease:
                self._unproven.discard(partition)

        kept.append([self._mark()]).add_done_callback(proven)

    def _mark(self) -> Record:
        return mark_record(f"node {self.node_id}")

    def _may_take(self, partition: int, is_claimed: bool) -> bool:
        """Give one who has it time to let it go, and do not fight with one who does not hear us."""
        now = asyncio.get_running_loop().time()
        if is_claimed:
            self._not_before.setdefault(partition, now + _GRACE)
        if now < self._not_before.get(partition, now):
            return False
        self._not_before.pop(partition, None)
        return True

    def _claimed_by_others(self) -> dict[int, int]:
        claims: dict[int, int] = {}
        for peer in self.membership.peers():
            if peer.node_id != self.node_id:
                for partition, epoch in peer.held.items():
                    claims[partition] = max(epoch, claims.get(partition, -1))
        return claims

    def _take_later(self, partition: int) -> None:
        if partition not in self._opening:
            task = self._tasks.start(self._take(partition), name=f"take partition {partition} of the groups")
            self._opening[partition] = task
            task.add_done_callback(lambda done: self._taken(partition, done))

    def _taken(self, partition: int, done: asyncio.Task[None]) -> None:
        self._opening.pop(partition, None)
        if not done.cancelled() and done.exception() is not None:
            # Not at the next beat already: what failed unforeseen will fail again.
            self._not_before[partition] = asyncio.get_running_loop().time() + _LONGEST_RETRY

    async def _take(self, partition: int) -> None:
        delay = _RETRY
        while not self._closed and self._owner(partition) == self.node_id:
            began = asyncio.get_running_loop().time()
            try:
                topic = partition_topic(self._topic, partition)
                opened = await OffsetsLog.open(self._client, topic, mark=self._mark())
            except PenstockError as exc:
                log.warning("cannot read partition %d of the groups, tries again: %s", partition, exc)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_RETRY)
                continue
            try:
                if await self._read(partition, *opened, began):
                    return
            except BaseException:
                await opened[0].close()
                raise

    async def _read(self, partition: int, kept: OffsetsLog, records: list[Record], began: float) -> bool:
        """Read a log, opened since `began`, and coordinate its groups; False if it was lost meanwhile."""
        shard = Shard(
            kept,
            self._limits,
            on_failure=lambda error: self._failed(partition, error),
            keeps_cursors=self._keeps_cursors,
        )
        kept.watch(shard.fail)
        try:
            await shard.load(records)
            if asyncio.get_running_loop().time() - began > _PROVE_AFTER:
                # Long enough for others to have taken it: what was read may be what was once.
                await kept.append([self._mark()])
            if shard.closed:
                # A timer of a group that was read first has written, and failed.
                raise elsewhere()
        except PenstockError as exc:
            log.warning("partition %d of the groups was lost while it was read: %s", partition, exc)
            shard.close()
            await kept.close()
            return False
        except BaseException:
            shard.close()
            raise
        self._led[partition] = (shard, kept)
        self._taken_at[partition] = asyncio.get_running_loop().time()
        log.info("coordinates partition %d of the groups: %d records", partition, len(records))
        return True

    def _failed(self, partition: int, error: BaseException) -> None:
        log.warning("partition %d of the groups was lost: %s", partition, error)
        now = asyncio.get_running_loop().time()
        was_short = now - self._taken_at.get(partition, 0.0) < _LONGEST_PEACE
        self._losses[partition] = losses = self._losses.get(partition, 0) + 1 if was_short else 0
        self._not_before[partition] = now + min(_RETRY * 2**losses, _LONGEST_PEACE)
        self._let_go(partition)

    def _let_go(self, partition: int) -> None:
        found = self._led.pop(partition, None)
        self._unproven.discard(partition)
        if found is not None:
            shard, kept = found
            shard.close()
            task = self._tasks.start(kept.close(), name=f"let go of partition {partition} of the groups")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
