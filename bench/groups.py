"""Consumer groups on the gateway beside real Kafka: rebalance, commits, heartbeats, replay, takeover.

The same wire-level clients, written here, against both: fixed bytes out, no client library in the way. A
rebalance is timed from the first JoinGroup of 50 members, who all know their ids, to the last SyncGroup
answer, over 200 partitions. Commits are one partition each, on 64 connections, one at a time on each. Replay
and takeover are only ours. Alternating rounds on one machine; servers and clients share its cores.
"""

from __future__ import annotations

import asyncio
import io
import secrets
import signal
import statistics
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from penstock.brokers.pulsar import Admin, PulsarClient
from penstock.embedded.kafka import Kafka
from penstock.embedded.ports import choose_port
from penstock.embedded.pulsar import Pulsar
from penstock.gateway.entities import entity
from penstock.gateway.groups.requests import Identity, JoinRequest, SyncRequest
from penstock.gateway.groups.schemas import Commit, OffsetKey, offset_record
from penstock.gateway.groups.shard import Shard
from penstock.gateway.groups.solo import SoloGroups
from penstock.gateway.pulsar.offsets_log import OffsetsLog, mark_record
from penstock.wire.kafka.apis import is_flexible, response_header_tags
from quiet import cpu_seconds
from table import Report

MEMBERS, PARTITIONS, CONNECTIONS = 50, 200, 64
IDLE_PARTITIONS = 2000
CREATE, COMMIT, FIND, JOIN, BEAT, SYNC = 19, 8, 10, 11, 12, 14
NOT_YET, REBALANCING = {14, 15, 16}, 27
LIMIT = 60.0


class Wire:
    """One connection; requests are written and answers read by kio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, bootstrap: str) -> Wire:
        host, port = bootstrap.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, key: int, version: int, fields: dict[str, Any]) -> Any:
        return await self.ask_raw(key, version, encoded(key, version, fields))

    async def ask_raw(self, key: int, version: int, frame: bytes) -> Any:
        data = await self.exchange(frame)
        begin = 4 + len(response_header_tags(key, version))
        return entity_reader(load_response_schema(key, version))(data, begin)[0]

    async def exchange(self, frame: bytes) -> bytes:
        self._writer.write(frame)
        size = struct.unpack(">i", await self._reader.readexactly(4))[0]
        return await self._reader.readexactly(size)

    def close(self) -> None:
        self._writer.close()


def encoded(key: int, version: int, fields: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    request = entity(load_request_schema(key, version), fields)
    entity_writer(type(request))(out, request)
    tags = b"\0" if is_flexible(key, version) else b""
    frame = struct.pack(">hhih", key, version, 7, 5) + b"bench" + tags + out.getvalue()
    return struct.pack(">i", len(frame)) + frame


async def coordinator(bootstrap: str, group: str) -> str:
    wire = await Wire.open(bootstrap)
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                found = await wire.ask(FIND, 2, {"key": group, "key_type": 0})
                if not found.error_code:
                    return f"{found.host}:{found.port}"
                await asyncio.sleep(0.1)
    finally:
        wire.close()


async def make_topic(bootstrap: str, partitions: int) -> str:
    name = f"bench-{secrets.token_hex(4)}"
    wire = await Wire.open(bootstrap)
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    found = await wire.ask(CREATE, 5, {"topics": [topic], "timeout": 30_000})
    assert not found.topics[0].error_code, found
    wire.close()
    return name


# Rebalance


class Member:
    """A member that knows its id."""

    def __init__(self, wire: Wire, group: str) -> None:
        self.wire, self.group, self.member_id = wire, group, ""
        self.metadata = bytes(60)

    def join_fields(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "member_id": self.member_id,
            "protocol_type": "bench",
            "protocols": [{"name": "range", "metadata": self.metadata}],
        }

    async def prepare(self) -> None:
        while not self.member_id:
            told = await self.wire.ask(JOIN, 5, self.join_fields())
            self.member_id = told.member_id
            assert told.error_code in NOT_YET | {79}, told
            await asyncio.sleep(0.05 if told.error_code in NOT_YET else 0)

    async def rebalance(self) -> None:
        """Join and sync, again if the group began anew meanwhile."""
        while await self._rebalance() == REBALANCING:
            pass

    async def _rebalance(self) -> int:
        joined = await self.wire.ask(JOIN, 5, self.join_fields())
        assert joined.error_code == 0, joined
        each = bytes(4 * PARTITIONS // MEMBERS)
        rows = [{"member_id": member.member_id, "assignment": each} for member in joined.members]
        fields = {"group_id": self.group, "generation_id": joined.generation_id, "member_id": self.member_id}
        synced = await self.wire.ask(SYNC, 3, fields | {"assignments": rows})
        assert synced.error_code in (0, REBALANCING), synced
        return int(synced.error_code)


async def rebalance(bootstrap: str) -> float:
    group = f"bench-{secrets.token_hex(4)}"
    where = await coordinator(bootstrap, group)
    members = [Member(await Wire.open(where), group) for _ in range(MEMBERS)]
    for member in members:
        await member.prepare()
    # The first one waits for more members by design; the second is the one that is timed.
    await asyncio.gather(*(member.rebalance() for member in members))
    for member in members:
        member.metadata = b"\1" * 60
    started = time.perf_counter()
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*(member.rebalance() for member in members))
    seconds = time.perf_counter() - started
    for member in members:
        member.wire.close()
    return seconds


# Commits


async def commits(bootstrap: str, seconds: float) -> float:
    topic = await make_topic(bootstrap, CONNECTIONS)
    group = f"bench-{secrets.token_hex(4)}"
    where = await coordinator(bootstrap, group)

    async def work(wire: Wire, partition: int) -> int:
        done = 0
        row = {"partition_index": partition, "committed_offset": 5, "committed_metadata": ""}
        fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        frame = encoded(COMMIT, 7, fields | {"topics": [{"name": topic, "partitions": [row]}]})
        while time.perf_counter() < until:
            # The error code is the end of an answer about one partition.
            done += (await wire.exchange(frame)).endswith(b"\0\0")
        wire.close()
        return done

    wires = [await Wire.open(where) for _ in range(CONNECTIONS)]
    await until_committed(bootstrap, group, topic)
    started = time.perf_counter()
    until = started + seconds
    counts = await asyncio.gather(*(work(wire, number) for number, wire in enumerate(wires)))
    return sum(counts) / (time.perf_counter() - started)


# Only ours


async def heartbeat_cost(members: int, rounds: int) -> float:
    """CPU microseconds of one heartbeat in a group of so many members."""
    shard: Shard = SoloGroups(1).shard("g")
    shard.limits = type(shard.limits)(initial_delay=0.2)

    def asked(number: int) -> JoinRequest:
        return JoinRequest(
            token=0,
            member_id="",
            instance_id=f"i{number}",
            client_id="bench",
            client_host="/127.0.0.1",
            session=60.0,
            rebalance=60.0,
            protocol_type="consumer",
            protocols=(("range", b"\0" * 60),),
            new_member_id="",
        )

    answers = await asyncio.gather(*(shard.join("g", asked(number)) for number in range(members)))
    who = [
        Identity(member_id=each.member_id, instance_id=f"i{number}", generation=each.generation)
        for number, each in enumerate(answers)
    ]
    await asyncio.gather(*(shard.sync("g", SyncRequest(token=0, who=each)) for each in who))
    started = time.process_time()
    for number in range(rounds):
        assert shard.heartbeat("g", who[number % members]) == 0
    spent = time.process_time() - started
    shard.close()
    return spent / rounds * 1e6


async def replay(client: PulsarClient, admin: Admin, count: int) -> float:
    topic = f"persistent://public/default/bench-replay-{secrets.token_hex(4)}"
    await admin.create_topic(topic)
    log, _ = await OffsetsLog.open(client, topic, mark=mark_record("first"))
    commit = Commit(offset=123456, metadata="", committed_at=1_700_000_000_000)
    waiting = []
    for number in range(count):
        key = OffsetKey(f"group-{number % 100}", "orders", number // 100)
        waiting.append(log.append([offset_record(key, commit)]))
        if number % 1000 == 999:
            await asyncio.gather(*waiting)
            waiting.clear()
    await log.close()
    started = time.perf_counter()
    log, records = await OffsetsLog.open(client, topic, mark=mark_record("second"))
    shard = Shard(log)
    await shard.load(records)
    seconds = time.perf_counter() - started
    assert sum(map(len, shard.commits.values())) == count
    shard.close()
    await log.close()
    await admin.delete_topic(topic, partitioned=False, force=True)
    return seconds


class Process:
    """One gateway as a process."""

    def __init__(self, pulsar: Pulsar) -> None:
        self.bootstrap = f"127.0.0.1:{choose_port(0, setting='port')}"
        words = [sys.executable, "-m", "penstock.cli", "gateway", "--listen", self.bootstrap]
        words += ["--pulsar", pulsar.service_url, "--admin", pulsar.admin_url]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self, which: int) -> None:
        self.process.send_signal(which)
        self.process.wait()


async def takeover(pulsar: Pulsar) -> float:
    """Seconds from SIGKILL of a group's coordinator to the next commit that is stored."""
    gateways = [Process(pulsar), Process(pulsar)]
    group = f"bench-{secrets.token_hex(4)}"
    try:
        for gateway in gateways:
            await reachable(gateway.bootstrap)
        topic = await make_topic(gateways[0].bootstrap, 1)
        await until_committed(gateways[0].bootstrap, group, topic)
        # Both must know each other before one is killed.
        await asyncio.sleep(3)
        where = await coordinator(gateways[0].bootstrap, group)
        [victim] = [each for each in gateways if each.bootstrap == where]
        [other] = [each for each in gateways if each is not victim]
        await until_committed(where, group, topic)
        victim.end(signal.SIGKILL)
        started = time.perf_counter()
        await until_committed(other.bootstrap, group, topic)
        return time.perf_counter() - started
    finally:
        for gateway in gateways:
            if gateway.process.poll() is None:
                gateway.end(signal.SIGTERM)


async def idle(pulsar: Pulsar, partitions: int, seconds: float) -> tuple[float, float]:
    """Share of a core that a gateway takes with nobody connected: before and after a group has committed.

    The group has committed to so many partitions, and its cursors stand where it is.
    """
    gateway, group = Process(pulsar), f"bench-{secrets.token_hex(4)}"
    try:
        await reachable(gateway.bootstrap)
        topic = await make_topic(gateway.bootstrap, partitions)
        wire = await Wire.open(await coordinator(gateway.bootstrap, group))
        before = await _share(gateway, seconds)
        rows = [
            {"partition_index": number, "committed_offset": 0, "committed_metadata": ""}
            for number in range(partitions)
        ]
        fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        async with asyncio.timeout(LIMIT):
            while True:
                found = await wire.ask(COMMIT, 7, fields | {"topics": [{"name": topic, "partitions": rows}]})
                if not any(each.error_code for each in found.topics[0].partitions):
                    break
                await asyncio.sleep(0.1)
        wire.close()
        async with Admin(pulsar.admin_url) as admin:
            full = f"persistent://public/default/{topic}"
            for number in range(partitions):
                while group not in (await admin.stats(f"{full}-partition-{number}"))["subscriptions"]:
                    await asyncio.sleep(1)
            await asyncio.sleep(10)
            after = await _share(gateway, seconds)
            await admin.delete_topic(full, partitioned=True, force=True)
        return before, after
    finally:
        gateway.end(signal.SIGTERM)


async def _share(gateway: Process, seconds: float) -> float:
    began = cpu_seconds(gateway.process.pid)
    await asyncio.sleep(seconds)
    return (cpu_seconds(gateway.process.pid) - began) / seconds


async def reachable(bootstrap: str) -> None:
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                (await Wire.open(bootstrap)).close()
                return
            except OSError:
                await asyncio.sleep(0.1)


async def until_committed(bootstrap: str, group: str, topic: str) -> None:
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    frame = encoded(COMMIT, 7, fields | {"topics": [{"name": topic, "partitions": [row]}]})
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                wire = await Wire.open(await coordinator(bootstrap, group))
                found = await wire.ask_raw(COMMIT, 7, frame)
                wire.close()
                if not found.topics[0].partitions[0].error_code:
                    return
            except (OSError, asyncio.IncompleteReadError):
                pass
            await asyncio.sleep(0.05)


async def measure(report: Report, kafka: Kafka, pulsar: Pulsar) -> None:
    rounds = 3 if report.quick else 10
    process = Process(pulsar)
    sides = {"kafka": kafka.bootstrap, "gateway": process.bootstrap}
    try:
        await reachable(process.bootstrap)
        times: dict[str, list[float]] = {name: [] for name in sides}
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds + 1):
            for name, bootstrap in sides.items():
                taken, rate = (
                    await rebalance(bootstrap),
                    await commits(bootstrap, 1.0 if report.quick else 2.0),
                )
                if number:
                    times[name].append(taken)
                    rates[name].append(rate)
    finally:
        process.end(signal.SIGTERM)
    medians = {name: statistics.median(each) for name, each in times.items()}
    rate = {name: statistics.median(each) for name, each in rates.items()}
    note(report, "rebalance, 50 members (ms)", medians["gateway"] * 1e3, medians["kafka"] * 1e3)
    note(report, "commits/s", rate["gateway"], rate["kafka"])
    report.goal("rebalance beside Kafka", medians["gateway"] / medians["kafka"], 2.0, at_least=False)
    report.goal("commits/s", rate["gateway"], 5000)
    note(report, "heartbeat at 1 000 members (us CPU)", await heartbeat_cost(1000, 20_000))
    async with PulsarClient(pulsar.service_url) as client, Admin(pulsar.admin_url) as admin:
        replays = [await replay(client, admin, 100_000) for _ in range(1 if report.quick else rounds)]
    note(report, "replay of 100 000 commits (s)", statistics.median(replays))
    report.goal("replay (s)", statistics.median(replays), 5.0, at_least=False)
    partitions = 100 if report.quick else IDLE_PARTITIONS
    before, after = await idle(pulsar, partitions, 10.0 if report.quick else 60.0)
    note(report, f"idle, {partitions} committed partitions (% of a core)", after * 100)
    note(report, "idle, nothing committed (% of a core)", before * 100)
    report.goal("idle (share of a core)", after, 0.05, at_least=False)
    if not report.quick:
        taken = [await takeover(pulsar) for _ in range(rounds)]
        note(report, "takeover after SIGKILL (s)", statistics.median(taken))
        report.goal("takeover (s), the longest", max(taken), 5.0, at_least=False)


def note(report: Report, name: str, ours: float, kafka: float | None = None) -> None:
    report.figure(name, ours)
    beside = ["", ""] if kafka is None else [f"{kafka:.1f}", f"{ours / kafka:.2f}"]
    report.row(name, f"{ours:.2f}", *beside)


def main() -> None:
    report = Report.from_arguments("consumer groups", ("what", "gateway", "kafka", "gateway / kafka"))
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka())
        pulsar = stack.enter_context(Pulsar(durable=False))
        asyncio.run(measure(report, kafka, pulsar))
    report.finish()


if __name__ == "__main__":
    main()
