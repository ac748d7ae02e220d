"""Readers and consumers on a broker that loses them, repeats itself and does not mind permits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.brokers.pulsar import Options, PulsarClient
from penstock.errors import ClusterError, InternalError, PulsarRefused, WireError
from penstock.wire.pulsar import LATEST, MessageId, encode_command
from penstock.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAckResponse,
    CommandError,
    CommandGetLastMessageIdResponse,
    CommandMessage,
    MessageIdData,
    MessageMetadata,
    ServerError,
)

TOPIC = "persistent://public/default/x"
B = BaseCommand


def test_a_reader_at_the_end_remembers_the_place(run: Any, fake: Any, hasty: Options) -> None:
    def last(body: Any, writer: Any) -> None:
        place = MessageIdData(ledger_id=3, entry_id=9, batch_index=4)
        answer = CommandGetLastMessageIdResponse(request_id=body.request_id, last_message_id=place)
        writer.write(encode_command(answer))

    fake.on[B.GET_LAST_MESSAGE_ID] = last

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            reader = await client.reader(TOPIC, start=LATEST)
            fake.connections[0].close()
            await fake.until(lambda: reader.reconnects == 1)
        first, second = (command.body for command in fake.heard if command.type == B.SUBSCRIBE)
        assert first.start_message_id.ledger_id == (1 << 63) - 1
        again = second.start_message_id
        assert (again.ledger_id, again.entry_id, again.batch_index) == (3, 9, -1)
        assert not second.durable and first.subscription != second.subscription

    run(main)


@pytest.mark.parametrize("repeats", [True, False])
def test_what_was_acknowledged_is_acknowledged_again_after_a_loss(
    run: Any, fake: Any, hasty: Options, repeats: bool
) -> None:
    def confirm(body: Any, writer: Any) -> None:
        writer.write(
            encode_command(CommandAckResponse(consumer_id=body.consumer_id, request_id=body.request_id))
        )

    fake.on[B.ACK] = confirm

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            consumer = await client.peeking_consumer(TOPIC, "s", repeats_acknowledgement=repeats)
            await consumer.acknowledge_up_to(MessageId(3, 9))
            await consumer.acknowledge_up_to(MessageId(3, 8))  # a late one does not count
            fake.connections[0].close()
            await fake.until(lambda: consumer.reconnects == 1)
            if repeats:
                await fake.until(lambda: fake.count(B.ACK) == 3)
            else:
                await consumer.acknowledge_up_to(MessageId(3, 10))
        last = [command.body for command in fake.heard if command.type == B.ACK][2].message_id[0]
        assert (last.ledger_id, last.entry_id) == ((3, 9) if repeats else (3, 10))

    run(main)


def test_a_refused_reopen_is_told_to_the_one_who_reads(run: Any, fake: Any, hasty: Options) -> None:
    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            reader = await client.reader(TOPIC)
            reading = asyncio.create_task(reader.read())

            def gone(body: Any, writer: Any) -> None:
                said = CommandError(request_id=body.request_id, error=ServerError.TOPIC_NOT_FOUND, message="")
                writer.write(encode_command(said))

            fake.on[B.SUBSCRIBE] = gone
            fake.connections[0].close()
            with pytest.raises(PulsarRefused, match="topic not found"):
                await reading
            with pytest.raises(PulsarRefused, match="topic not found"):
                reader.read_nowait()

    run(main)


def test_a_bug_while_coming_back_is_told_to_the_one_who_reads(
    run: Any, fake: Any, hasty: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            reader = await client.reader(TOPIC)
            reading = asyncio.create_task(reader.read())

            async def fail() -> None:
                raise KeyError("unforeseen")

            monkeypatch.setattr(reader, "_attach_once", fail)
            fake.connections[0].close()
            async with asyncio.timeout(10):
                with pytest.raises(InternalError, match="has failed"):
                    await reading

    run(main)


def message(consumer_id: int, entry_id: int, entry: bytes) -> bytes:
    place = MessageIdData(ledger_id=3, entry_id=entry_id)
    command = encode_command(CommandMessage(consumer_id=consumer_id, message_id=place))
    return (len(command) - 4 + len(entry)).to_bytes(4, "big") + command[4:] + entry


def plain_entry(payload: bytes) -> bytes:
    head = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString()
    return len(head).to_bytes(4, "big") + head + payload


def test_a_flood_that_nobody_asked_for_is_dropped_and_asked_for_again(
    run: Any, fake: Any, hasty: Options
) -> None:
    def flood(body: Any, writer: Any) -> None:
        fake._success(body, writer)
        first = body.start_message_id.entry_id + 1 if fake.count(B.SUBSCRIBE) > 1 else 0
        for entry_id in range(first, min(first + 50, 100)):
            writer.write(message(body.consumer_id, entry_id, plain_entry(bytes(1000))))

    fake.on[B.SUBSCRIBE] = flood

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=replace(hasty, read_bytes=10_000)) as client:
            reader = await client.reader(TOPIC)
            await fake.until(lambda: B.CLOSE_CONSUMER in fake.types())
            assert reader.overflows == 1
            found = []
            while len(found) < 100:
                assert reader.held_bytes <= 20_000
                found.append((await reader.read()).message_id.entry_id)
            assert found == list(range(100))
            assert reader.overflows >= 2

    run(main)


def test_a_closed_reader_holds_nothing(run: Any, fake: Any, hasty: Options) -> None:
    def deliver(body: Any, writer: Any) -> None:
        fake._success(body, writer)
        writer.write(message(body.consumer_id, 0, plain_entry(bytes(1000))))

    fake.on[B.SUBSCRIBE] = deliver

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            reader = await client.reader(TOPIC)
            await fake.until(lambda: len(reader) == 1)
            await reader.close()
            assert (len(reader), reader.held_bytes) == (0, 0)
            with pytest.raises(ClusterError, match="was closed"):
                reader.read_nowait()

    run(main)


def test_an_entry_that_cannot_be_read_is_delivered_with_the_reason(
    run: Any, fake: Any, hasty: Options
) -> None:
    def deliver(body: Any, writer: Any) -> None:
        fake._success(body, writer)
        for entry_id, entry in enumerate([b"", b"\xff" * 20, plain_entry(b"good")]):
            writer.write(message(body.consumer_id, entry_id, entry))

    fake.on[B.SUBSCRIBE] = deliver

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            reader = await client.reader(TOPIC)
            first, second, third = [await reader.read() for _ in range(3)]
            assert isinstance(first.entry, WireError) and isinstance(second.entry, WireError)
            assert bytes(second.data) == b"\xff" * 20
            assert bytes(third.entry.payload) == b"good"
            assert (len(fake.connections), reader.reconnects) == (1, 0)

    run(main)


def test_entries_that_come_twice_are_taken_once(run: Any, fake: Any, hasty: Options) -> None:
    """A broker delivers again what was not acknowledged when a consumer comes back."""

    def deliver(body: Any, writer: Any) -> None:
        fake._success(body, writer)
        for entry_id in range(3 * fake.count(B.SUBSCRIBE)):
            writer.write(message(body.consumer_id, entry_id, plain_entry(b"")))

    fake.on[B.SUBSCRIBE] = deliver

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            consumer = await client.consumer(TOPIC, "s")
            await fake.until(lambda: len(consumer) == 3)
            fake.connections[0].close()
            await fake.until(lambda: consumer.reconnects == 1 and len(consumer) == 6)
            found = [(await consumer.read()).message_id.entry_id for _ in range(6)]
            assert found == list(range(6))

    run(main)
