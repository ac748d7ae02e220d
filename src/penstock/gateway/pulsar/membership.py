"""Which gateways live: each tells the others, through a topic, that it does and where clients reach it.

A gateway that was silent for `SILENCE` is taken for dead, whether it was killed or hangs; Pulsar's own
keep-alive would take a minute to see a hang. One that has not heard itself for `LEASE`, which is shorter,
must act as if it were dead: the others may take over what it had.
Two gateways cannot have the same node id: it is the name of their producer, and Pulsar lets only one live
producer have a name.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.brokers.pulsar import Admin, Delivery, Host, Producer, PulsarClient, Reader
from penstock.brokers.pulsar.tasks import Tasks
from penstock.errors import ConfigError, PenstockError, PulsarRefused, WireError
from penstock.wire.pulsar import LATEST
from penstock.wire.pulsar.pulsar_pb2 import MessageMetadata, ServerError

__all__ = ["BALANCED_LEADERS", "LEASE", "SILENCE", "TOPIC_IDS", "Membership", "Peer", "read_peer"]

log = logging.getLogger("penstock.gateway")

INTERVAL: Final = 0.5
SILENCE: Final = 3.0
LEASE: Final = 2.5
_SETTLES: Final = 3 * INTERVAL
"""After so long every gateway that lives has been heard."""
_LARGEST: Final = 64 * 1024
TOPIC_IDS: Final = "topic-ids"
"""Topics have ids of their own; without it a gateway knows only those that are computed from names."""
BALANCED_LEADERS: Final = "balanced-leaders"
"""The first partitions of a topic are dealt out evenly; without it a gateway goes by the hash alone."""
FEATURES: Final = frozenset({BALANCED_LEADERS, TOPIC_IDS})
"""What this version has."""
_MAX_NODE: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What a gateway says about itself."""

    node_id: int
    life: str
    """Chosen anew at each start."""
    addresses: tuple[Host, ...] = ()
    """What clients are told, one for each listener, in order."""
    listeners: tuple[str, ...] | None = None
    """The names of the listeners, in the same order; None from a gateway that does not tell them."""
    held: Mapping[int, int] = field(default_factory=dict)
    """The partitions of the offsets topic that it has, and with which epoch."""
    beat: int = 0
    leaving: bool = False
    beside: tuple[Host, ...] | None = None
    """The brokers it sits beside, port 0 for all of a host; None from a gateway that knows nothing of it."""
    features: frozenset[str] = frozenset()
    """What it can do that an earlier version cannot, and that gateways must do alike or not at all."""

    def address_of(self, listener: str, position: int) -> Host | None:
        """Where clients of a listener reach it, None if nowhere; one that tells no names goes by positions.

        >>> at = (Host("a", 1), Host("b", 2))
        >>> peer = Peer(node_id=7, life="", addresses=at, listeners=("ssl", "sasl_ssl"))
        >>> peer.address_of("sasl_ssl", 0), peer.address_of("plaintext", 0)
        (Host(name='b', port=2), None)
        """
        if self.listeners is None:
            return self.addresses[position] if position < len(self.addresses) else None
        return dict(zip(self.listeners, self.addresses, strict=False)).get(listener)

    def is_beside(self, broker: Host) -> bool:
        """Say whether it sits beside a broker.

        >>> Peer(node_id=7, life="a", beside=(Host("b", 0),)).is_beside(Host("b", 6650))
        True
        """
        return any(name == broker.name and port in (0, broker.port) for name, port in self.beside or ())

    def to_bytes(self) -> bytes:
        """Write it."""
        value: dict[str, Any] = {
            "node": self.node_id,
            "life": self.life,
            "at": [list(address) for address in self.addresses],
            "held": {str(partition): epoch for partition, epoch in self.held.items()},
            "beat": self.beat,
            "leaving": self.leaving,
        }
        if self.listeners is not None:
            value["listeners"] = list(self.listeners)
        if self.beside is not None:
            value["beside"] = [list(broker) for broker in self.beside]
        if self.features:
            value["features"] = sorted(self.features)
        return json.dumps(value).encode()


def read_peer(data: bytes) -> Peer | None:
    """Read what a gateway says; None for anything else.

    >>> read_peer(Peer(node_id=7, life="a", addresses=(Host("h", 1),)).to_bytes()).node_id, read_peer(b"{}")
    (7, None)
    """
    try:
        value = json.loads(data) if len(data) <= _LARGEST else {}
        peer = Peer(
            node_id=int(value["node"]),
            life=str(value["life"]),
            addresses=_hosts(value["at"]),
            listeners=_names(value["listeners"]) if "listeners" in value else None,
            held={int(key): int(epoch) for key, epoch in value["held"].items()},
            beat=int(value["beat"]),
            leaving=bool(value["leaving"]),
            beside=_hosts(value["beside"]) if "beside" in value else None,
            features=frozenset(map(str, value.get("features", ()))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return peer if 0 <= peer.node_id <= _MAX_NODE and peer.addresses else None


def _names(rows: Any) -> tuple[str, ...]:
    return tuple(str(name) for name in list(rows))


def _hosts(rows: Any) -> tuple[Host, ...]:
    return tuple(Host(str(name), int(port)) for name, port in rows)


class Membership:
    """This gateway among the others."""

    def __init__(
        self,
        client: PulsarClient,
        admin: Admin,
        topic: str,
        *,
        on_beat: Callable[[], None] = lambda: None,
        held: Callable[[], Mapping[int, int]] = dict,
        clock: Callable[[], float] = time.monotonic,
        tasks: Tasks | None = None,
    ) -> None:
        self.node_id = -1
        self.addresses: tuple[Host, ...] = ()
        self.listeners: tuple[str, ...] | None = None
        """The names of the listeners that the addresses belong to."""
        self.beside: tuple[Host, ...] | None = None
        self.on_word: Callable[[bytes], None] = lambda word: None
        """Hears what gateways tell each other besides that they live, the own words included."""
        self._client = client
        self._admin = admin
        self._topic = topic
        self._on_beat = on_beat
        self._held = held
        self._clock = clock
        self._life = secrets.token_hex(8)
        self._beats = 0
        self._sent: dict[int, float] = {}
        self._heard_self = -SILENCE
        self._settled_at = float("inf")
        self._peers: dict[int, tuple[Peer, float]] = {}
        self._supervisor = tasks or Tasks()
        self._tasks: list[asyncio.Task[None]] = []
        self._producer: Producer | None = None
        self._reader: Reader[Peer | bytes] | None = None

    # Asking

    @property
    def has_lease(self) -> bool:
        """Whether it has heard the others, and they cannot have taken it for dead since."""
        now = self._clock()
        return now >= self._settled_at and now - self._heard_self < LEASE

    def live(self) -> tuple[int, ...]:
        """Give the ids of the gateways that live, in order; this one only if it hears itself."""
        return tuple(sorted(peer.node_id for peer in self.peers()))

    def all_have(self, feature: str) -> bool:
        """Say whether every gateway that lives has a feature; not while one of an earlier version does."""
        return all(feature in peer.features for peer in self.peers())

    def peers(self) -> list[Peer]:
        """Give the gateways that live."""
        now = self._clock()
        return [peer for peer, heard in self._peers.values() if now - heard < SILENCE]

    # The life

    async def start(
        self, node_id: int, addresses: Sequence[Host], beside: Sequence[Host] | None = None
    ) -> None:
        """Join the others; ConfigError if one of them has our node id."""
        self.node_id, self.addresses = node_id, tuple(addresses)
        self.beside = None if beside is None else tuple(beside)
        reader = await self._open_reader()
        self._producer = await self._claim(reader)
        self._settled_at = self._clock() + (0.0 if await self._is_alone() else _SETTLES)
        self._tasks = [
            self._supervisor.forever(self._speak, name="heartbeats to other gateways"),
            self._supervisor.forever(self._listen, name="heartbeats of other gateways"),
        ]

    async def _open_reader(self) -> Reader[Peer | bytes]:
        if self._reader is None or self._reader.error is not None:
            self._reader = await self._client.reader(self._topic, start=LATEST, convert=_converted)
        return self._reader

    async def _open_producer(self) -> Producer:
        if self._producer is None or self._producer.error is not None:
            name = f"penstock-gateway-{self.node_id}"
            self._producer = await self._client.producer(self._topic, name=name)
        return self._producer

    async def _claim(self, reader: Reader[Peer | bytes]) -> Producer:
        """Take the name of our node; if it is taken and silent, Pulsar still knows a former life of ours."""
        while True:
            try:
                return await self._open_producer()
            except PulsarRefused as exc:
                if exc.server_error != ServerError.PRODUCER_BUSY:
                    raise
                if await self._hears_namesake(reader):
                    raise ConfigError(
                        f"another gateway has the node id {self.node_id}",
                        why="each gateway of a cluster is a Kafka node of its own",
                        next="give this one another --node-id",
                    ) from exc
                log.info("Pulsar has not seen yet that a former node %d is gone", self.node_id)

    async def _hears_namesake(self, reader: Reader[Peer | bytes]) -> bool:
        try:
            async with asyncio.timeout(SILENCE):
                while True:
                    peer = await reader.read()
                    if isinstance(peer, Peer) and peer.node_id == self.node_id and not peer.leaving:
                        return True
        except TimeoutError:
            return False

    async def _is_alone(self) -> bool:
        """Ask Pulsar who is connected: nobody needs to be waited for if it is only us."""
        publishers = (await self._admin.stats(self._topic)).get("publishers", [])
        return len(publishers) <= 1

    async def close(self) -> None:
        """Say goodbye, so that nobody waits for our silence."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._producer is not None:
            try:
                async with asyncio.timeout(1.0):
                    await (await self._say(leaving=True))
            except (PenstockError, TimeoutError):
                pass
            await self._producer.close()
        if self._reader is not None:
            await self._reader.close()

    async def _speak(self) -> None:
        while True:
            try:
                receipt = await self._say()
                receipt.add_done_callback(_looked_at)
            except PenstockError as exc:
                log.warning("this gateway cannot tell the others that it lives: %s", exc)
            self._on_beat()
            await asyncio.sleep(INTERVAL)

    async def _say(self, *, leaving: bool = False) -> asyncio.Future[Any]:
        producer = await self._open_producer()
        self._beats += 1
        now = self._clock()
        # What is older cannot renew the lease any more; without an answer for hours they would be many.
        self._sent = {beat: said for beat, said in self._sent.items() if now - said < SILENCE}
        self._sent[self._beats] = now
        peer = Peer(
            node_id=self.node_id,
            life=self._life,
            addresses=self.addresses,
            listeners=self.listeners,
            held={} if leaving else dict(self._held()),
            beat=self._beats,
            leaving=leaving,
            beside=self.beside,
            features=FEATURES,
        )
        return await producer.send_message(_metadata(), peer.to_bytes())

    async def tell(self, word: bytes) -> None:
        """Tell all gateways something, this one included: each hears it, and in the same order."""
        producer = await self._open_producer()
        receipt = await producer.send_message(_metadata(), word)
        receipt.add_done_callback(_looked_at)

    async def _listen(self) -> None:
        while True:
            try:
                heard = await (await self._open_reader()).read()
            except PenstockError as exc:
                log.warning("this gateway does not hear the others: %s", exc)
                await asyncio.sleep(INTERVAL)
                continue
            if isinstance(heard, Peer):
                self.hear(heard)
            else:
                self.on_word(heard)

    def hear(self, peer: Peer) -> None:
        """Take in what a gateway says."""
        if peer.node_id == self.node_id and peer.life == self._life:
            # The lease counts from when it was said, not from when it was heard.
            said = self._sent.pop(peer.beat, None)
            if said is None:
                return
            if not self.has_lease:
                # It is back: let everybody see that it was lost.
                self._on_beat()
            self._heard_self = max(self._heard_self, said)
            for beat in [beat for beat in self._sent if beat < peer.beat]:
                del self._sent[beat]
        if peer.leaving:
            self._peers.pop(peer.node_id, None)
            self._on_beat()
            return
        is_new = peer.node_id not in self._peers
        self._peers[peer.node_id] = (peer, self._clock())
        if is_new:
            self._on_beat()


def _looked_at(receipt: asyncio.Future[Any]) -> None:
    if not receipt.cancelled():
        receipt.exception()


def _metadata() -> MessageMetadata:
    return MessageMetadata(publish_time=int(time.time() * 1000))


def _converted(delivery: Delivery) -> Peer | bytes:
    entry = delivery.entry
    if isinstance(entry, WireError) or entry.is_batch or len(entry.payload) > _LARGEST:
        return b""
    word = bytes(entry.payload)
    return read_peer(word) or word
