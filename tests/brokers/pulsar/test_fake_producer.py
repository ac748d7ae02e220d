"""A producer on a broker that fails, forgets, fences and floods: order kept, nothing lost, no hang."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.brokers.pulsar import Options, PulsarClient
from penstock.brokers.pulsar import producer as producer_module
from penstock.errors import ClusterError, PulsarRefused, Unreachable
from penstock.wire.pulsar import encode_command
from penstock.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandError,
    CommandProducerSuccess,
    CommandSendError,
    ServerError,
)

TOPIC = "persistent://public/default/x"
NO_REQUEST = (1 << 64) - 1
B = BaseCommand


def send_error(body: Any, code: int) -> bytes:
    return encode_command(
        CommandSendError(
            producer_id=body.producer_id,
            sequence_id=max(body.sequence_id, body.highest_sequence_id),
            error=code,
            message="no",
        )
    )


def test_a_fatal_send_error_fails_one_entry(run: Any, fake: Any, hasty: Options, send: Any) -> None:
    def answer(body: Any, writer: Any) -> None:
        if body.sequence_id == 2:
            return writer.write(send_error(body, ServerError.NOT_ALLOWED_ERROR))
        return fake._receipt(body, writer)

    fake.on[B.SEND] = answer

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            producer = await client.producer(TOPIC)
            waiting = [await send(producer, b"x") for _ in range(2)]
            waiting.append(await send(producer, b"a", b"b", sequence_id=2, last_sequence_id=3))
            waiting.append(await send(producer, b"y"))
            results = await asyncio.gather(*waiting, return_exceptions=True)
            refused = results[2]
            assert isinstance(refused, PulsarRefused) and not refused.retriable
            assert [results[i].sequence_id for i in (0, 1, 3)] == [0, 1, 4]
            assert (producer.pending, producer.pending_bytes, producer.reconnects) == (0, 0, 0)

    run(main)


@pytest.mark.parametrize("code", [ServerError.PERSISTENCE_ERROR, ServerError.CHECKSUM_ERROR])
def test_a_retriable_send_error_sends_again_in_order(
    run: Any, fake: Any, hasty: Options, send: Any, code: int
) -> None:
    """The head of the queue must not stand still for ever (the bookie was read-only for a while)."""
    sent: list[int] = []
    failures = iter(range(3))

    def answer(body: Any, writer: Any) -> None:
        if body.sequence_id == 1 and next(failures, None) is not None:
            fake.broken = True
            return writer.write(send_error(body, code))
        if not fake.broken:
            sent.append(body.sequence_id)
            fake._receipt(body, writer)
        return None

    def producer(body: Any, writer: Any) -> None:
        fake.broken = False
        fake._producer(body, writer)

    fake.broken = False
    fake.on[B.SEND], fake.on[B.PRODUCER] = answer, producer

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=replace(hasty, send_timeout=10)) as client:
            producer = await client.producer(TOPIC)
            waiting = [await send(producer, b"x") for _ in range(5)]
            receipts = await asyncio.gather(*waiting)
            assert [receipt.sequence_id for receipt in receipts] == sent == [0, 1, 2, 3, 4]
            assert [receipt.attempts for receipt in receipts] == [1, 4, 4, 4, 4]
            assert producer.reconnects == 3

    run(main)


def test_a_broker_that_never_takes_it(run: Any, fake: Any, hasty: Options, send: Any) -> None:
    fake.on[B.SEND] = lambda body, writer: writer.write(send_error(body, ServerError.PERSISTENCE_ERROR))

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            producer = await client.producer(TOPIC)
            waiting = [await send(producer, b"x") for _ in range(3)]
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(result) for result in results] == [Unreachable] * 3
            fake.on[B.SEND] = fake._receipt
            assert (await (await send(producer, b"y"))).sequence_id == 3

    run(main)


def test_a_corrupt_frame_is_not_sent_for_ever(run: Any, fake: Any, hasty: Options, send: Any) -> None:
    fake.on[B.SEND] = lambda body, writer: writer.write(send_error(body, ServerError.CHECKSUM_ERROR))

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            producer = await client.producer(TOPIC)
            waiting = await send(producer, b"x")
            frame = producer._window.head.frame
            frame[-1] ^= 1
            with pytest.raises(PulsarRefused, match="checksum"):
                await waiting

    run(main)


@pytest.mark.parametrize("code", [ServerError.TOPIC_TERMINATED_ERROR, ServerError.PRODUCER_FENCED])
def test_an_error_that_ends_the_producer(run: Any, fake: Any, hasty: Options, send: Any, code: int) -> None:
    fake.on[B.SEND] = lambda body, writer: writer.write(send_error(body, code))

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            producer = await client.producer(TOPIC)
            waiting = [await send(producer, b"x") for _ in range(3)]
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert {result.server_error for result in results} == {code}
            with pytest.raises(PulsarRefused):
                await send(producer, b"y")

    run(main)


def test_a_producer_that_is_ignored_is_opened_again(run: Any, fake: Any, hasty: Options, send: Any) -> None:
    """A broker says nothing about entries for a producer that it has closed a moment ago."""
    del fake.on[B.SEND]

    def fenced(body: Any, writer: Any) -> None:
        said = CommandError(request_id=body.request_id, error=ServerError.PRODUCER_FENCED, message="")
        writer.write(encode_command(said))

    async def main() -> None:
        options = replace(hasty, send_timeout=10, stall_timeout=0.2)
        async with fake, PulsarClient(fake.url, options=options) as client:
            producer = await client.producer(TOPIC)
            heard: list[Exception] = []
            producer.on_failure = heard.append
            fake.on[B.PRODUCER] = fenced
            with pytest.raises(PulsarRefused, match="producer fenced"):
                await (await send(producer, b"x"))
            assert heard == [producer.error]

    run(main)


def test_late_receipts_are_heard_before_anything_is_sent_again(
    run: Any, fake: Any, hasty: Options, send: Any
) -> None:
    """CLOSE_PRODUCER on unload; the receipts of what was stored before come after it."""
    stored: list[int] = []

    def store(body: Any, writer: Any) -> None:
        stored.append(body.sequence_id)
        if body.sequence_id >= 5:
            fake._receipt(body, writer)

    def reopen(body: Any, writer: Any) -> None:
        fake._producer(body, writer)
        for sequence_id in range(4 if body.epoch else 0):
            fake.receipt(writer, body.producer_id, sequence_id)

    fake.on[B.SEND], fake.on[B.PRODUCER] = store, reopen

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            producer = await client.producer(TOPIC)
            waiting = [await send(producer, b"x") for _ in range(5)]
            await fake.until(lambda: len(stored) == 5)
            fake.on[B.SEND] = lambda body, writer: (
                stored.append(body.sequence_id),
                fake._receipt(body, writer),
            )
            close = CommandCloseProducer(producer_id=producer.producer_id, request_id=NO_REQUEST)
            fake.connections[0].write(encode_command(close))
            await fake.until(lambda: producer.reconnects == 1)
            receipts = await asyncio.gather(*waiting)
            # Only the entry without a receipt goes out twice, and nothing is answered twice.
            assert stored == [0, 1, 2, 3, 4, 4]
            assert [receipt.attempts for receipt in receipts] == [1, 1, 1, 1, 2]
            assert producer.late_receipts == 0

    run(main)


def test_entries_queued_while_the_producer_is_away_are_sent(
    run: Any, fake: Any, hasty: Options, send: Any
) -> None:
    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=replace(hasty, send_timeout=10)) as client:
            producer = await client.producer(TOPIC)
            del fake.on[B.PRODUCER]
            fake.connections[0].close()
            await fake.until(lambda: fake.count(B.PRODUCER) == 2)
            waiting = [await send(producer, b"x") for _ in range(10)]
            fake.on[B.PRODUCER] = fake._producer
            receipts = await asyncio.gather(*waiting)
            assert [receipt.sequence_id for receipt in receipts] == list(range(10))

    run(main)


@pytest.mark.parametrize(("last", "is_own"), [(19, True), (29, True), (39, True), (25, False), (40, False)])
def test_a_name_that_somebody_else_has_used_meanwhile(
    run: Any, fake: Any, hasty: Options, send: Any, last: int, is_own: bool
) -> None:
    """It has 20 to 29 and 30 to 39 under way; the other one has written up to `last` under its name."""

    def producer(body: Any, writer: Any) -> None:
        success = CommandProducerSuccess(
            request_id=body.request_id, producer_name="n", last_sequence_id=told[0]
        )
        writer.write(encode_command(success))

    told = [19]
    fake.on[B.PRODUCER] = producer

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=replace(hasty, send_timeout=10)) as client:
            producer = await client.producer(TOPIC, name="n", owns_name=True)
            del fake.on[B.SEND]
            values = [b"x"] * 10
            waiting = [
                await send(producer, *values, sequence_id=first, last_sequence_id=first + 9)
                for first in (20, 30)
            ]
            await fake.until(lambda: fake.count(B.SEND) == 2)
            told[0], fake.on[B.SEND] = last, fake._receipt
            fake.connections[0].close()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert fake.count(B.SEND) == (4 if is_own else 2)
            if is_own:
                assert [result.sequence_id for result in results] == [20, 30]
            else:
                assert {result.server_error for result in results} == {ServerError.PRODUCER_FENCED}
                with pytest.raises(PulsarRefused, match="under the name of this one"):
                    await send(producer, b"y")

    run(main)


@pytest.mark.parametrize(
    ("told", "seconds", "is_sent_again"), [(19, 55.0, False), (-1, 0.0, False), (-1, 55.0, True)]
)
def test_a_name_that_the_broker_has_forgotten_meanwhile(
    run: Any,
    fake: Any,
    hasty: Options,
    send: Any,
    monkeypatch: pytest.MonkeyPatch,
    told: int,
    seconds: float,
    is_sent_again: bool,
) -> None:
    """Entries whose receipts were lost were sent again, and the broker stored them a second time.

    Where it never told an id, it can have forgotten only what was stored a minute ago.
    """
    monkeypatch.setattr(producer_module, "_FORGOTTEN_SECONDS", seconds)
    last = [told]

    def producer(body: Any, writer: Any) -> None:
        answer = CommandProducerSuccess(
            request_id=body.request_id, producer_name="n", last_sequence_id=last[0]
        )
        writer.write(encode_command(answer))

    fake.on[B.PRODUCER] = producer

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=replace(hasty, send_timeout=10)) as client:
            producer = await client.producer(TOPIC, name="n", owns_name=True)
            del fake.on[B.SEND]
            waiting = await send(producer, b"x", sequence_id=20, last_sequence_id=20)
            await fake.until(lambda: fake.count(B.SEND) == 1)
            last[0], fake.on[B.SEND] = -1, fake._receipt
            fake.connections[0].close()
            [result] = await asyncio.gather(waiting, return_exceptions=True)
            assert fake.count(B.SEND) == 1 + is_sent_again
            if is_sent_again:
                assert result.sequence_id == 20
            else:
                assert isinstance(result, Unreachable) and "forgot" in result.what
                await producer.close()
                assert fake.count(B.CLOSE_PRODUCER) == 1, "the name is free again"

    run(main)


def test_a_receipt_that_skips_the_head_opens_again(run: Any, fake: Any, hasty: Options, send: Any) -> None:
    skipped = iter([True])

    def answer(body: Any, writer: Any) -> None:
        if body.sequence_id or not next(skipped, False):
            fake._receipt(body, writer)

    fake.on[B.SEND] = answer

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            producer = await client.producer(TOPIC)
            waiting = [await send(producer, b"x") for _ in range(3)]
            receipts = await asyncio.gather(*waiting)
            assert [receipt.sequence_id for receipt in receipts] == [0, 1, 2]
            assert producer.reconnects == 1

    run(main)


def test_garbage_in_mid_stream_reconnects_with_growing_delays(
    run: Any, fake: Any, hasty: Options, send: Any
) -> None:
    fake.on[B.SEND] = lambda body, writer: writer.write(b"\x7f\xff\xff\xffgarbage")

    async def main() -> None:
        options = replace(hasty, send_timeout=0.6, first_delay=0.05, longest_delay=0.2)
        async with fake, PulsarClient(fake.url, options=options) as client:
            producer = await client.producer(TOPIC)
            waiting = await send(producer, b"x")
            with pytest.raises(Unreachable, match="no receipt within"):
                await waiting
            # At most: at once, then once after each delay; never in a tight loop.
            assert 2 <= producer.reconnects <= 9
            fake.on[B.SEND] = fake._receipt
            assert (await (await send(producer, b"y"))).sequence_id == 1

    run(main)


def test_the_window_bounds_what_is_under_way(run: Any, fake: Any, hasty: Options, send: Any) -> None:
    held: list[Any] = []
    fake.on[B.SEND] = lambda body, writer: held.append((writer, body.producer_id, body.sequence_id))

    async def main() -> None:
        options = replace(hasty, window_entries=4, send_timeout=10)
        async with fake, PulsarClient(fake.url, options=options) as client:
            producer = await client.producer(TOPIC)
            senders = [asyncio.create_task(send(producer, b"%d" % i)) for i in range(10)]
            await fake.until(lambda: len(held) == 4)
            await asyncio.sleep(0.05)
            assert (producer.pending, len(held)) == (4, 4)
            senders[5].cancel()
            fake.on[B.SEND] = fake._receipt
            for one in held:
                fake.receipt(*one)
            sent = await asyncio.gather(*senders, return_exceptions=True)
            assert isinstance(sent.pop(5), asyncio.CancelledError)
            receipts = await asyncio.gather(*sent)
            assert [receipt.sequence_id for receipt in receipts] == list(range(9))

    run(main)


def test_who_waits_for_room_alone_can_look_before_he_sends(
    run: Any, fake: Any, hasty: Options, send: Any
) -> None:
    fake.on[B.SEND] = lambda body, writer: None

    async def main() -> None:
        options = replace(hasty, window_entries=2, send_timeout=0.3, stall_timeout=10)
        async with fake, PulsarClient(fake.url, options=options) as client:
            producer = await client.producer(TOPIC)
            sent = [await send(producer, b"x") for _ in range(2)]
            async with asyncio.timeout(5):
                await producer.room(1)
            # The time-out made the room: that everything failed is known when the wait ends.
            assert all(isinstance(receipt.exception(), Unreachable) for receipt in sent)
            await producer.room(1)
            assert producer.pending == 0

    run(main)


def test_a_cancelled_wait_does_not_disturb_the_others(run: Any, fake: Any, hasty: Options, send: Any) -> None:
    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            producer = await client.producer(TOPIC)
            first, second = await send(producer, b"x"), await send(producer, b"y")
            first.cancel()
            assert (await second).sequence_id == 1
            assert producer.pending == 0

    run(main)


def test_an_entry_that_is_too_large(run: Any, fake: Any, hasty: Options, send: Any) -> None:
    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            producer = await client.producer(TOPIC)
            with pytest.raises(PulsarRefused, match="too large") as refused:
                await send(producer, bytes(1 << 20))
            assert (refused.value.server_error, refused.value.retriable) == (
                ServerError.NOT_ALLOWED_ERROR,
                False,
            )
            assert (await (await send(producer, b"y"))).sequence_id == 0

    run(main)


def test_closing_fails_what_is_under_way(run: Any, fake: Any, hasty: Options, send: Any) -> None:
    del fake.on[B.SEND]

    async def main() -> None:
        async with fake:
            async with PulsarClient(fake.url, options=hasty) as client:
                producer = await client.producer(TOPIC)
                waiting = await send(producer, b"x")
            with pytest.raises(ClusterError, match="was closed"):
                await waiting
            with pytest.raises(ClusterError, match="was closed"):
                await send(producer, b"y")

    run(main)
