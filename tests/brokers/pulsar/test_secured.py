"""The client on a Pulsar that wants TLS and tokens."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from penstock.brokers.pulsar import Admin, Options, PulsarClient
from penstock.config.secret import Secret
from penstock.embedded.pulsar import Pulsar
from penstock.errors import ClusterError, PulsarRefused, Unreachable
from penstock.wire.pulsar.pulsar_pb2 import ServerError

pytestmark = pytest.mark.server

HASTY = Options(connect_timeout=3, open_timeout=3)


def trusting(server: Pulsar) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(server.ca_file))


def client(server: Pulsar, token: str | None, **said: Any) -> PulsarClient:
    secret = None if token is None else Secret(token)
    return PulsarClient(server.service_url, token=secret, options=HASTY, **{"tls": trusting(server)} | said)


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_round_trip(secured_pulsar: Pulsar, run: Any, topic: str, send: Any, uvloop: bool) -> None:
    async def main() -> None:
        token = Secret(secured_pulsar.token())
        async with (
            client(secured_pulsar, token.reveal()) as ours,
            Admin(secured_pulsar.admin_url, token=token, tls=trusting(secured_pulsar)) as admin,
        ):
            producer = await ours.producer(topic)
            places = [(await (await send(producer, b"x" * 100_000))).message_id for _ in range(20)]
            reader = await ours.reader(topic)
            assert [(await reader.read()).message_id for _ in range(20)] == places
            await admin.unload(topic)
            last = (await (await send(producer, b"y"))).message_id
            assert (await reader.read()).message_id == last
            assert last > places[-1]

    run(main, uvloop=uvloop)


@pytest.mark.parametrize("token", [None, "", "not.a.token", "wrong"])
def test_a_wrong_token(secured_pulsar: Pulsar, run: Any, topic: str, token: str | None) -> None:
    wrong = secured_pulsar.token()[:-4] + "AAAA" if token == "wrong" else token

    async def main() -> None:
        async with client(secured_pulsar, wrong) as ours:
            with pytest.raises(PulsarRefused) as caught:
                await ours.producer(topic)
            assert caught.value.server_error == ServerError.AUTHENTICATION_ERROR
            assert not caught.value.retriable
            assert wrong is None or not wrong or wrong not in str(caught.value)

    run(main)


def test_a_role_without_the_right(secured_pulsar: Pulsar, run: Any, topic: str) -> None:
    async def main() -> None:
        async with client(secured_pulsar, secured_pulsar.token("nobody")) as ours:
            for opening in (ours.producer(topic), ours.reader(topic), ours.consumer(topic, "s")):
                with pytest.raises(PulsarRefused) as caught:
                    await opening
                assert caught.value.server_error == ServerError.AUTHORIZATION_ERROR
                assert not caught.value.retriable

    run(main)


def test_an_authority_that_we_do_not_trust(secured_pulsar: Pulsar, run: Any) -> None:
    async def main() -> None:
        async with client(secured_pulsar, "x", tls=None) as ours:
            with pytest.raises(ClusterError, match="not signed by an authority") as caught:
                await ours.check()
            assert not isinstance(caught.value, Unreachable)

    run(main)


def test_plain_tcp_to_a_port_with_tls(secured_pulsar: Pulsar, run: Any) -> None:
    async def main() -> None:
        url = secured_pulsar.service_url.replace("pulsar+ssl", "pulsar")
        async with PulsarClient(url, options=HASTY) as ours:
            with pytest.raises(ClusterError):
                await ours.check()

    run(main)
