"""Connections and lookups with a broker that lies, stays silent or says no: typed errors, no hang."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.brokers.pulsar import AccessMode, Options, PulsarClient
from penstock.config.secret import Secret
from penstock.errors import ClusterError, PenstockError, PulsarDenied, PulsarRefused, Unreachable, WireError
from penstock.wire.pulsar import MessageId, encode_command
from penstock.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAuthChallenge,
    CommandConnected,
    CommandError,
    CommandLookupTopicResponse,
    CommandPing,
    CommandProducerSuccess,
    CommandSendError,
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
        (encode_command(CommandError(request_id=NO_REQUEST, error=3, message="who?")), PulsarDenied),
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
