"""A partition's ends, its search by time, what clients removed, and entries that cannot be read."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from penstock.brokers.pulsar.ledgers import place_before_end
from penstock.errors import ApiError, ClusterError, Unreachable
from penstock.gateway.ports import EARLIEST, LATEST, MAX_TIMESTAMP, Found
from penstock.gateway.pulsar.packed import PENSTOCK
from penstock.gateway.pulsar.packed_partition import PackedPartition
from penstock.gateway.pulsar.partition import Partition
from penstock.gateway.pulsar.retrace import Trace, find_trace
from penstock.mapping import OnUndecodable, Reason, Undecodable
from penstock.wire.kafka import ErrorCode, read_batches
from penstock.wire.pulsar import EARLIEST as FIRST_MESSAGE
from penstock.wire.pulsar import MessageId
from penstock.wire.pulsar.pulsar_pb2 import EncryptionKeys, MessageMetadata, SingleMessageMetadata

FIRST_TIME = 1_700_000_000_000
"""When the first entry of a topic was published; each one after it is a millisecond younger."""


async def code_of(work: Any) -> int:
    with pytest.raises(ApiError) as caught:
        await work
    return caught.value.error_code


async def read(partition: Partition, offset: int) -> list[tuple[int, int]]:
    """Give base offset and record count of what comes at an offset."""
    found = await partition.read(offset, 1 << 20)
    if not found.batches:
        async with asyncio.timeout(30):
            await partition.arrival(offset)
        found = await partition.read(offset, 1 << 20)
    heads = [next(iter(read_batches(bytes(data)))) for data in found.batches]
    return [(head.base_offset, head.record_count) for head in heads]


# The ends


@pytest.mark.parametrize("kind", [Partition, PackedPartition])
def test_the_ends_stay_where_they_are_while_entries_cannot_be_read(
    run: Any, monkeypatch: pytest.MonkeyPatch, kind: type[Partition]
) -> None:
    """A client whose offset is outside of the log resets it, and misses records or reads all again."""

    async def main(world: Any) -> None:
        for _ in range(3):
            world.topic.write(b"a", b"b")
        world.topic.roll()
        world.topic.write(b"a", b"b")
        there = world.partition(kind)
        ends = await there.find(EARLIEST), await there.find(LATEST)

        async def away(topic: str, place: MessageId) -> Any:
            raise ClusterError("pulsar refused: entry", why="Message: Bookie handle is not available")

        with monkeypatch.context() as patch:
            patch.setattr(world.topic, "entry_head", away)
            for partition in (there, world.partition(kind)):
                with pytest.raises(ClusterError):
                    await partition.find(LATEST)
                with pytest.raises(ClusterError):
                    await partition.fresh_start()
                with pytest.raises(ClusterError):
                    await partition.read(ends[1].offset, 1000)
        assert (await there.find(EARLIEST), await there.find(LATEST)) == ends

    run(main)


def test_the_ends_of_an_empty_topic_and_of_one_that_was_emptied(run: Any) -> None:
    async def main(world: Any) -> None:
        partition = world.partition()
        assert (await partition.find(EARLIEST), await partition.find(LATEST)) == (
            Found(offset=0),
            Found(offset=0),
        )
        assert (await partition.read(0, 1000)).batches == ()
        for _ in range(3):
            world.topic.write(b"a", b"b")
        assert await partition.end() == 6
        world.topic.roll()
        world.topic.trim()
        fresh = world.partition()
        assert (await fresh.start(), await fresh.end()) == (6, 6)
        assert await code_of(fresh.read(5, 1000)) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await code_of(fresh.read(7, 1000)) == ErrorCode.OFFSET_OUT_OF_RANGE
        world.topic.write(b"next")
        assert await read(fresh, 6) == [(6, 1)]

    run(main)


def test_a_topic_that_was_made_again_under_its_name_has_its_own_end(run: Any) -> None:
    async def main(world: Any) -> None:
        for _ in range(5):
            world.topic.write(b"old")
        partition = world.partition()
        assert await partition.end() == 5
        world.topic.entries.clear()
        world.topic.ledgers = {40: 0}
        world.topic.next_index = 0
        world.topic.write(b"new")
        assert await partition.end() == 1
        assert await code_of(partition.read(4, 1000)) == ErrorCode.OFFSET_OUT_OF_RANGE

    run(main)


def test_others_write_and_the_high_watermark_tells(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        partition = world.partition()
        assert (await partition.read(0, 1000)).high_watermark == 1
        world.topic.write(b"b", b"c")
        await partition.arrival(1)
        assert (await partition.read(1, 1000)).high_watermark == 3

    run(main)


def test_pulsar_that_does_not_answer_is_no_empty_topic(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        partition = world.partition()
        world.topic.failing = Unreachable("away")
        with pytest.raises(Unreachable):
            await partition.end()
        with pytest.raises(Unreachable):
            await partition.read(0, 1000)
        world.topic.failing = None
        assert await read(partition, 0) == [(0, 1)]

    run(main)


# What clients removed


def test_what_a_client_removed_is_out_of_range_on_every_gateway(run: Any) -> None:
    async def main(world: Any) -> None:
        for _ in range(4):
            world.topic.write(b"a", b"b")
        here, there = world.partition(), world.partition()
        assert await here.trim(5) == 5
        assert world.topic.properties["penstock.removed-to"] == "5"
        assert await here.trim(3) == 5
        assert await there.start() == 5
        for each in (here, there):
            assert await code_of(each.read(4, 1000)) == ErrorCode.OFFSET_OUT_OF_RANGE
            assert await read(each, 5) == [(4, 2), (6, 2)]
        assert await code_of(here.trim(9)) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await code_of(here.trim(-2)) == ErrorCode.OFFSET_OUT_OF_RANGE

    run(main)


@pytest.mark.parametrize("offset", [-1, 8])
def test_removing_everything_frees_the_ledgers(run: Any, offset: int) -> None:
    async def main(world: Any) -> None:
        for _ in range(4):
            world.topic.write(b"a", b"b")
        partition = world.partition()
        assert await partition.trim(offset) == 8
        assert world.topic.entries == []
        world.topic.write(b"next")
        assert await read(partition, 8) == [(8, 1)]

    run(main)


# By time


def test_offsets_by_time(run: Any) -> None:
    async def main(world: Any) -> None:
        for _ in range(10):
            world.topic.write(b"a", b"b")
        partition = world.partition()
        assert await partition.find(FIRST_TIME) == Found(offset=0, timestamp=FIRST_TIME)
        assert await partition.find(FIRST_TIME + 7) == Found(offset=14, timestamp=FIRST_TIME + 7)
        assert await partition.find(FIRST_TIME + 10) == Found()
        assert await partition.find(FIRST_TIME + 10_000_000) == Found()

    run(main)


def test_a_search_by_time_passes_what_is_hidden(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.marker()
        world.topic.write(b"a")
        world.topic.aborted(b"x", b"y")
        world.topic.write(*[b"t"] * 5, txn=3, counted=False)
        world.topic.marker(known=False)
        partition = world.partition()
        assert await partition.find(FIRST_TIME + 2) == Found(offset=4, timestamp=FIRST_TIME + 4)
        assert await partition.find(FIRST_TIME + 5) == Found()

    run(main)


def entry_at(event_time: int) -> tuple[Any, bytes]:
    head = SingleMessageMetadata(payload_size=1, event_time=event_time).SerializeToString()
    return MessageMetadata(num_messages_in_batch=1), len(head).to_bytes(4, "big") + head + b"v"


def test_the_newest_record_is_found_and_what_came_since(run: Any) -> None:
    async def main(world: Any) -> None:
        for moment in (5_000, 9_000, 7_000):
            world.topic.store(*entry_at(moment))
        partition = world.partition()
        assert await partition.find(MAX_TIMESTAMP) == Found(offset=1, timestamp=9_000)
        world.topic.store(*entry_at(8_000))
        assert await partition.find(MAX_TIMESTAMP) == Found(offset=1, timestamp=9_000)
        world.topic.asked.clear()
        assert await partition.find(MAX_TIMESTAMP) == Found(offset=1, timestamp=9_000)
        assert "message_id_by_index" not in world.topic.asked
        world.topic.store(*entry_at(12_000))
        assert await partition.find(MAX_TIMESTAMP) == Found(offset=4, timestamp=12_000)
        await partition.trim(-1)
        assert await partition.find(MAX_TIMESTAMP) == Found()

    run(main)


def test_the_newest_part_of_a_log_by_its_statistics() -> None:
    ledgers = [{"ledgerId": 7, "entries": 100, "size": 1000}, {"ledgerId": 9}]
    stats = {"ledgers": ledgers, "currentLedgerEntries": 10, "currentLedgerSize": 300}
    assert place_before_end(stats, 30)[:2] == (9, 9)
    assert place_before_end(stats, 400)[:2] == (7, 90)
    assert place_before_end(stats, 1_000_000) == FIRST_MESSAGE
    assert place_before_end({}, 5) == FIRST_MESSAGE


# Entries that cannot be read


def encrypted(topic: Any) -> None:
    topic.store(
        MessageMetadata(num_messages_in_batch=2, encryption_keys=[EncryptionKeys(key="k", value=b"v")]),
        b"secret",
        messages=2,
        numbers=2,
    )


def corrupt(topic: Any) -> None:
    topic.write(b"good", b"data")
    entry = topic.entries[-1]
    entry.data = entry.data[:-1] + bytes([entry.data[-1] ^ 1])


CASES = {encrypted: "encrypted", corrupt: "corrupt"}


@pytest.mark.parametrize("write", CASES)
def test_what_cannot_be_read_names_the_offset_to_seek_to(run: Any, write: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        write(world.topic)
        world.topic.write(b"b")
        counts: Counter[str] = Counter()
        partition = world.partition(undecodable=counts)
        assert await read(partition, 0) == [(0, 1)]
        with pytest.raises(ApiError, match="seek to 3") as caught:
            await read(partition, 1)
        assert caught.value.error_code == ErrorCode.CORRUPT_MESSAGE
        assert counts == {CASES[write]: 1}
        assert await read(partition, 3) == [(3, 1)]

    run(main)


@pytest.mark.parametrize("write", CASES)
def test_a_placeholder_for_each_message_that_cannot_be_read(run: Any, write: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        write(world.topic)
        world.topic.write(b"b")
        counts: Counter[str] = Counter()
        partition = world.partition(undecodable=counts, on_undecodable=OnUndecodable.PLACEHOLDER)
        assert await read(partition, 0) == [(0, 1), (1, 2), (3, 1)]
        assert counts == {CASES[write]: 1}
        data = (await partition.read(1, 1 << 20)).batches[0]
        assert b"penstock.undecodable" in bytes(data) and CASES[write].encode() in bytes(data)

    run(main)


def test_the_pieces_of_a_large_message(run: Any) -> None:
    """Those before the last are holes; the last stands in the way, or has a placeholder."""

    async def main(world: Any) -> None:
        for piece in range(3):
            metadata = MessageMetadata(chunk_id=piece, num_chunks_from_msg=3, total_chunk_msg_size=9)
            world.topic.store(metadata, b"xyz")
        world.topic.write(b"a")
        strict, lenient = world.partition(), world.partition(on_undecodable=OnUndecodable.PLACEHOLDER)
        with pytest.raises(ApiError, match=r"offset 2 cannot be read .*piece 3 of 3"):
            # The holes before it are given first.
            await read(strict, 0)
            await read(strict, 2)
        found = [(base, count) for base, count in await read(lenient, 0) if count]
        assert found == [(2, 1), (3, 1)]

    run(main)


def test_skipped_messages_are_holes_and_counted(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        for piece in range(3):
            metadata = MessageMetadata(chunk_id=piece, num_chunks_from_msg=3, total_chunk_msg_size=9)
            world.topic.store(metadata, b"xyz")
        encrypted(world.topic)
        world.topic.write(b"b")
        counts: Counter[str] = Counter()
        partition = world.partition(undecodable=counts, on_undecodable=OnUndecodable.SKIP)
        found = await read(partition, 0)
        assert [(base, count) for base, count in found if count] == [(0, 1), (6, 1)]
        assert counts == {"chunked": 1, "encrypted": 1}
        assert [line for line in caplog.messages if "offset=3 skipped (chunked: piece 3 of 3" in line]
        # At the end of a log, too, clients come to its end.
        encrypted(world.topic)
        assert [(base, count) for base, count in await read(partition, 7)] == [(7, 0)]
        assert (await partition.find(LATEST)).offset == 9

    run(main)


def test_what_may_be_lost_data_is_never_skipped(run: Any) -> None:
    async def main(world: Any) -> None:
        corrupt(world.topic)
        with pytest.raises(ApiError, match="seek to 2"):
            await read(world.partition(on_undecodable=OnUndecodable.SKIP), 0)

    run(main)


def test_an_entry_without_an_index_stands_in_the_way(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        partition = world.partition()
        assert await read(partition, 0) == [(0, 1)]
        entry = world.topic.write(b"b")
        stored = world.topic.entries[-1]
        assert stored.place == entry
        # A broker whose interceptor was taken away.
        stored.data = stored.data[stored.data.index(b"\x0e\x01") :]
        with pytest.raises(ApiError, match="has no offset"):
            await read(partition, 1)

    run(main)


def test_an_entry_that_is_no_entry_stands_in_the_way(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        partition = world.partition()
        assert await read(partition, 0) == [(0, 1)]
        world.topic.write(b"b")
        world.topic.entries[-1].data = b"\xff" * 30
        with pytest.raises(ApiError, match="corrupt"):
            await read(partition, 1)

    run(main)


def test_a_verdict_says_what_may_be_passed_by() -> None:
    rows = {
        (Reason.MARKER, True): True,
        (Reason.CHUNK, False): True,
        (Reason.CHUNK, True): False,
        (Reason.ENCRYPTED, True): False,
        (Reason.CORRUPT, True): False,
        (Reason.UNNUMBERED, True): False,
    }
    for (reason, last_piece), may in rows.items():
        assert Undecodable(reason, "x", 1, last_piece).may_leave_hole is may, reason


# Packed offsets


def test_packed_offsets_are_places(run: Any) -> None:
    async def main(world: Any) -> None:
        partition = world.partition(PackedPartition)
        empty = PENSTOCK.pack(MessageId(5, 0, 0))
        assert (await partition.start(), await partition.end()) == (empty, empty)
        world.topic.write(b"a", b"b")
        world.topic.roll()
        world.topic.write(b"c")
        first, second = PENSTOCK.pack(MessageId(5, 0, 0)), PENSTOCK.pack(MessageId(8, 0, 0))
        assert await partition.end() == second + 1
        assert await read(partition, first) == [(first, 2), (second, 1)]
        assert await read(partition, first + 2) == [(second, 1)]
        world.topic.trim()
        fresh = world.partition(PackedPartition)
        assert await fresh.start() == second
        assert await code_of(fresh.read(first, 1000)) == ErrorCode.OFFSET_OUT_OF_RANGE

    run(main, numbered=False)


def test_packed_offsets_stop_before_an_open_transaction(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        world.topic.write(b"open", b"too", txn=1, is_open=True)
        world.topic.write(b"behind")
        partition = world.partition(PackedPartition)
        first = PENSTOCK.pack(MessageId(5, 0, 0))
        assert await partition.end() == first + 1
        assert await read(partition, first) == [(first, 1)]
        world.topic.end_transaction()
        opened = PENSTOCK.pack(MessageId(5, 1, 0))
        # With packed offsets each message of the transaction has its own.
        assert await read(partition, first + 1) == [(opened, 2), (PENSTOCK.pack(MessageId(5, 2, 0)), 1)]

    run(main, numbered=False)


# What is known of a stored entry again


def test_an_entry_is_found_by_its_producer_and_number(run: Any) -> None:
    async def main(world: Any) -> None:
        topic = world.topic
        for _ in range(4):
            topic.write(b"a", b"b")
        wanted = Trace(b"fake", 2, 2)
        found = await find_trace(topic, topic, "t", wanted, publish_time=FIRST_TIME)
        assert found == 4
        assert await find_trace(topic, topic, "t", Trace(b"x", 2, 2), publish_time=FIRST_TIME) is None
        assert await find_trace(topic, topic, "t", Trace(b"fake", 2, 3), publish_time=FIRST_TIME) is None
        topic.failing = ClusterError("no")
        with pytest.raises(ClusterError):
            await find_trace(topic, topic, "t", wanted, publish_time=FIRST_TIME)

    run(main)
