"""Kafka clients with TLS and tokens on a real Pulsar that asks for both: who may do and see what."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import re
import subprocess
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.brokers.pulsar import Host
from penstock.brokers.rest import Rest, tls_context
from penstock.embedded.certificates import make_certificates
from penstock.embedded.kafka_tools import tool_command
from penstock.embedded.pulsar import Pulsar
from penstock.errors import ConfigError
from penstock.gateway.entrance import Listener
from penstock.gateway.groups.group import Limits as GroupLimits
from penstock.gateway.process import Gateway, Options
from penstock.gateway.security.protocols import SecurityProtocol

pytestmark = pytest.mark.server

SESSION = uuid.uuid4().hex[:6]
ACME, BETA = f"acme-{SESSION}", f"beta-{SESSION}"
SHOP, OTHER_SHOP = f"{ACME}/shop", f"{BETA}/shop"
LOCAL = Host("127.0.0.1", 0)
DEADLINE = 60.0


def options(pulsar: Pulsar, *protocols: SecurityProtocol, **changes: Any) -> Options:
    from penstock.config import Secret

    files = make_certificates(pulsar.data / "conf")
    return Options(
        pulsar=pulsar.service_url,
        admin=pulsar.admin_url,
        token=Secret(pulsar.token()),
        ca_file=pulsar.ca_file,
        listeners=tuple(Listener(address=LOCAL, protocol=each) for each in protocols),
        tls_certificate=files.certificate,
        tls_key=files.key,
        groups_namespace=f"public/__kafka_{SESSION}",
        group_limits=GroupLimits(initial_delay=0.0),
        **changes,
    )


def groups_of(admin: AdminClient) -> set[str]:
    """Ask until the gateway has read all of its groups."""
    deadline = time.monotonic() + DEADLINE
    while (found := admin.list_consumer_groups().result(DEADLINE)).errors:
        assert time.monotonic() < deadline, found.errors
        time.sleep(0.1)
    return {group.group_id for group in found.valid}


class World:
    """A gateway on a secured Pulsar with two tenants, and everything that was logged."""

    def __init__(self, pulsar: Pulsar) -> None:
        self.pulsar = pulsar
        self.tokens: set[str] = set()
        self.logged = io.StringIO()
        self._handler = logging.StreamHandler(self.logged)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> World:
        logging.getLogger("penstock").addHandler(self._handler)
        self._grant()
        self._thread.start()
        self.gateway = self._run(self._start())
        self.bootstrap = str(self.gateway.addresses[0])
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self.gateway.drain())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        logging.getLogger("penstock").removeHandler(self._handler)

    async def _start(self) -> Gateway:
        chosen = options(
            self.pulsar,
            SecurityProtocol.SASL_SSL,
            SecurityProtocol.SASL_PLAINTEXT,
            stamp_identity=True,
            cursor_period=0.5,
            metrics=LOCAL,
        )
        gateway = Gateway(chosen)
        await gateway.start()
        return gateway

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE)

    def rest(self) -> Rest:
        tls = tls_context(ca_file=str(self.pulsar.ca_file), cert_file=None, key_file=None, key_password=None)
        return Rest(
            f"{self.pulsar.admin_url}/admin/v2",
            name="pulsar",
            authorization=f"Bearer {self.pulsar.token()}",
            tls=tls,
        )

    def _grant(self) -> None:
        rest = self.rest()
        for tenant in (ACME, BETA):
            body = {"adminRoles": [f"{tenant}-admin"], "allowedClusters": ["standalone"]}
            assert rest.call("PUT", f"/tenants/{tenant}", body).ok
            assert rest.call("PUT", f"/namespaces/{tenant}/shop", {}).ok
        for role, rights in {
            "writer": ["produce"],
            "reader": ["consume"],
            "both": ["produce", "consume"],
        }.items():
            assert rest.call("POST", f"/namespaces/{SHOP}/permissions/{role}", rights).ok
        rest.close()

    def subscriptions(self, topic: str) -> list[str]:
        rest = self.rest()
        found = rest.call("GET", f"/persistent/{topic}/subscriptions").value
        rest.close()
        return list(found)

    def token(self, role: str, **claims: Any) -> str:
        made = self.pulsar.token(role, **claims)
        self.tokens.add(made)
        return made

    def settings(self, role: str, user: str = SHOP, **changes: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.pulsar.ca_file),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": f"token:{self.token(role)}",
            "log_level": 0,
        } | changes

    def create(self, role: str, user: str, name: str) -> None:
        admin = AdminClient(self.settings(role, user))
        admin.create_topics([NewTopic(name, 1)])[name].result(DEADLINE)

    def seen(self, role: str, user: str) -> tuple[set[str], set[str]]:
        """Give the topics and the groups that a role sees."""
        admin = AdminClient(self.settings(role, user))
        return set(admin.list_topics(timeout=DEADLINE).topics), groups_of(admin)


@pytest.fixture(scope="module")
def world(secured_pulsar: Pulsar) -> Iterator[World]:
    logger = logging.getLogger("penstock")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    with World(secured_pulsar) as found:
        found.create(f"{ACME}-admin", SHOP, "orders")
        yield found
    logger.setLevel(level)
    # A transport that nobody has closed is told here, and not in another test.
    gc.collect()


def produce(settings: dict[str, Any], topic: str, value: bytes, **more: Any) -> tuple[KafkaError | None, Any]:
    answers: list[tuple[KafkaError | None, Any]] = []
    producer = Producer(settings | {"message.timeout.ms": int(DEADLINE * 1000)})
    producer.produce(
        topic, value, on_delivery=lambda error, message: answers.append((error, message)), **more
    )
    assert producer.flush(DEADLINE) == 0
    return answers[0]


def consume(
    settings: dict[str, Any], start: Callable[[Consumer], None], group: str = "billing", besides: int = 0
) -> Any:
    """Give the first record, or the first error `besides` one that is no matter."""
    own = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings | own)
    start(consumer)
    try:
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                if not besides:
                    consumer.commit(message, asynchronous=False)
                return message
            if message is not None and message.error().code() != besides:
                return message.error()
        raise AssertionError("neither a record nor an error came")
    finally:
        consumer.close()


def test_plain_with_the_roles_own_rights(world: World) -> None:
    mark = uuid.uuid4().bytes
    settings = world.settings("both", **{"enable.idempotence": True})
    forged = [("source-identity", b"root"), ("a", b"1")]
    error, stored = produce(settings, "orders", mark, key=b"k", headers=forged)
    assert error is None and stored.offset() >= 0
    place = [TopicPartition("orders", 0, stored.offset())]
    found = consume(world.settings("reader"), lambda consumer: consumer.assign(place), "assigned")
    assert (found.value(), found.key(), found.offset()) == (mark, b"k", stored.offset())
    assert found.headers() == [("a", b"1"), ("source-identity", b"both")]
    grouped = consume(world.settings("both"), lambda consumer: consumer.subscribe(["orders"]))
    assert grouped.value() is not None
    assert "billing" in world.seen("both", SHOP)[1]
    deadline = time.monotonic() + DEADLINE
    while "billing" not in world.subscriptions(f"{SHOP}/orders-partition-0"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert f"//{SHOP}/billing" not in world.subscriptions(f"{SHOP}/orders-partition-0")


@pytest.mark.parametrize("role", ["reader", "writer", f"{ACME}-admin"], ids=["reader", "writer", "admin"])
def test_every_role_may_read_the_id_of_a_topic(world: World, role: str) -> None:
    """So all are told the same one, with whatever rights it is read."""
    from penstock.brokers.pulsar import Admin
    from penstock.config import Secret
    from penstock.gateway.pulsar.topic_ids import ID_PROPERTY

    tls = tls_context(ca_file=str(world.pulsar.ca_file), cert_file=None, key_file=None, key_password=None)

    async def properties() -> Any:
        async with Admin(world.pulsar.admin_url, token=Secret(world.token(role)), tls=tls) as admin:
            return await admin.properties(f"persistent://{SHOP}/orders")

    told = AdminClient(world.settings(role)).list_topics("orders", timeout=DEADLINE).topics["orders"]
    assert told.error is None
    assert uuid.UUID(asyncio.run(properties())[ID_PROPERTY]).version == 4


def test_a_role_that_may_only_write(world: World) -> None:
    for idempotent in (False, True):
        settings = world.settings("writer", **{"enable.idempotence": idempotent})
        error, stored = produce(settings, "orders", b"written")
        # Pulsar tells places in a topic to those who may read it.
        assert error is None and (stored.offset() is None or stored.offset() < 0)
    assert consume(world.settings("both"), lambda consumer: consumer.subscribe(["orders"]), "first").value()
    # Though somebody else reads the same partition through the same gateway at this moment.
    place = [TopicPartition("orders", 0, 0)]
    refused = consume(world.settings("writer"), lambda consumer: consumer.assign(place))
    assert refused.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
    refused = consume(world.settings("writer"), lambda consumer: consumer.subscribe(["orders"]))
    assert refused.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_role_that_may_only_read(world: World) -> None:
    # The second listener has another protocol, and tells its own address.
    other = {"bootstrap.servers": str(world.gateway.addresses[1]), "security.protocol": "SASL_PLAINTEXT"}
    assert produce(world.settings("both", **other), "orders", b"x")[0] is None
    error, _ = produce(world.settings("reader"), "orders", b"x")
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_role_with_rights_on_one_topic(world: World) -> None:
    rest = world.rest()
    assert rest.call("POST", f"/persistent/{SHOP}/orders/permissions/single", ["produce", "consume"]).ok
    rest.close()
    error, stored = produce(world.settings("single"), "orders", b"single")
    assert error is None and stored.offset() >= 0
    place = [TopicPartition("orders", 0, stored.offset())]
    denied = KafkaError.GROUP_AUTHORIZATION_FAILED
    found = consume(world.settings("single"), lambda consumer: consumer.assign(place), besides=denied)
    assert found.value() == b"single"
    refused = consume(world.settings("single"), lambda consumer: consumer.subscribe(["orders"]))
    assert refused.code() == denied


def test_a_role_without_rights(world: World) -> None:
    topics, groups = world.seen("nobody", SHOP)
    assert (topics, groups) == (set(), set())
    admin = AdminClient(world.settings("nobody"))
    assert admin.list_topics("orders", timeout=DEADLINE).topics["orders"].error.code() == (
        KafkaError.TOPIC_AUTHORIZATION_FAILED
    )
    for attempt in (
        admin.create_topics([NewTopic("mine", 1)])["mine"],
        admin.delete_topics(["orders"])["orders"],
    ):
        with pytest.raises(KafkaException) as caught:
            attempt.result(DEADLINE)
        assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    # Reading and writing records is not the right to make and remove topics.
    with pytest.raises(KafkaException) as caught:
        world.create("both", SHOP, "mine")
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_tenants_do_not_see_each_other(world: World) -> None:
    role = f"{BETA}-admin"
    world.create(role, OTHER_SHOP, "orders")
    world.create(role, OTHER_SHOP, "secret")
    settings = world.settings(role, OTHER_SHOP)
    assert produce(settings, "orders", b"of beta")[0] is None
    found = consume(settings, lambda consumer: consumer.subscribe(["orders"]), "beta")
    assert found.value() == b"of beta"
    assert world.seen(role, OTHER_SHOP) == ({"orders", "secret"}, {"beta"})
    topics, groups = world.seen("both", SHOP)
    assert "secret" not in topics and "beta" not in groups
    error, _ = produce(world.settings("both"), f"{OTHER_SHOP}/orders", b"intruder")
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    # A name is a claim, and no right.
    assert world.seen("both", OTHER_SHOP) == (set(), set())
    refused = consume(
        world.settings("both", OTHER_SHOP), lambda consumer: consumer.subscribe(["orders"]), "beta"
    )
    assert refused.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_oauthbearer_is_renewed_on_the_way(world: World) -> None:
    given: list[str] = []

    def fresh(_: object) -> tuple[str, float, str, dict[str, str]]:
        ends = int(time.time()) + 4
        given.append(world.token("both", expires_at=ends))
        return given[-1], ends, "both", {"namespace": SHOP}

    settings = {key: value for key, value in world.settings("both").items() if key[:5] != "sasl."}
    settings |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": fresh, "enable.idempotence": True}
    errors: list[KafkaError | None] = []
    producer = Producer(settings | {"message.timeout.ms": int(DEADLINE * 1000)})
    begun, sent = time.monotonic(), 0
    while time.monotonic() - begun < 6 or len(given) < 2:
        producer.produce("orders", b"again", on_delivery=lambda error, _: errors.append(error))
        sent += 1
        producer.flush(DEADLINE)
        producer.poll(0.5)
    assert errors == [None] * sent


@pytest.mark.parametrize("kind", ["wrong", "expired", "opaque", "another method"])
def test_tokens_that_pulsar_does_not_take(world: World, kind: str) -> None:
    passwords = {
        "wrong": f"token:{world.token('both')[:-6]}AAAAAA",
        "expired": f"token:{world.token('both', expires_at=int(time.time()) - 60)}",
        "opaque": "token:a:b:c",
        "another method": f"basic:{world.token('both')}",
    }
    errors: list[KafkaError] = []
    settings = world.settings("both") | {"sasl.password": passwords[kind], "error_cb": errors.append}
    admin = AdminClient(settings)
    deadline = time.monotonic() + DEADLINE
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        assert time.monotonic() < deadline
        admin.poll(0.2)
    world.tokens.add(passwords[kind].partition(":")[2])


def test_kafkas_own_tools_with_the_settings_of_the_page(world: World, tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "gateway" / "security.md"
    [text] = re.findall(
        r"^```properties\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    changes = {
        "kafka.example.com:9094": world.bootstrap,
        "acme/shop": SHOP,
        "eyJhbGciOiJIUzI1NiJ9...": world.token("both"),
        "ca.pem": str(world.pulsar.ca_file),
    }
    for former, value in changes.items():
        assert former in text
        text = text.replace(former, value)
    (tmp_path / "client.properties").write_text(text)
    world.create(f"{ACME}-admin", SHOP, "java")
    assert produce(world.settings("both"), "java", b"for java")[0] is None
    words = [
        *("--bootstrap-server", world.bootstrap, "--topic", "java", "--from-beginning", "--group", "java"),
        *("--command-config", str(tmp_path / "client.properties"), "--max-messages", "1"),
    ]
    done = subprocess.run(
        tool_command("console-consumer", words), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "for java\n"


def test_nothing_secret_is_told(world: World) -> None:
    assert produce(world.settings("both"), "orders", b"x")[0] is None
    with urllib.request.urlopen(f"http://{world.gateway.metrics_address}/metrics") as page:
        told = world.logged.getvalue() + page.read().decode()
    assert f"is both, in {SHOP}" in told
    for token in world.tokens | {world.pulsar.token()}:
        assert token not in told
        signature = token.rpartition(".")[2]
        assert len(signature) < 8 or signature not in told


# What does not start


def start(chosen: Options) -> None:
    async def life() -> None:
        gateway = Gateway(chosen)
        await gateway.start()
        await gateway.drain()

    asyncio.run(life())


def test_a_gateway_that_may_not_administer_starts_where_everything_is_there(world: World) -> None:
    from penstock.config import Secret

    role, namespace = f"gateway-{SESSION}", f"public/__kafka_{SESSION}"
    rest = world.rest()
    assert rest.call("POST", f"/namespaces/{namespace}/permissions/{role}", ["produce", "consume"]).ok
    rest.close()
    chosen = replace(
        options(world.pulsar, SecurityProtocol.SASL_SSL), token=Secret(world.token(role)), metrics=LOCAL
    )

    async def live() -> str:
        gateway = Gateway(chosen)
        await gateway.start()
        try:
            async with asyncio.timeout(DEADLINE):
                while (await gateway._readyz()).status != 200:
                    await asyncio.sleep(0.05)
            return str(gateway._storage.cluster_id)
        finally:
            await gateway.drain(1.0)

    assert asyncio.run(live()) == world.gateway._storage.cluster_id


def test_a_listener_that_asks_nobody_has_no_rights_to_lend(secured_pulsar: Pulsar) -> None:
    with pytest.raises(ConfigError, match=r"nobody could be served on plaintext://127\.0\.0\.1:0"):
        start(options(secured_pulsar, SecurityProtocol.PLAINTEXT))


def test_who_is_not_asked_has_the_rights_of_nobody(pulsar: Pulsar) -> None:
    """This Pulsar lets nobody do everything; another one what its `anonymousUserRole` may."""
    from penstock.config import Secret

    async def life() -> None:
        gateway = Gateway(
            Options(
                pulsar=pulsar.service_url,
                admin=pulsar.admin_url,
                token=Secret("of.the.gateway"),
                listeners=(Listener(address=LOCAL),),
                groups_namespace=f"public/__kafka_{SESSION}_nobody",
                group_limits=GroupLimits(initial_delay=0.0),
            )
        )
        await gateway.start()
        try:
            await asyncio.to_thread(use, str(gateway.addresses[0]))
        finally:
            await gateway.drain()

    def use(bootstrap: str) -> None:
        settings, topic = {"bootstrap.servers": bootstrap, "log_level": 0}, f"nobody-{SESSION}"
        assert produce(settings, topic, b"x")[0] is None
        assert consume(settings, lambda consumer: consumer.subscribe([topic]), "nobody").value() == b"x"
        assert groups_of(AdminClient(settings)) == {"nobody"}

    asyncio.run(life())


def test_sasl_before_a_pulsar_that_takes_every_token(pulsar: Pulsar) -> None:
    listener = Listener(address=LOCAL, protocol=SecurityProtocol.SASL_PLAINTEXT)
    chosen = Options(
        pulsar=pulsar.service_url,
        admin=pulsar.admin_url,
        listeners=(listener,),
        groups_namespace=f"public/__kafka_{SESSION}",
    )
    with pytest.raises(ConfigError, match="a SASL listener would let everybody in"):
        start(chosen)
