"""A cluster as this client sees it: brokers, leaders, and connections to them.

Bootstrap addresses are asked first and again when no known broker answers. One thread uses a cluster.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Sequence
from threading import Event
from types import TracebackType
from typing import Self, TypeVar

from penstock.brokers.kafka_raw.access_token import AccessToken, access_token
from penstock.brokers.kafka_raw.address import Address
from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import (
    DESCRIBE_CONFIGS,
    END_TXN,
    METADATA,
    METADATA_WITH_IDS,
    Call,
)
from penstock.brokers.kafka_raw.connection import Connection
from penstock.brokers.kafka_raw.login import log_in
from penstock.brokers.kafka_raw.metadata import (
    Leader,
    Metadata,
    TopicLayout,
    metadata_request,
    read_metadata,
    read_topic_ids,
    topic_ids_request,
)
from penstock.brokers.kafka_raw.refusal import refusal
from penstock.brokers.kafka_raw.retry import is_retriable, retrying
from penstock.brokers.kafka_raw.settings import OAUTHBEARER, Settings
from penstock.brokers.kafka_raw.tls import tls_context
from penstock.brokers.kafka_raw.topic_config import config_request, read_config
from penstock.brokers.outage import OutageLog
from penstock.errors import KafkaRefused, PenstockError, Unreachable
from penstock.wire.buffer import Buffer
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["Cluster"]

_Result = TypeVar("_Result")
_NUMBER = re.compile("[0-9]{1,10}")


class Cluster:
    """Brokers by number, leaders by topic and partition.

    with Cluster(Settings.of({"bootstrap.servers": "127.0.0.1:9092"})) as cluster:
        cluster.partitions("orders")
    """

    def __init__(
        self, settings: Settings, *, stop: Event | None = None, outage: OutageLog | None = None
    ) -> None:
        """`stop` ends what waits for a broker, after a while; `outage` is told whether any broker answers."""
        self.settings = settings
        self._stop = stop
        self._stopped_at: float | None = None
        self._outage = outage
        self._context = tls_context(settings)
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, TopicLayout] = {}
        self._connections: dict[Address, Connection] = {}
        self._cluster_id: str | None = None
        self._not_refreshed: PenstockError | None = None
        """Why the last attempt to hear of leaders failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are shared; who dialled one closes it."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # What the cluster looks like

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None if it does not tell."""
        if not self._brokers:
            self.retrying(lambda: self.refresh(()))
        return self._cluster_id

    @property
    def transactional(self) -> bool:
        """Whether the cluster has transactions; our gateway has none."""
        return self.retrying(lambda: self._with_any(self._shared).serves(END_TXN))

    def partitions(self, topic: str, *, refresh: bool = False) -> int:
        """Count the partitions of a topic, anew if wanted; raise KafkaRefused if it stays unknown."""
        layout = None if refresh else self._topics.get(topic)
        return (layout or self._layout(topic)).partitions

    def known_partitions(self, topic: str) -> int:
        """Count the partitions of a topic as it was last heard of; 0 if it was not."""
        layout = self._topics.get(topic)
        return 0 if layout is None else layout.partitions

    def leader(self, topic: str, partition: int) -> Leader:
        """Give the leader as it was last heard of; KafkaRefused (retriable) while there is none."""
        layout = self._topics.get(topic) or self._layout(topic)
        if partition not in layout.leaders:
            unknown = not 0 <= partition < layout.partitions
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown else ErrorCode.LEADER_NOT_AVAILABLE
            raise refusal(code, "a partition has no leader", where=f"{topic}-{partition}")
        return layout.leaders[partition]

    def refresh(self, topics: Collection[str] = ()) -> Metadata:
        """Ask any broker for these topics and those known already; once, without trying again."""
        wanted = sorted({*topics, *self._topics})
        heard = self.ask_any(METADATA, metadata_request(wanted), read_metadata)
        self._brokers = dict(heard.brokers) or self._brokers
        self._cluster_id = heard.cluster_id
        # A topic that a broker does not know for a moment keeps its leaders.
        self._topics |= {name: layout for name, layout in heard.topics.items() if layout.partitions}
        return heard

    def topic_id(self, topic: str) -> str | None:
        """Give the id that a topic got when it was made; None if it is not there or the cluster has no ids.

        Asked once: raises Unreachable if nobody answers now.
        """
        try:
            found = self.ask_any(METADATA_WITH_IDS, topic_ids_request([topic]), read_topic_ids)
        except KafkaRefused as exc:
            if exc.error_code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return None
        return found.get(topic)

    def max_message_bytes(self, topic: str) -> int | None:
        """Give the largest batch that a topic takes; None if the cluster does not tell."""
        try:
            found = self.retrying(
                lambda: self.ask_any(
                    DESCRIBE_CONFIGS, config_request(topic, "max.message.bytes"), read_config
                )
            )
        except KafkaRefused:
            return None  # no right to look, or a broker without this request: not worth stopping for
        return int(found) if found and _NUMBER.fullmatch(found) else None

    def _layout(self, topic: str) -> TopicLayout:
        def look() -> TopicLayout:
            # A cluster that does not answer gets more time than a topic that is not there.
            layout = self.retrying(lambda: self.refresh([topic])).topics.get(topic)
            if layout is None or not layout.partitions:
                code = layout.error_code if layout else ErrorCode.NONE
                raise refusal(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} is not there")
            return layout

        return retrying(look, seconds=self.settings.topic_timeout, between=_nothing, gives_up=self.gives_up)

    # Talking to brokers

    def retrying(self, attempt: Callable[[], _Result]) -> _Result:
        """Call `attempt` until it works, within the deadline; the leaders are asked for in between."""
        try:
            return retrying(
                attempt,
                seconds=self.settings.deadline,
                between=lambda exc: self.try_refresh(),
                gives_up=self.gives_up,
            )
        except KafkaRefused as exc:
            if exc.retriable and self._not_refreshed is not None:
                # What failed is of the last answer; the reason is that there was none since.
                raise self._not_refreshed from exc
            raise

    def gives_up(self) -> bool:
        """Whether the end was asked for so long ago that nothing is waited for any more."""
        if self._stop is None or not self._stop.is_set():
            return False
        now = time.monotonic()
        self._stopped_at = now if self._stopped_at is None else self._stopped_at
        return now - self._stopped_at >= self.settings.stop_timeout

    def try_refresh(self, topics: Collection[str] = ()) -> None:
        """Refresh if anybody answers; who needed it will fail again and come back."""
        self._not_refreshed = None
        try:
            self.refresh(topics)
        except PenstockError as exc:
            if not is_retriable(exc):
                raise
            self._not_refreshed = exc

    def ask(
        self, node: int, call: Call, body: Sequence[Buffer], read: Callable[[Answer], _Result]
    ) -> _Result:
        """Ask one broker on its shared connection; once."""
        return self._ask(self._address(node), call, body, read)

    def dial(self, node: int) -> Connection:
        """Open a connection of one's own to a broker."""
        return self._open(self._address(node))

    def known(self, node: int, address: Address) -> None:
        """Take in where a broker is: an answer of FindCoordinator says it, too."""
        self._brokers[node] = address

    def _address(self, node: int) -> Address:
        if node not in self._brokers:
            raise Unreachable(f"broker {node} is not in the cluster", why="it is down, or it has just come")
        return self._brokers[node]

    def ask_any(self, call: Call, body: Sequence[Buffer], read: Callable[[Answer], _Result]) -> _Result:
        """Ask whoever answers; once."""
        return self._with_any(lambda address: self._ask(address, call, body, read))

    def _with_any(self, use: Callable[[Address], _Result]) -> _Result:
        failure: Unreachable | None = None
        connected = list(self._connections)
        for address in dict.fromkeys([*connected, *self._brokers.values(), *self.settings.bootstrap]):
            try:
                found = use(address)
            except Unreachable as exc:
                failure = exc
            else:
                if self._outage is not None:
                    self._outage.worked()
                return found
        assert failure is not None, "there is a bootstrap address at least"
        if self._outage is not None:
            self._outage.failed(failure)
        raise failure

    def _ask(
        self, address: Address, call: Call, body: Sequence[Buffer], read: Callable[[Answer], _Result]
    ) -> _Result:
        connection = self._shared(address)
        try:
            answer = connection.call(call, body)
            # Every answer that is asked for this way begins with the time to be silent (KIP-219).
            connection.throttle(answer.int32())
            return read(answer)
        finally:
            if connection.closed:
                self._connections.pop(address, None)

    def _shared(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = self._connections[address] = self._open(address)
        return connection

    def _open(self, address: Address) -> Connection:
        token = access_token(self.settings) if self.settings.mechanism == OAUTHBEARER else None
        try:
            return self._connect(address, token)
        except KafkaRefused as exc:
            if exc.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            if token is not None:
                # The keys of its issuer may have been changed since: once, another one is fetched.
                return self._connect(address, access_token(self.settings, refused=token))
            if not (self.settings.proven and self.settings.changes):
                raise
            # Broker and file cannot be changed at the same moment: the next attempt reads the file again.
            raise Unreachable(
                "the broker refuses a password that worked before",
                where=str(address),
                why=exc.why,
                next="write the new password into the file that the context names",
            ) from exc

    def _connect(self, address: Address, token: AccessToken | None) -> Connection:
        connection = Connection.open(address, self.settings, self._context)
        log_in(connection, self.settings, token)
        return connection


def _nothing(_: PenstockError) -> None:
    """Only time can help."""
