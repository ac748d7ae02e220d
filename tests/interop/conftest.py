"""Foreign clients on the gateway; the gateway is that of a user: a process or a thread on a real Pulsar."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from penstock.embedded.class_archive import ClassArchive, jars_of
from penstock.embedded.java import find_java

_names = itertools.count()
_SESSION = uuid.uuid4().hex[:6]


async def _start(service_url: str, admin_url: str) -> tuple[Any, ...]:
    from penstock.brokers.pulsar import Admin, PulsarClient
    from penstock.gateway.dispatch import advertised
    from penstock.gateway.handler import Services
    from penstock.gateway.pulsar.names import Names
    from penstock.gateway.pulsar.storage import PulsarStorage
    from penstock.gateway.server import Server

    client, admin = PulsarClient(service_url), Admin(admin_url)
    storage = PulsarStorage(client, admin, names=Names())
    server = Server(
        Services(
            topics=storage.topics, log=storage, producers=storage, cluster=storage, versions=advertised()
        )
    )
    storage.advertised["kafka"] = await server.start("127.0.0.1", 0)
    return server, storage, client, admin


async def _stop(server: Any, storage: Any, client: Any, admin: Any) -> None:
    await server.drain(2.0)
    for each in (storage, client, admin):
        await each.close()


@pytest.fixture(scope="session")
def gateway(pulsar: Any) -> Iterator[str]:
    """The bootstrap address of a gateway."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="gateway", daemon=True)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    parts = run(_start(pulsar.service_url, pulsar.admin_url))
    host, port = parts[1].advertised["kafka"]
    yield f"{host}:{port}"
    run(_stop(*parts))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="session")
def process(pulsar: Any) -> Iterator[Any]:
    """`penstock gateway` as a process of its own."""
    from penstock.embedded.gateway import Gateway

    # A cluster of its own: other tests run gateways on the same Pulsar, and would share its partitions.
    with Gateway(pulsar, options=("--groups-namespace", "public/__kafka_interop")) as server:
        yield server


@pytest.fixture(scope="session")
def run_tool() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a Java program of Kafka to its end.

    One that is told to records its classes, and all with the same jars start with them from then on.
    """

    def run(
        words: Sequence[str], *, given: str = "", within: float = 90, records: bool = False
    ) -> subprocess.CompletedProcess[str]:
        archive = ClassArchive("kafka-tool", find_java(), jars_of(words))
        recording = archive.record() if records else ()
        java, *others = words
        done = subprocess.run(
            [java, *(recording or archive.use()), *others],
            input=given,
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )
        if recording:
            archive.keep(has_ended_well=done.returncode == 0)
        return done

    return run


@pytest.fixture
def topic(gateway: str) -> Callable[..., str]:
    """Makes topics with names of their own."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": gateway, "log_level": 0})

    def make(partitions: int = 1) -> str:
        name = f"interop-{_SESSION}-{next(_names)}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        return name

    return make
