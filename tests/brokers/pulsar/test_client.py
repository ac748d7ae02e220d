"""The client on a real Pulsar, with pulsar-client as the other side."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar as foreign
import pytest

from penstock.brokers.pulsar import AccessMode, Admin, Options, PulsarClient, SubscriptionType
from penstock.brokers.pulsar.reader import Reader
from penstock.brokers.pulsar.refusal import refusal
from penstock.embedded.pulsar import Pulsar
from penstock.errors import ClusterError, PulsarRefused, Unreachable
from penstock.wire.pulsar import EARLIEST, LATEST, Compression, Entry
from penstock.wire.pulsar.compression import compress, decompress
from penstock.wire.pulsar.pulsar_pb2 import MessageMetadata, ServerError, SingleMessageMetadata

pytestmark = pytest.mark.server

COMPRESSIONS = {
    Compression.NONE: foreign.CompressionType.NONE,
    Compression.LZ4: foreign.CompressionType.LZ4,
    Compression.ZLIB: foreign.CompressionType.ZLib,
    Compression.ZSTD: foreign.CompressionType.ZSTD,
    Compression.SNAPPY: foreign.CompressionType.SNAPPY,
}


@contextmanager
def foreign_client(server: Pulsar) -> Iterator[Any]:
    client = foreign.Client(server.service_url, logger=foreign.ConsoleLogger(foreign.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()


def values(entry: Any) -> list[bytes]:
    """Read the messages of an entry, one by one."""
    assert isinstance(entry, Entry)
    assert entry.is_intact
    payload = bytes(decompress(entry.compression, entry.payload, entry.uncompressed_size, 1 << 24))
    if not entry.is_batch:
        return [payload]
    found, at = [], 0
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        head = SingleMessageMetadata.FromString(payload[at + 4 : at + 4 + size])
        at += 4 + size
        found.append(payload[at : at + head.payload_size])
        at += head.payload_size
    return found


def test_what_we_write_a_foreign_client_reads(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic)
            waiting = [await send(producer, *(b"%d-%d" % (i, j) for j in range(10))) for i in range(50)]
            metadata = MessageMetadata(publish_time=1, partition_key="k", event_time=5)
            metadata.properties.add(key="a", value="b")
            waiting.append(await producer.send_message(metadata, b"alone"))
            receipts = await asyncio.gather(*waiting)
            places = [receipt.message_id for receipt in receipts]
            assert places == sorted(set(places)) and not any(r.is_duplicate for r in receipts)

    run(main)
    with foreign_client(pulsar) as client:
        reader = client.create_reader(topic, foreign.MessageId.earliest)
        found = [reader.read_next(5000) for _ in range(501)]
        assert [message.data() for message in found[:-1]] == [
            b"%d-%d" % (i, j) for i in range(50) for j in range(10)
        ]
        alone = found[-1]
        assert (alone.data(), alone.partition_key(), alone.properties()) == (b"alone", "k", {"a": "b"})
        assert alone.event_timestamp() == 5
        assert not reader.has_message_available()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_a_foreign_client_writes_we_read(
    pulsar: Pulsar, run: Any, topic: str, compression: Compression
) -> None:
    before = time.time_ns() // 1_000_000
    with foreign_client(pulsar) as other:
        producer = other.create_producer(
            topic,
            compression_type=COMPRESSIONS[compression],
            batching_enabled=True,
            batching_max_messages=20,
            batching_max_publish_delay_ms=1000,
        )
        for i in range(100):
            producer.send_async(b"value %d " % i * 20, lambda *_: None)
        producer.flush()
        single = other.create_producer(
            topic, compression_type=COMPRESSIONS[compression], batching_enabled=False
        )
        single.send(b"alone " * 20)

    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            reader = await client.reader(topic)
            found: list[bytes] = []
            while len(found) < 101:
                delivery = await reader.read()
                entry = delivery.entry
                assert isinstance(entry, Entry)
                assert entry.compression == compression
                # The index is that of the last message in the entry.
                assert entry.first_index == len(found)
                assert before <= entry.broker_timestamp <= time.time_ns() // 1_000_000
                found += values(entry)
                assert len(found) == entry.broker_index + 1
            assert found == [b"value %d " % i * 20 for i in range(100)] + [b"alone " * 20]
            assert (await reader.last_message_id())[:2] == delivery.message_id[:2]

    run(main)


@pytest.mark.parametrize("compression", [one for one in COMPRESSIONS if one])
def test_a_compressed_batch_of_ours(pulsar: Pulsar, run: Any, topic: str, compression: Compression) -> None:
    import numpy as np

    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic)
            head = SingleMessageMetadata(payload_size=1000).SerializeToString()
            plain = (len(head).to_bytes(4, "big") + head + b"x" * 1000) * 3
            packed = compress(compression, plain)
            buffer = np.frombuffer(bytearray(512) + packed, np.uint8)
            await (
                await producer.send(
                    buffer,
                    512,
                    len(buffer),
                    num_messages=3,
                    publish_time=1,
                    compression=compression,
                    uncompressed_size=len(plain),
                )
            )

    run(main)
    with foreign_client(pulsar) as client:
        reader = client.create_reader(topic, foreign.MessageId.earliest)
        assert [reader.read_next(5000).data() for _ in range(3)] == [b"x" * 1000] * 3


def test_readers_start_where_they_are_told(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic)
            at_end_of_nothing = await client.reader(topic, start=LATEST)
            places, times = [], []
            for i in range(10):
                times.append(time.time_ns() // 1_000_000)
                places.append((await (await send(producer, b"%d" % i, b"+"))).message_id)
                await asyncio.sleep(0.01)
            assert (await at_end_of_nothing.read()).message_id == places[0]
            reader = await client.reader(topic, start=places[4])
            assert (await reader.read()).message_id == places[4]
            assert (await reader.read()).message_id == places[5]
            inside = await client.reader(topic, start=places[4]._replace(batch_index=1))
            assert (await inside.read()).message_id == places[4]
            for index in (2, 9, 0):
                await reader.seek(places[index])
                assert (await reader.read()).message_id == places[index]
            for index in (7, 3, 0):
                await reader.seek_to_time(times[index])
                assert (await reader.read()).message_id == places[index]
            await reader.seek(EARLIEST)
            assert (await reader.read()).message_id == places[0]
            at_end = await client.reader(topic, start=LATEST)
            assert at_end.read_nowait() is None
            last = (await (await send(producer, b"new"))).message_id
            assert (await at_end.read()).message_id == last
            assert (await reader.last_message_id())[:2] == last[:2]

    run(main)


def test_a_reader_whose_cursor_is_gone_is_moved_once_more(
    pulsar: Pulsar, run: Any, topic: str, send: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Reader._fix_start
    refusals = [refusal(ServerError.METADATA_ERROR, "Consumer not found", what="no") for _ in range(2)]

    async def asked_in_vain(self: Reader[Any], connection: Any, moved: bool) -> None:
        """Fail as a broker does that drops a consumer which has joined a moved cursor just now."""
        if refusals:
            raise refusals.pop()
        await asked(self, connection, moved)

    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic)
            places, times = [], []
            for i in range(5):
                times.append(time.time_ns() // 1_000_000)
                places.append((await (await send(producer, b"%d" % i))).message_id)
                await asyncio.sleep(0.01)
            reader = await client.reader(topic)
            monkeypatch.setattr(Reader, "_fix_start", asked_in_vain)
            await reader.seek_to_time(times[3])
            assert (await reader.read()).message_id == places[3]
            assert not refusals
            refusals.extend(refusal(ServerError.METADATA_ERROR, "no", what="no") for _ in range(100))
            with pytest.raises(Unreachable, match="did not move"):
                await reader.seek_to_time(times[2])
            refusals.clear()
            await reader.seek(places[1])
            assert (await reader.read()).message_id == places[1]

    run(main)


def test_a_converter_sees_the_entry_in_place(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic)
            for i in range(5):
                await (await send(producer, b"%d" % i, b"x"))
            reader = await client.reader(topic, convert=lambda delivery: values(delivery.entry))
            assert [await reader.read() for _ in range(5)] == [[b"%d" % i, b"x"] for i in range(5)]

    run(main)


def test_a_converter_that_fails_ends_its_reader_only(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic)
            await (await send(producer, b"x"))
            reader = await client.reader(topic, convert=lambda delivery: 1 // 0)
            with pytest.raises(Exception, match="could not be converted.*ZeroDivisionError"):
                await reader.read()
            await (await send(producer, b"y"))
            assert producer.reconnects == 0

    run(main)


def test_the_example_of_the_docs(pulsar: Pulsar) -> None:
    page = Path(__file__).parents[3] / "docs" / "gateway" / "client.md"
    example = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    example = example.replace("pulsar://localhost:6650", pulsar.service_url)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.endswith("b'hello'\n")


# Consumers


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_consumer_goes_on_behind_what_it_acknowledged(
    pulsar: Pulsar, run: Any, topic: str, send: Any, kind: SubscriptionType
) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic)
            places = [(await (await send(producer, *[b"x"] * 4))).message_id for _ in range(10)]
            consumer = await client.consumer(topic, "s", kind=kind)
            assert [(await consumer.read()).message_id for _ in range(10)] == places
            await consumer.acknowledge_up_to(places[4])
            assert consumer.acknowledged == places[4]
            await consumer.close()
            consumer = await client.consumer(topic, "s", kind=kind)
            assert (await consumer.read()).message_id == places[5]
            # Inside a batch: the entry is delivered again, the broker knows what of it is done.
            await consumer.acknowledge_up_to(places[6]._replace(batch_index=1), batch_size=4)
            await consumer.acknowledge(places[8])
            await consumer.close()
            consumer = await client.consumer(topic, "s", kind=kind)
            assert [(await consumer.read()).message_id for _ in range(3)] == [places[6], places[7], places[9]]
            await consumer.seek(places[2])
            assert (await consumer.read()).message_id == places[2]
            await consumer.seek_to_time(0)
            assert (await consumer.read()).message_id == places[0]
            await consumer.unsubscribe()
            consumer = await client.consumer(topic, "s", kind=kind, start=LATEST)
            last = (await (await send(producer, b"new"))).message_id
            assert (await consumer.read()).message_id == last

    run(main)


def test_an_ack_inside_a_batch_is_what_a_foreign_client_continues_from(
    pulsar: Pulsar, run: Any, topic: str, send: Any
) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic)
            place = (await (await send(producer, *(b"%d" % i for i in range(100))))).message_id
            consumer = await client.consumer(topic, "s")
            await consumer.read()
            await consumer.acknowledge_up_to(place._replace(batch_index=69), batch_size=100)
            await consumer.acknowledge(place._replace(batch_index=71), batch_size=100)

    run(main)
    with foreign_client(pulsar) as client:
        consumer = client.subscribe(topic, "s")
        found = [int(consumer.receive(5000).data()) for _ in range(29)]
        assert found == [70, *range(72, 100)]


def test_a_second_exclusive_consumer_is_refused(pulsar: Pulsar, run: Any, topic: str) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            await client.consumer(topic, "s")
            with pytest.raises(PulsarRefused) as caught:
                await client.consumer(topic, "s")
            assert caught.value.server_error == ServerError.CONSUMER_BUSY

    run(main)


# Access modes


def test_access_modes(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            first = await client.producer(topic, access=AccessMode.EXCLUSIVE)
            assert first.topic_epoch == 0
            for access, code in {
                AccessMode.EXCLUSIVE: ServerError.PRODUCER_FENCED,
                AccessMode.SHARED: ServerError.PRODUCER_BUSY,
            }.items():
                with pytest.raises(PulsarRefused) as caught:
                    await client.producer(topic, access=access)
                assert caught.value.server_error == code
            waiting = asyncio.create_task(client.producer(topic, access=AccessMode.WAIT_FOR_EXCLUSIVE))
            done, _ = await asyncio.wait([waiting], timeout=0.3)
            assert not done
            await first.close()
            second = await waiting
            assert second.topic_epoch == 1
            third = await client.producer(topic, access=AccessMode.EXCLUSIVE_WITH_FENCING)
            assert third.topic_epoch == 2
            # The fenced one hears nothing while it is idle; it learns with its next entry.
            assert second.error is None
            with pytest.raises(PulsarRefused) as caught:
                await (await send(second, b"stale"))
            assert caught.value.server_error == ServerError.PRODUCER_FENCED
            with pytest.raises(PulsarRefused):
                await send(second, b"stale")
            await (await send(third, b"fresh"))
            assert (third.topic_epoch, third.error) == (2, None)
            reader = await client.reader(topic)
            assert values((await reader.read()).entry) == [b"fresh"]
            assert reader.read_nowait() is None

    run(main)


def test_a_cancelled_wait_for_access_gives_up_its_place(pulsar: Pulsar, run: Any, topic: str) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            first = await client.producer(topic, access=AccessMode.EXCLUSIVE)
            waiting = asyncio.create_task(client.producer(topic, access=AccessMode.WAIT_FOR_EXCLUSIVE))
            await asyncio.wait([waiting], timeout=0.3)
            waiting.cancel()
            await asyncio.wait([waiting])
            await first.close()
            await client.producer(topic, access=AccessMode.EXCLUSIVE)

    run(main)


def test_a_fenced_producer_does_not_come_back(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    """Both lose their connection; the one that was fenced may return first, and must not get the topic."""

    async def main() -> None:
        async with (
            PulsarClient(pulsar.service_url) as other,
            PulsarClient(pulsar.service_url, options=Options(first_delay=2.0)) as slow,
        ):
            fenced = await other.producer(topic, access=AccessMode.WAIT_FOR_EXCLUSIVE)
            holder = await slow.producer(topic, access=AccessMode.EXCLUSIVE_WITH_FENCING)
            for producer in (holder, fenced):
                producer._connection._transport.abort()
            with pytest.raises(PulsarRefused) as caught:
                await (await send(fenced, b"stale"))
            assert caught.value.server_error == ServerError.PRODUCER_FENCED
            await (await send(holder, b"fresh"))
            assert holder.topic_epoch == 1
            reader = await other.reader(topic)
            assert values((await reader.read()).entry) == [b"fresh"]
            assert reader.read_nowait() is None

    run(main)


@pytest.mark.parametrize("access", [mode for mode in AccessMode if mode])
def test_a_holder_keeps_its_epoch_over_a_lost_connection(
    pulsar: Pulsar, run: Any, topic: str, send: Any, access: AccessMode
) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic, access=access)
            await (await send(producer, b"1"))
            producer._connection._transport.abort()
            await (await send(producer, b"2"))
            assert (producer.topic_epoch, producer.reconnects) == (0, 1)

    run(main)


def test_a_given_name_continues_its_sequence(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    """Deduplication: what was stored under a name and number is dropped, and said so."""

    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic, name="me")
            await asyncio.gather(*[await send(producer, b"%d" % i) for i in range(5)])
            with pytest.raises(PulsarRefused) as caught:
                await client.producer(topic, name="me")
            assert caught.value.server_error == ServerError.PRODUCER_BUSY
            await producer.close()
            producer = await client.producer(topic, name="me")
            assert (producer.name, producer.last_sequence_id) == ("me", 4)
            again = await (await send(producer, b"again", sequence_id=4))
            assert again.is_duplicate and again.attempts == 1
            assert not (await (await send(producer, b"5"))).is_duplicate
            reader = await client.reader(topic)
            found = [values((await reader.read()).entry) for _ in range(6)]
            assert found == [[b"%d" % i] for i in range(6)]

    run(main)


# Topics and places


def test_partitions_and_places(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client, Admin(pulsar.admin_url) as admin:
            with pytest.raises(PulsarRefused) as caught:
                await client.partitions(topic)
            assert caught.value.server_error == ServerError.TOPIC_NOT_FOUND
            await admin.create_topic(topic, 3)
            assert await client.partitions(topic) == 3
            await admin.add_partitions(topic, 4)
            assert await client.partitions(topic) == 4
            part = f"{topic}-partition-2"
            assert part in await client.topics("public/default")
            assert topic in await admin.partitioned_topics("public/default")
            assert await admin.last_message_id(part) is not None
            producer = await client.producer(part)
            places = [(await (await send(producer, *[b"x"] * 10))).message_id for _ in range(4)]
            assert await admin.message_id_by_index(part, 3) == EARLIEST
            assert (await admin.message_id_by_index(part, 19))[:2] == places[1][:2]
            assert await admin.message_id_by_index(part, 40) is None
            assert await admin.entry_index(part, places[2]) == (29, 10)
            with pytest.raises(ClusterError, match="entry 99"):
                await admin.entry_index(part, places[2]._replace(entry_id=99))
            assert (await admin.last_message_id(part)).batch_index == 9
            settings = await admin.broker_settings()
            assert "AppendIndexMetadataInterceptor" in settings["brokerEntryMetadataInterceptors"]
            await admin.set_policy(topic, "retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 7})
            await admin.create_subscription(part, "c", places[0])
            await admin.reset_cursor(part, "c", places[1])
            assert "c" in (await admin.stats(part))["subscriptions"]
            consumer = await client.consumer(part, "c")
            assert (await consumer.read()).message_id[:2] >= places[1][:2]
            await consumer.close()
            await admin.delete_subscription(part, "c")
            await producer.close()
            await admin.delete_topic(topic, partitioned=True, force=True)

    run(main)


# Budgets


def test_a_slow_reader_stays_within_its_budget(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    """Small messages teach the reader to ask for many; then large ones come."""
    budget = 256 * 1024

    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client:
            producer = await client.producer(topic)
            small = [await send(producer, *[b"s" * 100] * 10) for _ in range(200)]
            large = [await send(producer, b"%03d" % i + b"L" * 60_000) for i in range(100)]
            places = [receipt.message_id for receipt in await asyncio.gather(*small, *large)]

        options = Options(read_bytes=budget)
        async with PulsarClient(pulsar.service_url, options=options) as client:
            reader = await client.reader(topic)
            most, found = 0, []
            while len(found) < len(places):
                found.append((await reader.read()).message_id)
                most = max(most, reader.held_bytes)
                if len(found) % 20 == 0:
                    await asyncio.sleep(0.01)
                assert reader.held_bytes <= 2 * budget
            assert found == places
            # The topic holds 24 times the budget, and the reader has used what it was given.
            assert most > budget // 4

    run(main)


def test_one_entry_larger_than_the_budget_comes_through(
    pulsar: Pulsar, run: Any, topic: str, send: Any
) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url, options=Options(read_bytes=1000)) as client:
            producer = await client.producer(topic)
            places = [(await (await send(producer, b"L" * 100_000))).message_id for _ in range(5)]
            reader = await client.reader(topic)
            assert [(await reader.read()).message_id for _ in range(5)] == places

    run(main)


def test_the_end_of_a_topic(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url) as client, Admin(pulsar.admin_url) as admin:
            producer = await client.producer(topic)
            place = (await (await send(producer, b"last"))).message_id
            consumer = await client.consumer(topic, "s")
            await admin.terminate(topic)
            assert (await consumer.read()).message_id == place
            reading = asyncio.create_task(consumer.read())
            await consumer.acknowledge_up_to(place)
            with pytest.raises(PulsarRefused, match="has ended"):
                await reading
            with pytest.raises(PulsarRefused) as caught:
                await (await send(producer, b"more"))
            assert caught.value.server_error == ServerError.TOPIC_TERMINATED_ERROR

    run(main)
