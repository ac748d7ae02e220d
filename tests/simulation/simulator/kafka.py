"""A Kafka of some brokers behind the bytes of its protocol, in the versions that our own client speaks.

What is acknowledged is with all replicas and stays; leaders move, brokers go and come back, coordinators are
away for a while, and what a broker tells of the cluster is of a moment ago.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    DESCRIBE_PRODUCERS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    RENEW_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    Call,
)
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.primitives import CLASSIC, COMPACT
from simulator.kafka_link import Links
from simulator.kafka_log import PartitionLog
from simulator.kafka_transactions import GroupTable, Place, Transactions
from simulator.threads import World

__all__ = ["Kafka", "Led"]

Reply = Callable[[bytes], None]
_HEAD: Final = struct.Struct(">hhih")
_NO_THROTTLE: Final = bytes(4)
_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_MARKER_PAUSE: Final = 0.5
_WAITED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


@dataclass(slots=True)
class Led:
    """A partition, who leads it since which election, and who waits for the replicas."""

    log: PartitionLog
    node: int | None
    epoch: int = 0
    told: tuple[int | None, int] = (None, 0)
    """Leader and epoch as brokers tell them."""
    waiting: list[tuple[int, Callable[[int], None]]] = field(default_factory=list)


class Kafka:
    """Brokers by number; the state that all of them share."""

    def __init__(
        self,
        world: World,
        note: Callable[[str, str], None],
        *,
        nodes: int,
        verifies: bool,
        host: str = "sim",
    ) -> None:
        self.world = world
        self.host = host
        """What tells the brokers of one cluster from those of another."""
        self.note = note
        self.nodes = range(1, nodes + 1)
        self.verifies = verifies
        """Whether leaders ask the coordinator about new transactions (KIP-890)."""
        self.links = Links(world, self, note, host)
        self.partitions: dict[Place, Led] = {}
        self.groups = GroupTable()
        self.transactions = Transactions(world, self.groups, self.send_marker, note)
        self.coordinator: int | None = 1
        self.refusals = 0.0
        """The chance that a leader or coordinator refuses for a moment."""
        self.fetch_bytes = 1 << 20
        """What a broker gives of a partition at once (fetch.max.bytes)."""
        self.refuses: Callable[[str, bytes], tuple[int, tuple[int, ...]] | None] = lambda topic, data: None
        """Whether a topic refuses a batch for the sake of its records: the code, and those that are named."""
        self.on_commit: Callable[[str, dict[Place, tuple[int, str]]], None] = lambda group, offsets: None
        self.owners: list[str] = []
        """The clients that took a transactional id, in their order."""
        self._down: set[int] = set()
        self._client = ""
        self._looking: list[Callable[[], None]] = []
        self._serving: dict[Call, Callable[[int, Answer, Reply], None]] = {
            API_VERSIONS: self._api_versions,
            METADATA: self._metadata,
            FIND_COORDINATOR: self._find_coordinator,
            INIT_PRODUCER_ID: self._init_producer_id,
            RENEW_PRODUCER_ID: self._renew_producer_id,
            PRODUCE: self._produce,
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            DESCRIBE_PRODUCERS: self._describe_producers,
            ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ADD_OFFSETS_TO_TXN: self._add_offsets,
            TXN_OFFSET_COMMIT: self._txn_offset_commit,
            END_TXN: self._end_txn,
            OFFSET_COMMIT: self._offset_commit,
            OFFSET_FETCH: self._offset_fetch,
        }

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic."""
        for number in range(partitions):
            node = self.world.random.choice(self.nodes)
            self.partitions[topic, number] = Led(PartitionLog(topic, number), node, told=(node, 0))

    # What happens to brokers

    def is_up(self, node: int) -> bool:
        """Say whether a broker runs."""
        return node in self.nodes and node not in self._down

    def stop(self, node: int) -> None:
        """Let a broker die; others lead its partitions after a while, if there are others."""
        self.note("kafka", f"broker {node} dies")
        self._down.add(node)
        for link in self.links.of(node):
            link.cut()
        if self.coordinator == node:
            self._move_coordinator()
        for led in self.partitions.values():
            if led.node == node:
                self._elect(led, crashed=True)

    def start(self, node: int) -> None:
        """Let it come back."""
        if node in self._down:
            self.note("kafka", f"broker {node} is back")
            self._down.discard(node)

    def mend(self) -> None:
        """Let all brokers run, and all partitions have leaders."""
        for node in self.nodes:
            self.start(node)
        if self.coordinator is None:
            self._new_coordinator()
        for led in self.partitions.values():
            self._elected(led)

    def move_leader(self, place: Place) -> None:
        """Let another broker lead a partition."""
        self._elect(self.partitions[place], crashed=False)

    def take_away(self, place: Place, seconds: float) -> None:
        """Let a partition be without a leader."""
        led = self.partitions[place]
        self.note("kafka", f"{led.log} has no leader for {seconds:.0f} s")
        self._elect(led, crashed=False, seconds=seconds)

    def send_coordinator_away(self, seconds: float) -> None:
        """Let the coordinator be nowhere for a while."""
        self.note("kafka", f"the coordinator is away for {seconds:.1f} s")
        self._move_coordinator(seconds)

    def _move_coordinator(self, seconds: float | None = None) -> None:
        self.coordinator = None
        pause = self.world.random.choice((0.1, 2.0, 8.0)) if seconds is None else seconds
        self.world.after(pause, self._new_coordinator)

    def _new_coordinator(self) -> None:
        up = [node for node in self.nodes if self.is_up(node)]
        if not up:
            self.world.after(1.0, self._new_coordinator)
        elif self.coordinator is None:
            self.coordinator = self.world.random.choice(up)

    def _elect(self, led: Led, *, crashed: bool, seconds: float | None = None) -> None:
        led.node = None
        self._changed()
        waiting, led.waiting = led.waiting, []
        for _, settle in waiting:
            settle(_NOT_LEADER)
        if crashed or self.world.random.random() < 0.3:
            end = self.world.random.choice((led.log.high_watermark, led.log.end))
            led.log.lose(end, forgetful=crashed and self.world.random.random() < 0.5)
        pause = self.world.random.choice((0.01, 0.5, 3.0)) if seconds is None else seconds
        self.world.after(pause, lambda: self._elected(led))

    def _elected(self, led: Led) -> None:
        if led.node is not None:
            return
        up = [node for node in self.nodes if self.is_up(node)]
        if not up:
            self.world.after(1.0, lambda: self._elected(led))
            return
        led.node, led.epoch = self.world.random.choice(up), led.epoch + 1
        self.note("kafka", f"{led.node} leads {led.log}, epoch {led.epoch}")
        self._replicated(led, led.log.end, led.epoch)
        news = (led.node, led.epoch)
        self.world.after(self.world.random.choice((0.0, 0.2, 2.0)), lambda: self._tell(led, news))

    @staticmethod
    def _tell(led: Led, news: tuple[int, int]) -> None:
        if news[1] > led.told[1]:
            led.told = news

    # Logs

    def append(self, place: Place, data: bytes) -> bool:
        """Write as a producer that is not simulated; False while there is no leader."""
        led = self.partitions[place]
        if led.node is None:
            return False
        led.log.append(data)
        led.log.high_watermark = led.log.end
        self._changed()
        return True

    def send_marker(
        self, place: Place, producer_id: int, epoch: int, committed: bool, done: Callable[[], None]
    ) -> None:
        """Write a marker; again until all replicas have it."""
        led = self.partitions[place]

        def settle(code: int) -> None:
            if code:
                self.world.after(_MARKER_PAUSE, again)
            else:
                done()

        def again() -> None:
            self.send_marker(place, producer_id, epoch, committed, done)

        if led.node is None:
            settle(_NOT_LEADER)
        else:
            self._await(led, led.log.mark(producer_id, epoch, committed=committed), settle)

    def _await(self, led: Led, behind: int, settle: Callable[[int], None]) -> None:
        """Call back when all replicas have what is before an offset, or the leader changes."""
        led.waiting.append((behind, settle))
        end, epoch = led.log.end, led.epoch
        pause = self.world.random.choice((0.0001, 0.001, 0.02, 0.3))
        self.world.after(pause, lambda: self._replicated(led, end, epoch))

    def _replicated(self, led: Led, end: int, epoch: int) -> None:
        if led.node is None or led.epoch != epoch:
            return
        log = led.log
        log.high_watermark = max(log.high_watermark, end)
        ready = [settle for behind, settle in led.waiting if behind <= log.high_watermark]
        led.waiting = [each for each in led.waiting if each[0] > log.high_watermark]
        for settle in ready:
            settle(0)
        self._changed()

    # Requests

    def serve(self, node: int, frame: bytes, answer: Reply) -> None:
        """Do a request."""
        key, version, correlation, size = _HEAD.unpack_from(frame)
        call = Call(key, version)
        begin = _HEAD.size + size + call.flexible
        self._client = frame[_HEAD.size : _HEAD.size + size].decode()
        head = struct.pack(">i", correlation) + (b"\0" if call.flexible else b"")
        body = Answer(memoryview(frame)[begin:], flexible=call.flexible)
        self._serving[call](node, body, lambda found: answer(head + found))

    def _refused(self, *codes: int) -> int:
        return self.world.random.choice(codes) if self.world.random.random() < self.refusals else 0

    def _api_versions(self, node: int, ask: Answer, reply: Reply) -> None:
        rows = [struct.pack(">hhh", call.key, 0, call.version) for call in self._serving]
        reply(struct.pack(">hi", 0, len(rows)) + b"".join(rows))

    def _metadata(self, node: int, ask: Answer, reply: Reply) -> None:
        topics = ask.array(ask.string)
        brokers = [struct.pack(">i", each) + self._address(each) for each in self.nodes if self.is_up(each)]
        out = _NO_THROTTLE + _array([each + CLASSIC.string(None) for each in brokers])
        out += CLASSIC.string(self.host) + struct.pack(">i", 1)
        reply(out + _array([self._topic(topic) for topic in topics]))

    def _topic(self, topic: str) -> bytes:
        rows = []
        for (name, number), led in sorted(self.partitions.items()):
            if name == topic:
                leader, epoch = led.told
                code = ErrorCode.NONE if leader is not None else ErrorCode.LEADER_NOT_AVAILABLE
                rows.append(struct.pack(">hiii", code, number, leader or -1, epoch) + bytes(12))
        code = ErrorCode.NONE if rows else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return struct.pack(">h", code) + CLASSIC.string(topic) + b"\0" + _array(rows)

    def _find_coordinator(self, node: int, ask: Answer, reply: Reply) -> None:
        found = self.coordinator
        code = ErrorCode.NONE if found is not None else ErrorCode.COORDINATOR_NOT_AVAILABLE
        where = struct.pack(">i", found) + self._address(found) if found else struct.pack(">ihi", -1, 0, -1)
        reply(_NO_THROTTLE + struct.pack(">h", code) + CLASSIC.string(None) + where)

    def _address(self, node: int) -> bytes:
        return CLASSIC.string(self.host) + struct.pack(">i", 9000 + node)

    def _coordinated(self, node: int) -> int:
        """Give the code with which a broker refuses that does not coordinate."""
        return ErrorCode.NOT_COORDINATOR if self.coordinator != node else self._refused(*_WAITED)

    # Producing

    def _produce(self, node: int, ask: Answer, reply: Reply) -> None:
        name = ask.nullable_string()
        ask.take(6)
        found = ask.array(lambda: (ask.string(), ask.array(lambda: (ask.int32(), bytes(ask.bytes())))))
        wanted = [(topic, part) for topic, rows in found for part, _ in rows]
        codes: dict[Place, int] = {}
        errors: dict[Place, tuple[int, ...]] = {}

        def row(topic: str, part: int) -> bytes:
            records = [struct.pack(">ih", at, -1) for at in errors.get((topic, part), ())]
            head = struct.pack(">ihqqq", part, codes[topic, part], -1, -1, 0)
            return CLASSIC.string(topic) + _array([head + _array(records) + CLASSIC.string(None)])

        def settle(place: Place, code: int) -> None:
            codes[place] = code
            if len(codes) == len(wanted):
                reply(_array([row(*each) for each in wanted]) + _NO_THROTTLE)

        for topic, rows in found:
            for part, data in rows:
                refusal = self.refuses(topic, data)
                if refusal is not None and self.partitions[topic, part].node == node:
                    code, errors[topic, part] = refusal
                    self.note(f"broker {node}", f"{topic}-{part} refuses a batch, code {int(code)}")
                    settle((topic, part), code)
                    continue
                self._write(node, name, (topic, part), data, lambda code, at=(topic, part): settle(at, code))

    def _write(
        self, node: int, name: str | None, place: Place, data: bytes, settle: Callable[[int], None]
    ) -> None:
        led = self.partitions[place]
        code = _NOT_LEADER if led.node != node else self._refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        if not code and name is not None and self.verifies:
            code = self._verified(led, name, data)
        if code:
            settle(code)
            return
        found = led.log.append(data)
        self.note(f"broker {node}", f"{led.log} takes a batch at {found.base}, code {int(found.code)}")
        if found.code:
            settle(found.code)
        else:
            self._await(led, found.behind, settle)

    def _verified(self, led: Led, name: str, data: bytes) -> int:
        producer_id, epoch = struct.unpack_from(">qh", data, 43)
        known = led.log.producers.get(producer_id)
        if led.log.is_open(producer_id) or (known is not None and epoch < known.epoch):
            return 0
        place = (led.log.topic, led.log.number)
        code = self.transactions.verify(name, producer_id, epoch, place)
        # Clients that do not know of this are told something that they try again.
        return ErrorCode.NOT_ENOUGH_REPLICAS if code == ErrorCode.CONCURRENT_TRANSACTIONS else code

    def _describe_producers(self, node: int, ask: Answer, reply: Reply) -> None:
        topic, parts = ask.array(lambda: (ask.string(), ask.array(ask.int32)))[0]
        led = self.partitions[topic, parts[0]]
        rows = [
            struct.pack(">qiiqiq", who, each.epoch, each.last_sequence, 0, 0, -1) + COMPACT.tags
            for who, each in led.log.producers.items()
        ]
        code = 0 if led.node == node else _NOT_LEADER
        row = struct.pack(">ih", parts[0], code) + COMPACT.string(None)
        row += COMPACT.length(len(rows)) + b"".join(rows) + COMPACT.tags
        out = _NO_THROTTLE + COMPACT.length(1) + COMPACT.string(topic) + COMPACT.length(1) + row
        reply(out + COMPACT.tags + COMPACT.tags)

    # Reading

    def _fetch(self, node: int, ask: Answer, reply: Reply) -> None:
        _, wait, _, _, committed, _, _ = struct.unpack(">iiiibii", ask.take(25))
        wanted = ask.array(lambda: (ask.string(), ask.array(lambda: struct.unpack(">iiqqi", ask.take(28)))))
        until = self.world.now + wait / 1000

        done = False

        def look() -> None:
            nonlocal done
            if done:
                return
            rows = [
                (topic, [self._fetched(node, topic, row, committed) for row in found])
                for topic, found in wanted
            ]
            done = any(found for _, each in rows for _, found in each) or self.world.now >= until
            if done:
                topics = [CLASSIC.string(topic) + _array([row for row, _ in each]) for topic, each in rows]
                reply(_NO_THROTTLE + struct.pack(">hi", 0, 0) + _array(topics))
            else:
                self._looking.append(look)

        self.world.after(wait / 1000, look)
        look()

    def _changed(self) -> None:
        """Let those look again who wait for records."""
        looking, self._looking = self._looking, []
        for look in looking:
            look()

    def _fetched(
        self, node: int, topic: str, row: tuple[int, int, int, int, int], committed: int
    ) -> tuple[bytes, bool]:
        """Give the answer for a partition, and whether it is worth an answer now."""
        part, epoch, offset, _, limit = row
        led = self.partitions[topic, part]
        log = led.log
        code = self._not_led(led, node, epoch)
        if not code and offset > log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if code:
            return struct.pack(">ihqqqii", part, code, -1, -1, -1, 0, 0), True
        data = log.read(offset, min(limit, self.fetch_bytes), committed=bool(committed))
        stable = log.last_stable
        aborted = log.aborted(offset, stable) if committed else []
        head = struct.pack(">ihqqq", part, 0, log.high_watermark, stable, 0)
        rows = _array([struct.pack(">qq", *each) for each in aborted])
        return head + rows + struct.pack(">i", len(data)) + data, bool(data)

    @staticmethod
    def _not_led(led: Led, node: int, epoch: int) -> int:
        if led.node != node:
            return _NOT_LEADER
        if epoch < led.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > led.epoch else ErrorCode.NONE

    def _list_offsets(self, node: int, ask: Answer, reply: Reply) -> None:
        _, committed = struct.unpack(">ib", ask.take(5))
        row = lambda: struct.unpack(">iiq", ask.take(16))  # noqa: E731
        ((topic, rows),) = ask.array(lambda: (ask.string(), ask.array(row)))
        found = []
        for part, epoch, time in rows:
            led = self.partitions[topic, part]
            code = self._not_led(led, node, epoch) or self._refused(ErrorCode.OFFSET_NOT_AVAILABLE)
            end = led.log.last_stable if committed else led.log.high_watermark
            found.append(struct.pack(">ihqqi", part, code, -1, 0 if time == -2 else end, led.epoch))
        reply(_NO_THROTTLE + _array([CLASSIC.string(topic) + _array(found)]))

    # Transactions and groups

    def _init_producer_id(self, node: int, ask: Answer, reply: Reply) -> None:
        name, timeout = ask.nullable_string(), ask.int32() / 1000
        if name is None:
            made = (0, self.transactions.new_id(), 0)
        elif code := self._coordinated(node):
            made = (code, -1, -1)
        else:
            before = self.transactions.epoch_of(name)
            made = self.transactions.init(name, timeout)
            # An open transaction is aborted by the first request, which fences its owner.
            if self.transactions.epoch_of(name) != before:
                self.owners.append(self._client)
        reply(_NO_THROTTLE + struct.pack(">hqh", *made))

    def _renew_producer_id(self, node: int, ask: Answer, reply: Reply) -> None:
        name, timeout = ask.string(), ask.int32() / 1000
        known = (ask.int64(), ask.int16())
        made = (code, -1, -1) if (code := self._coordinated(node)) else self._renewed(name, timeout, known)
        reply(_NO_THROTTLE + struct.pack(">hqh", *made) + COMPACT.tags)

    def _renewed(self, name: str, timeout: float, known: tuple[int, int]) -> tuple[int, int, int]:
        before = self.transactions.epoch_of(name)
        made = self.transactions.renew(name, timeout, *known)
        if self.transactions.epoch_of(name) != before:
            self.owners.append(self._client)
        return made

    def _add_partitions(self, node: int, ask: Answer, reply: Reply) -> None:
        name, producer_id, epoch = ask.string(), ask.int64(), ask.int16()
        topics = ask.array(lambda: (ask.string(), ask.array(ask.int32)))
        places = {(topic, part) for topic, parts in topics for part in parts}
        code = self._coordinated(node) or self.transactions.add(name, producer_id, epoch, places, set())
        reply(_NO_THROTTLE + _coded(places, code))

    def _add_offsets(self, node: int, ask: Answer, reply: Reply) -> None:
        name, producer_id, epoch, group = ask.string(), ask.int64(), ask.int16(), ask.string()
        code = self._coordinated(node) or self.transactions.add(name, producer_id, epoch, set(), {group})
        reply(_NO_THROTTLE + struct.pack(">h", code))

    def _end_txn(self, node: int, ask: Answer, reply: Reply) -> None:
        name, producer_id, epoch, committed = ask.string(), ask.int64(), ask.int16(), bool(ask.int8())
        code = self._coordinated(node) or self.transactions.end(name, producer_id, epoch, committed=committed)
        reply(_NO_THROTTLE + struct.pack(">h", code))

    def _txn_offset_commit(self, node: int, ask: Answer, reply: Reply) -> None:
        name, group, producer_id, epoch = ask.string(), ask.string(), ask.int64(), ask.int16()
        offsets = _offsets(ask)
        code = self._coordinated(node)
        if not code and self.verifies:
            code = self.transactions.verify(name, producer_id, epoch, group)
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        code = code or self.groups.note(producer_id, epoch, group, offsets)
        reply(_NO_THROTTLE + _coded(offsets, code))

    def _offset_commit(self, node: int, ask: Answer, reply: Reply) -> None:
        group = ask.string()
        ask.int32()
        ask.string()
        offsets = _offsets(ask)
        code = self._coordinated(node)
        if not code:
            self.groups.commit(group, offsets)
            self.on_commit(group, offsets)
        reply(_NO_THROTTLE + _coded(offsets, code))

    def _offset_fetch(self, node: int, ask: Answer, reply: Reply) -> None:
        group = ask.string()

        def topic() -> tuple[str, tuple[int, ...]]:
            found = ask.string(), ask.array(ask.int32)
            ask.skip_tags()
            return found

        topics, stable = ask.array(topic), bool(ask.int8())
        rows = [COMPACT.string(name) + self._marks(group, name, parts, stable) for name, parts in topics]
        body = COMPACT.length(len(rows)) + b"".join(rows)
        reply(_NO_THROTTLE + body + struct.pack(">h", self._coordinated(node)) + COMPACT.tags)

    def _marks(self, group: str, topic: str, parts: tuple[int, ...], stable: bool) -> bytes:
        rows = []
        for part in parts:
            offset, text = self.groups.committed.get((group, topic, part), (-1, ""))
            waits = stable and self.groups.is_pending(group, (topic, part))
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT if waits else ErrorCode.NONE
            row = struct.pack(">iqi", part, -1 if waits else offset, -1)
            rows.append(row + COMPACT.string(text) + struct.pack(">h", code) + COMPACT.tags)
        return COMPACT.length(len(rows)) + b"".join(rows) + COMPACT.tags


def _array(rows: list[bytes]) -> bytes:
    return CLASSIC.length(len(rows)) + b"".join(rows)


def _coded(places: Iterable[Place], code: int) -> bytes:
    """Write the same code for each partition."""
    rows = [(CLASSIC.string(topic), struct.pack(">ih", part, code)) for topic, part in sorted(places)]
    return _array([name + _array([row]) for name, row in rows])


def _offsets(ask: Answer) -> dict[Place, tuple[int, str]]:
    def row() -> tuple[int, int, str]:
        part, offset, _ = struct.unpack(">iqi", ask.take(16))
        return part, offset, ask.string()

    topics = ask.array(lambda: (ask.string(), ask.array(row)))
    return {(topic, part): (offset, text) for topic, rows in topics for part, offset, text in rows}
