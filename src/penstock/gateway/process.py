"""A whole gateway from its options: Pulsar behind it, listeners and operators' pages before it.

It starts (connect, check the broker, listen), serves, drains, and ends.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from http import HTTPStatus
from importlib import metadata
from typing import Any, Final

from penstock import __version__
from penstock.brokers.outage import Outages
from penstock.brokers.pulsar import Admin, Host, PulsarClient, ServiceUrl
from penstock.brokers.pulsar.tasks import Tasks
from penstock.brokers.tls import tls_context
from penstock.config.secret import Secret, mask_address
from penstock.errors import MachineError, PenstockError, PortTaken, Unreachable
from penstock.gateway.dispatch import HANDLERS, advertised
from penstock.gateway.entrance import Entrance, Listener, listener_names
from penstock.gateway.groups.tenants import OwnGroups, read_scope
from penstock.gateway.handler import Services, Settings
from penstock.gateway.health import Answer, Health
from penstock.gateway.metrics import CONTENT_TYPE, Metrics, Reading
from penstock.gateway.options import Options, guess_admin
from penstock.gateway.ports import Log
from penstock.gateway.pulsar.accounts import Accounts, Backend
from penstock.gateway.pulsar.cluster import GatewayCluster, derived_node_id
from penstock.gateway.pulsar.coordinators import NAMESPACE, PulsarGroups
from penstock.gateway.pulsar.cursor_sync import CursorSync, Home
from penstock.gateway.pulsar.cursors import Cursors
from penstock.gateway.pulsar.installation import find_cluster_id
from penstock.gateway.pulsar.leaders import Leaders
from penstock.gateway.pulsar.membership import TOPIC_IDS, Peer
from penstock.gateway.pulsar.names import Names, refuse_own
from penstock.gateway.pulsar.ownership import Ownership
from penstock.gateway.pulsar.partition import Partition
from penstock.gateway.pulsar.read_ahead import ReadAhead
from penstock.gateway.pulsar.storage import PulsarStorage
from penstock.gateway.pulsar.topic_ids import TopicIds
from penstock.gateway.security.protocols import SecurityProtocol
from penstock.gateway.server import Server
from penstock.gateway.startup import check_broker, check_retention
from penstock.wire.kafka.apis import API_VERSIONS, FETCH, METADATA, PRODUCE
from penstock.wire.kafka.requests import prepare_request

__all__ = ["Gateway", "Listener", "Options", "guess_admin"]

log = logging.getLogger("penstock.gateway")

_DRAIN: Final = 10.0
_READY_WITHIN: Final = 2.0
_FAILING_FOR: Final = 60.0
"""Seconds for which a task may fail again and again before the process counts as unhealthy."""
_FIRST_ASKED: Final = (API_VERSIONS, METADATA, PRODUCE, FETCH)


class Gateway:
    """One gateway in the running event loop."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.addresses: list[Host] = []
        """Where it listens, once it does."""
        self.metrics_address: Host | None = None
        self._names = listener_names(options.listeners)
        """Of the listeners: those of a cluster belong together by their names."""
        self._tls = _tls(options)
        self._tasks = Tasks()
        """Supervises what runs as long as the gateway."""
        self._outages = Outages(log)
        """Of brokers, as seen by the clients of all principals."""
        self._read_ahead = ReadAhead()
        self._undecodable: Counter[str] = Counter()
        self._ownership = Ownership(self._tell, on_change=self._let_go)
        own_tls = _own_tls(options) or self._tls
        self._client = self._client_as(options.token, own_tls)
        self._admin = self._admin_as(options.token, own_tls)
        self._groups = PulsarGroups(
            self._client,
            self._admin,
            namespace=options.groups_namespace,
            partitions=options.groups_partitions,
            limits=options.group_limits,
            tasks=self._tasks,
            keeps_cursors=options.keeps_cursors,
        )
        self._groups.on_view = self._follow_leaders
        self._topic_ids = self._new_topic_ids()
        self._groups.membership.on_word = self._hear
        self._leaders = Leaders(lambda: self._groups.node_id, self._ownership)
        self._storage = self._storage_of(self._client, self._admin, options.default_namespace)
        self._storage.node_id = -1 if options.node_id is None else options.node_id
        self._home = Home(Cursors(self._client, self._admin), self._pulsar_name, self._storage.topics.is_gone)
        self._cursor_sync = CursorSync(
            self._home_of,
            self._groups.shards,
            period=options.cursor_period,
            adopt=options.adopt_cursors,
            tasks=self._tasks,
        )
        self.metrics = Metrics(self._reading)
        backend = Backend(
            client=self._client_as,
            admin=self._admin_as,
            storage=self._storage_of,
            services=self._services_of,
            groups=self._groups,
        )
        self._accounts = Accounts(
            backend, default_namespace=options.default_namespace, limit=options.max_principals
        )
        self._entrance = self._entrance_to(backend)
        self._servers: list[Server] = []
        self._health = Health(
            {"/metrics": self._metrics_page, "/healthz": self._healthz, "/readyz": self._readyz}
        )
        self._preparing: asyncio.Task[None] | None = None
        self.serving = False
        """Whether it is ready for clients."""

    def _new_topic_ids(self) -> TopicIds:
        members = self._groups.membership
        return TopicIds(
            tell=self._tell,
            has_peers=lambda: len(members.peers()) > 1,
            by_name_only=lambda: not members.all_have(TOPIC_IDS),
        )

    def _entrance_to(self, backend: Backend) -> Entrance:
        options = self.options
        return Entrance(
            options.listeners,
            backend,
            self._accounts,
            trusts_clients=options.has_own_clients,
            lends_token=options.trust_clients and options.token is not None,
            certificate=options.tls_certificate,
            key=options.tls_key,
            limits=options.limits,
            observer=self.metrics,
            tasks=self._tasks,
        )

    # The life

    async def start(self) -> None:
        """Connect to Pulsar, look at its settings, listen; nothing stays open if that fails."""
        try:
            await self._client.check()
            for warning in await self._check_broker():
                log.warning("%s", warning)
            self._storage.cluster_id = await find_cluster_id(self._admin, self.options.groups_namespace)
            for key in _FIRST_ASKED:
                prepare_request(key, HANDLERS[key].highest)
            if self.options.metrics is not None:
                self.metrics_address = await _listen(self._health.start, self.options.metrics)
            await self._entrance.open()
            for listener in self.options.listeners:
                await self._listen_on(listener)
            self._groups.membership.listeners = self._names
            await self._groups.start(self._storage.node_id, self._told(), self._beside())
            if self.options.keeps_cursors:
                self._cursor_sync.start()
        except BaseException:
            await self.drain(0.0)
            raise
        self.serving = True
        self._preparing = self._tasks.start(_prepare_rest(), name="prepare requests")
        log.info("%s", self._greeting())

    async def _check_broker(self) -> list[str]:
        try:
            return [
                *await check_broker(self._admin, packed=self.options.packed),
                *await check_retention(self._admin, self.options.default_namespace),
            ]
        except Unreachable as exc:
            if self.options.admin is not None:
                raise
            guessed = f"{exc.why}; this address was guessed from {mask_address(self.options.pulsar)}"
            raise Unreachable(exc.what, where=exc.where, why=guessed, next="give it by --admin URL") from exc

    async def drain(self, timeout: float = _DRAIN) -> None:
        """Take no more connections, finish what is under way, close."""
        self.serving = False
        if self._preparing is not None:
            self._preparing.cancel()
        # First of all: members that wait are sent on, and the other gateways need not wait for our silence.
        await self._cursor_sync.close()
        await self._ownership.close()
        await self._topic_ids.close()
        await self._groups.close()
        await asyncio.gather(*(server.drain(timeout) for server in self._servers))
        await self._health.close()
        await self._entrance.close()
        await self._storage.close()
        await self._client.close()
        await self._admin.close()

    # As whom Pulsar is asked

    def _client_as(self, token: Secret | None, own_tls: ssl.SSLContext | None = None) -> PulsarClient:
        return PulsarClient(
            self.options.pulsar,
            token=token,
            tls=own_tls or self._tls,
            by_certificate=own_tls is not None and self.options.cert_file is not None,
            on_owner=self._ownership.noticed,
            outages=self._outages,
        )

    def _admin_as(self, token: Secret | None, own_tls: ssl.SSLContext | None = None) -> Admin:
        address = self.options.admin or guess_admin(self.options.pulsar)
        hosts = [host.name for host in ServiceUrl.parse(self.options.pulsar).hosts]
        return Admin(address, token=token, tls=own_tls or self._tls, hosts=hosts)

    def _storage_of(self, client: PulsarClient, admin: Admin, namespace: str) -> PulsarStorage:
        return PulsarStorage(
            client,
            admin,
            names=Names(
                default_namespace=namespace,
                own_namespaces=frozenset({NAMESPACE, self.options.groups_namespace}),
            ),
            on_undecodable=self.options.on_undecodable,
            partitions=_partitions(self.options),
            read_ahead=self._read_ahead,
            undecodable=self._undecodable,
            leaders=self._leaders,
            topic_ids=self._topic_ids,
            retention_hours=self.options.retention_hours,
        )

    def _services_of(self, storage: PulsarStorage, name: str | None) -> Services:
        settings = Settings(
            auto_create_topics=self.options.auto_create,
            default_partitions=self.options.default_partitions,
            max_names_per_request=self.options.max_names_per_request,
        )
        return Services(
            topics=storage.topics,
            log=self._log_of(storage, name, settings),
            producers=storage,
            cluster=self._cluster_of(storage),
            groups=OwnGroups(self._groups),
            settings=settings,
            versions=advertised(),
        )

    def _cluster_of(self, storage: PulsarStorage) -> GatewayCluster:
        return GatewayCluster(
            self._storage, self._groups.membership, self._number_of, self._leaders, storage.topics
        )

    def _log_of(self, storage: PulsarStorage, name: str | None, settings: Settings) -> Log:
        if not self.options.stamp_identity:
            return storage
        # Only here, because it brings kernels of its own.
        from penstock.gateway.security.stamp import StampedLog

        return StampedLog(storage, name, limit=settings.max_batch_bytes)

    async def _listen_on(self, listener: Listener) -> None:
        name = self._names[len(self._servers)]
        server = self._entrance.server(listener, name, self._services_of(self._storage, None))
        # Known before the first client can ask; corrected when a free port has been taken.
        self._storage.advertised[name] = listener.advertised or listener.address
        address = await _listen(server.start, listener.address)
        told = listener.advertised or listener.address
        self._storage.advertised[name] = Host(told.name, told.port or address.port)
        self._servers.append(server)
        self.addresses.append(address)
        if self._storage.node_id < 0:
            self._storage.node_id = derived_node_id(self._told()[0])

    def _told(self) -> list[Host]:
        """The addresses that clients are told, in the order of the listeners."""
        return [Host(*where) for where in self._storage.advertised.values()]

    async def _pulsar_name(self, topic: str, partition: int) -> str:
        place = await self._storage.topics.place(topic)
        # A subscription there would keep what compaction and retention have to delete.
        refuse_own(place.topic.internal)
        return place.partition(partition)

    def _home_of(self, group_id: str) -> tuple[Home, str] | None:
        """Whose rights move the cursors of a group: its own people's, and else nobody's."""
        scope = read_scope(group_id)
        if scope is not None:
            home = self._accounts.home(scope[0])
            return None if home is None else (home, scope[1])
        return (self._home, group_id) if self.options.has_own_clients else None

    def _beside(self) -> list[Host]:
        """The brokers at hand, in order, because gateways compare it."""
        found = self.options.beside
        return sorted({Host(told.name, 0) for told in self._told()} if found is None else found)

    async def _tell(self, word: bytes) -> None:
        await self._groups.membership.tell(word)

    def _hear(self, word: bytes) -> None:
        """Take in what another gateway tells; each part reads what is meant for it."""
        self._ownership.hear(word)
        self._topic_ids.hear(word)

    def _follow_leaders(self, peers: Sequence[Peer]) -> None:
        self._leaders.look(peers)
        self._let_go()

    def _let_go(self) -> None:
        self._storage.let_go()
        self._accounts.let_go()

    def _number_of(self, listener: str) -> int:
        return list(self._storage.advertised).index(listener)

    def _greeting(self) -> str:
        rows = zip(self.options.listeners, self.addresses, self._told(), strict=True)
        listeners = [
            f"{_scheme(listener)}{own}" if own == to else f"{_scheme(listener)}{own} (as {to})"
            for listener, own, to in rows
        ]
        pages = f", metrics on http://{self.metrics_address}/metrics" if self.metrics_address else ""
        return (
            f"penstock {__version__} gateway, node {self._storage.node_id}: "
            f"Kafka clients on {', '.join(listeners)}{pages}; {mask_address(self.options.pulsar)}; "
            f"{len(advertised())} APIs, kio {metadata.version('kio')}, "
            f"{type(asyncio.get_running_loop()).__module__.partition('.')[0]}"
        )

    # What operators ask

    async def _metrics_page(self) -> Answer:
        return Answer(HTTPStatus.OK, self.metrics.text(), CONTENT_TYPE)

    async def _healthz(self) -> Answer:
        if self._tasks.failing_for() > _FAILING_FOR:
            return _unavailable(f"failing for too long: {', '.join(self._tasks.failing)}")
        return Answer(HTTPStatus.OK, b"ok\n")

    async def _readyz(self) -> Answer:
        if not self.serving:
            return _unavailable("starting or draining")
        if self._tasks.failing:
            return _unavailable(f"failing: {', '.join(self._tasks.failing)}")
        if not self._groups.membership.has_lease:
            return _unavailable("no lease: this gateway does not hear its own heartbeats")
        try:
            async with asyncio.timeout(_READY_WITHIN):
                await self._client.check()
        except TimeoutError:
            return _unavailable("Pulsar does not answer")
        except PenstockError as exc:
            return _unavailable(exc.what)
        return Answer(HTTPStatus.OK, b"ready\n")

    def _reading(self) -> Reading:
        clients = [client for server in self._servers for client in server.clients]
        under_way = [client.under_way for client in clients]
        budgets = [self._entrance.budgets.used_ratio, self._read_ahead.used]
        for server in self._servers:
            limit = server.limits.bytes_per_connection
            budgets += [client.under_way[1] / limit for client in server.clients]
        accounts = list(self._accounts)
        offsets = [storage.offsets() for storage in (self._storage, *(each.storage for each in accounts))]
        pulsars = (self._client, *(each.client for each in accounts))
        return Reading(
            connections=len(clients),
            requests_under_way=sum(requests for requests, _ in under_way),
            bytes_under_way=sum(size for _, size in under_way),
            budget_used=max(budgets, default=0.0),
            reconnects=sum(each.reconnects for each in pulsars),
            offsets_counted=sum(counted for counted, _ in offsets),
            offsets_learnt=sum(learnt for _, learnt in offsets),
            undecodable=dict(self._undecodable),
        )


def _unavailable(why: str) -> Answer:
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}\n".encode())


def _scheme(listener: Listener) -> str:
    """A listener without TLS and SASL is told as it was written."""
    return "" if listener.protocol is SecurityProtocol.PLAINTEXT else f"{listener.protocol}://"


async def _prepare_rest() -> None:
    """Load what reads the other requests while clients are served already, a little at a time."""
    for handler in HANDLERS.values():
        prepare_request(handler.key, handler.highest)
        await asyncio.sleep(0)


async def _listen(start: Callable[[str, int], Any], address: Host) -> Host:
    try:
        return Host(*await start(address.name, address.port))
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"{address} is taken",
                why="somebody else listens there",
                next="end it, or choose another port (0 takes a free one)",
            ) from exc
        raise MachineError(
            f"cannot listen on {address}: {exc.strerror or exc}",
            next="choose an address of this machine and a port from 1024 on",
        ) from exc


def _partitions(options: Options) -> type[Partition]:
    if not options.packed:
        return Partition
    # Only here, because it brings kernels of its own.
    from penstock.gateway.pulsar.packed_partition import PackedPartition

    return PackedPartition


def _tls(options: Options) -> ssl.SSLContext:
    """Make the one context of connections for clients: reading the authorities takes a while."""
    ca_file = None if options.ca_file is None else str(options.ca_file)
    made = tls_context(ca_file=ca_file, cert_file=None, key_file=None, key_password=None)
    return made or ssl.create_default_context()


def _own_tls(options: Options) -> ssl.SSLContext | None:
    """Make the context of the gateway's own connections, which show its certificate; None if it has none.

    For clients it is not shown: Pulsar's admin API would take them for the gateway.
    """
    if options.cert_file is None:
        return None
    files = (options.ca_file, options.cert_file, options.key_file)
    ca_file, cert_file, key_file = (None if path is None else str(path) for path in files)
    password = None if options.key_password is None else options.key_password.reveal()
    return tls_context(ca_file=ca_file, cert_file=cert_file, key_file=key_file, key_password=password)
