"""The client against a broker that lies, stays silent or says no: typed errors, no hang, no loss."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.brokers.pulsar import AccessMode, Options, PulsarClient
from penstock.config.secret import Secret
from penstock.errors import ClusterError, PenstockError, PulsarRefused, Unreachable, WireError
from penstock.wire.pulsar import LATEST, MessageId, encode_command
from penstock.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAuthChallenge,
    CommandCloseProducer,
    CommandConnected,
    CommandError,
    CommandGetLastMessageIdResponse,
    CommandLookupTopicResponse,
    CommandPing,
    CommandProducerSuccess,
    CommandSendError,
    MessageIdData,
    ServerError,
)

TOPIC = "persistent://public/default/x"
NO_REQUEST = (1 << 64) - 1
B = BaseCommand


# Greeting


@pytest.mark.parametrize(
    ("greeting", "kind"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", WireError),
        (b"\x00\x00\x00\x09\xff\xff\xff\xff\x00\x00\x00\x00\x00", WireError),
        (b"\x00\x00\x00\x02\x00\x00", WireError),
        (b"\x7f\xff\xff\xff", WireError),
        (b"\xff\xff\xff\xff", WireError),
        (encode_command(CommandSendError(producer_id=1, sequence_id=2, error=2, message="?")), Unreachable),
        (encode_command(CommandError(request_id=NO_REQUEST, error=3, message="who?")), PulsarRefused),
        (encode_command(CommandConnected(server_version="x", max_message_size=1 << 30)), ClusterError),
        (encode_command(CommandConnected(server_version="x"))[:-3], Unreachable),
    ],
)
def test_a_greeting_that_is_none(
    run: Any, fake: Any, hasty: Options, greeting: bytes, kind: type[PenstockError]
) -> None:
    fake.greeting = greeting
    del fake.on[B.CONNECT]

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            with pytest.raises(kind) as caught:
                await client.check()
            assert type(caught.value) is kind
            assert caught.value.where == f"127.0.0.1:{fake.port}"

    run(main)


def test_nobody_listens(run: Any, fake: Any, hasty: Options) -> None:
    async def main() -> None:
        async with fake:
            url = fake.url
        for name in ("a..b", "no-such-host.invalid"):
            async with PulsarClient(f"pulsar://{name}", options=hasty) as client:
                with pytest.raises(Unreachable):
                    await client.check()
        async with PulsarClient(url, options=hasty) as client:
            with pytest.raises(Unreachable, match="cannot reach"):
                await client.check()
            with pytest.raises(Unreachable, match="cannot reach"):
                await client.producer(TOPIC)

    run(main)


def test_the_second_host_answers(run: Any, fake: Any, hasty: Options) -> None:
    async def main() -> None:
        async with fake, PulsarClient(f"pulsar://127.0.0.1:1,127.0.0.1:{fake.port}", options=hasty) as client:
            await client.check()

    run(main)


def test_a_token_and_a_challenge(run: Any, fake: Any, hasty: Options) -> None:
    tokens = iter(["first", "second"])

    async def main() -> None:
        async with fake, PulsarClient(fake.url, token=Secret(lambda: next(tokens)), options=hasty) as client:
            await client.check()
            fake.connections[0].write(encode_command(CommandAuthChallenge()))
            await fake.until(lambda: B.AUTH_RESPONSE in fake.types())
        connect, response = fake.heard[0].body, fake.heard[-1].body
        assert (connect.auth_method_name, connect.auth_data) == ("token", b"first")
        assert connect.feature_flags.supports_broker_entry_metadata
        assert response.response.auth_data == b"second"

    run(main)


def test_a_token_that_vanished_ends_the_connection_with_its_error(
    run: Any, fake: Any, hasty: Options
) -> None:
    def reveal() -> str:
        raise ClusterError("the token is gone")

    async def main() -> None:
        async with fake, PulsarClient(fake.url, token=Secret(reveal), options=hasty) as client:
            with pytest.raises(ClusterError, match="the token is gone"):
                await client.check()

    run(main)


# Keep-alive


def test_a_ping_is_answered(run: Any, fake: Any, hasty: Options) -> None:
    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            await client.check()
            fake.connections[0].write(encode_command(CommandPing()))
            await fake.until(lambda: B.PONG in fake.types())

    run(main)


def test_a_silent_broker_is_given_up_and_replaced(run: Any, fake: Any, hasty: Options, send: Any) -> None:
    async def main() -> None:
        options = replace(hasty, keep_alive=0.05, send_timeout=10)
        async with fake, PulsarClient(fake.url, options=options) as client:
            producer = await client.producer(TOPIC)
            answers, fake.on = fake.on, {}
            await fake.until(lambda: fake.count(B.PING) >= 1)
            waiting = await send(producer, b"x")
            await fake.until(lambda: len(fake.connections) > 1)
            fake.on = answers
            receipt = await waiting
            assert (receipt.message_id, receipt.attempts) == (MessageId(7, 0), 2)
            assert producer.reconnects == 1

    run(main)


def test_a_broker_that_pongs_is_kept(run: Any, fake: Any, hasty: Options) -> None:
    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=replace(hasty, keep_alive=0.02)) as client:
            await client.check()
            await fake.until(lambda: fake.count(B.PING) >= 8)
            await client.check()
            assert len(fake.connections) == 1

    run(main)


# Requests


def test_a_request_without_an_answer(run: Any, fake: Any, hasty: Options) -> None:
    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            with pytest.raises(Unreachable, match="did not answer within 0.5 s"):
                await client.partitions(TOPIC)

    run(main)


def test_a_cancelled_open_leaves_nothing(run: Any, fake: Any, hasty: Options) -> None:
    del fake.on[B.PRODUCER]

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            opening = asyncio.create_task(client.producer(TOPIC))
            await fake.until(lambda: B.PRODUCER in fake.types())
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            # The broker may have made it: it is told to forget it.
            assert B.CLOSE_PRODUCER in fake.types()
            assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("pulsar")]

    run(main)


# Lookup


def lookup_answer(body: Any, url: str, **said: Any) -> bytes:
    said = {"response": CommandLookupTopicResponse.CONNECT} | said
    return encode_command(
        CommandLookupTopicResponse(request_id=body.request_id, broker_service_url=url, **said)
    )


def test_redirects_are_followed_with_their_authority(run: Any, fake: Any, hasty: Options) -> None:
    def lookup(body: Any, writer: Any) -> None:
        if body.authoritative:
            return fake._lookup(body, writer)
        said = {"response": CommandLookupTopicResponse.REDIRECT, "authoritative": True}
        writer.write(lookup_answer(body, fake.url, **said))

    fake.on[B.LOOKUP] = lookup

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            broker = await client.broker_of(TOPIC)
            assert str(broker.address) == f"127.0.0.1:{fake.port}"
        assert fake.count(B.LOOKUP) == 2

    run(main)


def test_redirects_without_end(run: Any, fake: Any, hasty: Options) -> None:
    redirect = CommandLookupTopicResponse.REDIRECT
    fake.on[B.LOOKUP] = lambda body, writer: writer.write(lookup_answer(body, fake.url, response=redirect))

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            with pytest.raises(ClusterError, match="in a circle"):
                await client.broker_of(TOPIC)

    run(main)


def test_a_proxy_is_told_the_owner(run: Any, fake: Any, hasty: Options) -> None:
    fake.on[B.LOOKUP] = lambda body, writer: writer.write(
        lookup_answer(body, "pulsar://owner:6650", proxy_through_service_url=True)
    )

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            await client.producer(TOPIC)
        connects = [command.body for command in fake.heard if command.type == B.CONNECT]
        assert [connect.proxy_to_broker_url for connect in connects] == ["", "owner:6650"]

    run(main)


@pytest.mark.parametrize("url", ["", "http://x", "pulsar://", "pulsar://a:b"])
def test_an_owner_without_an_address(run: Any, fake: Any, hasty: Options, url: str) -> None:
    fake.on[B.LOOKUP] = lambda body, writer: writer.write(lookup_answer(body, url))

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            with pytest.raises(ClusterError, match="as the address of a topic's owner"):
                await client.broker_of(TOPIC)

    run(main)


def test_a_refused_lookup(run: Any, fake: Any, hasty: Options) -> None:
    said = {"response": CommandLookupTopicResponse.FAILED, "error": 4, "message": "not you"}
    fake.on[B.LOOKUP] = lambda body, writer: writer.write(lookup_answer(body, "", **said))

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            with pytest.raises(PulsarRefused, match="not you") as caught:
                await client.producer(TOPIC)
            assert caught.value.server_error == ServerError.AUTHORIZATION_ERROR
        assert fake.count(B.LOOKUP) == 1

    run(main)


def test_a_topic_that_is_not_ready_is_asked_for_again(run: Any, fake: Any, hasty: Options) -> None:
    def producer(body: Any, writer: Any) -> None:
        if fake.count(B.PRODUCER) < 4:
            said = CommandError(request_id=body.request_id, error=ServerError.SERVICE_NOT_READY, message="")
            return writer.write(encode_command(said))
        return fake._producer(body, writer)

    fake.on[B.PRODUCER] = producer

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=replace(hasty, open_timeout=10)) as client:
            await client.producer(TOPIC)
        assert (fake.count(B.PRODUCER), fake.count(B.LOOKUP)) == (4, 4)

    run(main)


def test_waiting_for_exclusive_access_has_no_time_out(run: Any, fake: Any, hasty: Options) -> None:
    def producer(body: Any, writer: Any) -> None:
        said = CommandProducerSuccess(request_id=body.request_id, producer_name="p", producer_ready=False)
        writer.write(encode_command(said))
        ready = CommandProducerSuccess(request_id=body.request_id, producer_name="p", topic_epoch=4)
        asyncio.get_running_loop().call_later(0.8, writer.write, encode_command(ready))

    fake.on[B.PRODUCER] = producer

    async def main() -> None:
        async with fake, PulsarClient(fake.url, options=hasty) as client:
            found = await client.producer(TOPIC, access=AccessMode.WAIT_FOR_EXCLUSIVE)
            assert (found.name, found.topic_epoch) == ("p", 4)

    run(main)


# Sending


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
            fake.on[B.PRODUCER] = fenced
            with pytest.raises(PulsarRefused, match="producer fenced"):
                await (await send(producer, b"x"))

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
            with pytest.raises(ClusterError, match="too large"):
                await send(producer, bytes(1 << 20))
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


# Reading


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
