"""Two brokers, a gateway beside each and one elsewhere: leaders follow topics from broker to broker."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.brokers.pulsar import Host
from penstock.brokers.rest import Rest
from penstock.embedded.artifacts import classpath
from penstock.embedded.java import Java
from penstock.embedded.log4j2 import write_log4j2
from penstock.embedded.ports import ask, choose_port, is_listening
from penstock.embedded.pulsar import _SETTINGS
from penstock.embedded.server import Server
from penstock.gateway.entrance import Listener
from penstock.gateway.process import Gateway, Options

pytestmark = [
    pytest.mark.server,
    pytest.mark.soak,
    pytest.mark.skipif(sys.platform != "linux", reason="only there is all of 127.0.0.0/8 this machine"),
]

WITHIN = 60.0
PARTITIONS = 12


def write_settings(path: Path, settings: dict[str, Any]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


class ZooKeeper(Server):
    """What brokers know together."""

    name = "zookeeper"

    def __init__(self) -> None:
        super().__init__(ports={"port": 0}, heap_mb=64)

    def _command(self, java: Java) -> list[str]:
        settings = {
            "dataDir": self.data / "data",
            "clientPort": self.port("port"),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }
        conf = write_settings(self.data / "conf" / "zoo.cfg", settings)
        logs = write_log4j2(self.data / "conf" / "log4j2.xml", self.log)
        return [logs, "-cp", classpath("pulsar"), "org.apache.zookeeper.server.ZooKeeperServerMain", conf]

    def _is_ready(self) -> bool:
        return is_listening(self.port("port"))


class PulsarBroker(Server):
    """A broker at an address of its own; the first one has the bookie, too."""

    name = "pulsar"

    def __init__(self, zookeeper: ZooKeeper, number: int) -> None:
        super().__init__(ports={"port": 0, "http-port": 0}, heap_mb=256, start_timeout=180)
        self.number = number
        self.host = f"127.0.0.{number}"
        self._zookeeper = f"127.0.0.1:{zookeeper.port('port')}"

    @property
    def web(self) -> str:
        return f"{self.host}:{self.port('http-port')}"

    def _command(self, java: Java) -> list[str]:
        store = f"zk:{self._zookeeper}"
        settings = _SETTINGS | {
            "metadataStoreUrl": store,
            "configurationMetadataStoreUrl": store,
            "bindAddress": self.host,
            "advertisedAddress": self.host,
            "brokerServicePort": self.port("port"),
            "webServicePort": self.port("http-port"),
            "loadBalancerEnabled": "true",
            "loadBalancerSheddingEnabled": "false",
            "transactionCoordinatorEnabled": "false",
        }
        conf = write_settings(self.data / "conf" / "broker.conf", settings)
        words = [write_log4j2(self.data / "conf" / "log4j2.xml", self.log), "-XX:MaxDirectMemorySize=192m"]
        words += ["-cp", classpath("pulsar"), "org.apache.pulsar.PulsarBrokerStarter", "-c", conf]
        return words + (["-rb", "-bc", self._bookie(java)] if self.number == 1 else [])

    def _bookie(self, java: Java) -> str:
        folders = {name: self.data / "data" / name for name in ("journalDirectory", "ledgerDirectories")}
        settings = folders | {
            "bookiePort": choose_port(0, setting="bookie"),
            "metadataServiceUri": f"zk://{self._zookeeper}/ledgers",
            "advertisedAddress": "127.0.0.1",
            "listeningInterface": "lo",
            "allowLoopback": "true",
            "journalSyncData": "false",
            "dbStorage_writeCacheMaxSizeMb": "32",
            "dbStorage_readAheadCacheMaxSizeMb": "16",
            "nettyMaxFrameSizeBytes": "5253120",
        }
        conf = write_settings(self.data / "conf" / "bookkeeper.conf", settings)
        words = ["org.apache.bookkeeper.bookie.BookieShell", "-conf", conf, "initnewcluster"]
        subprocess.run([java.executable, "-cp", classpath("pulsar"), *words], check=True, capture_output=True)
        return conf

    def _is_ready(self) -> bool:
        if self.number == 1 and not self._has_namespaces():
            return False
        return ask(f"http://{self.web}/admin/v2/brokers/health") is not None

    def _has_namespaces(self) -> bool:
        """Make what `initialize-cluster-metadata` would, for which jars are missing here."""
        address = {
            "serviceUrl": f"http://{self.web}",
            "brokerServiceUrl": f"pulsar://{self.host}:{self.port('port')}",
        }
        own = {"allowedClusters": ["standalone"], "adminRoles": []}
        bundles = {"replication_clusters": ["standalone"], "bundles": {"numBundles": 4}}
        rows = {"clusters/standalone": address, "tenants/pulsar": own, "tenants/public": own}
        rows |= {"namespaces/pulsar/system": bundles, "namespaces/public/default": bundles}
        return all(self._put(path, value) for path, value in rows.items())

    def _put(self, path: str, value: dict[str, Any]) -> bool:
        url = f"http://{self.web}/admin/v2/{path}"
        if ask(url) is not None:
            return True
        head = {"Content-Type": "application/json"}
        made = urllib.request.Request(url, json.dumps(value).encode(), head, method="PUT")
        return ask(made) is not None


class Site:
    """Both brokers and three gateways: 1 and 2 at the addresses of the brokers, 3 at one of its own."""

    def __init__(self, brokers: list[PulsarBroker]) -> None:
        self.brokers = brokers
        self.rest = Rest(f"http://{brokers[0].web}", name="pulsar")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._gateways = [self._run(self._start(number)) for number in (1, 2, 3)]
        self.addresses = [str(gateway.addresses[0]) for gateway in self._gateways]
        self.admins = [AdminClient({"bootstrap.servers": each, "log_level": 0}) for each in self.addresses]

    def close(self) -> None:
        self.rest.close()
        for gateway in self._gateways:
            self._run(gateway.drain(1.0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self, number: int) -> Gateway:
        hosts = ",".join(f"{each.host}:{each.port('port')}" for each in self.brokers)
        listener = Listener(address=Host(f"127.0.0.{number}", 0))
        admin = f"http://{self.brokers[0].web}"
        options = Options(pulsar=f"pulsar://{hosts}", admin=admin, listeners=(listener,), node_id=number)
        gateway = Gateway(options)
        await gateway.start()
        return gateway

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN)

    def leaders(self, topic: str) -> list[list[int]]:
        """What each gateway tells."""
        told = [admin.list_topics(topic, timeout=WITHIN).topics[topic].partitions for admin in self.admins]
        return [[partitions[index].leader for index in sorted(partitions)] for partitions in told]

    def owners(self, topic: str) -> list[int]:
        """The numbers of the brokers that own the partitions."""
        paths = [
            f"/lookup/v2/topic/persistent/public/default/{topic}-partition-{n}" for n in range(PARTITIONS)
        ]
        hosts = [self.rest.call("GET", path).value["brokerUrl"].split(":")[1] for path in paths]
        return [int(host.rpartition(".")[2]) for host in hosts]

    def move(self, topic: str) -> None:
        """Bring the bundle of partition 0 to the other broker."""
        other = self.brokers[2 - self.owners(topic)[0]].web
        path = f"/lookup/v2/topic/persistent/public/default/{topic}-partition-0/bundle"
        bundle = ask(f"{self.rest.base}{path}")
        path = f"/admin/v2/namespaces/public/default/{bundle}/unload?destinationBroker={other}"
        assert self.rest.call("PUT", path).ok


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper())
        brokers = [stack.enter_context(PulsarBroker(zookeeper, number)) for number in (1, 2)]
        site = Site(brokers)
        stack.callback(site.close)
        yield site


def eventually(check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WITHIN
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Writer(threading.Thread):
    """Writes numbers to all partitions in turn until it is told to stop."""

    def __init__(self, site: Site, topic: str) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": ",".join(site.addresses), "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(settings)
        self._topic = topic
        self.acknowledged: list[int] = []
        self.errors: list[Any] = []
        self.done = threading.Event()

    def _heard(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(int(message.value()))
        else:
            self.errors.append(error)

    def run(self) -> None:
        for number in itertools.count():
            if self.done.is_set():
                break
            partition = number % PARTITIONS
            self._producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=self._heard)
            self._producer.poll(0.002)
        self._producer.flush(WITHIN)


def read_all(site: Site, topic: str) -> list[list[int]]:
    """Give what each partition holds, in order."""
    settings = {"bootstrap.servers": ",".join(site.addresses), "group.id": topic, "log_level": 0}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    deadline = time.monotonic() + WITHIN
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                found[message.partition()].append(int(message.value()))
            else:
                ended.add(message.partition())
    consumer.close()
    return found


def test_leaders_follow_topics_from_broker_to_broker(site: Site) -> None:
    topic = f"two-{uuid.uuid4().hex[:8]}"
    site.admins[0].create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WITHIN)
    eventually(lambda: site.leaders(topic) == [site.owners(topic)] * 3)
    writer = Writer(site, topic)
    writer.start()
    try:
        for _ in range(4):
            before, count = site.owners(topic)[0], len(writer.acknowledged)
            site.move(topic)
            eventually(lambda before=before: site.owners(topic)[0] != before)
            eventually(lambda: site.leaders(topic) == [site.owners(topic)] * 3)
            eventually(lambda count=count: len(writer.acknowledged) > count + 100)
    finally:
        writer.done.set()
        writer.join(WITHIN)
    assert writer.errors == []
    found = read_all(site, topic)
    assert Counter(itertools.chain.from_iterable(found)) == Counter(writer.acknowledged)
    assert found == [sorted(each) for each in found]
