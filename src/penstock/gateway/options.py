"""What an operator chooses of a gateway, and what is chosen otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.brokers.pulsar import Host, ServiceUrl
from penstock.config.secret import Secret
from penstock.gateway.entrance import Listener
from penstock.gateway.groups.group import Limits as GroupLimits
from penstock.gateway.handler import Settings
from penstock.gateway.limits import Limits
from penstock.gateway.pulsar.coordinators import NAMESPACE, PARTITIONS
from penstock.gateway.pulsar.cursor_sync import PERIOD
from penstock.gateway.pulsar.retention import KAFKA_HOURS
from penstock.mapping import OnUndecodable

__all__ = ["Options", "guess_admin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an operator chooses."""

    pulsar: str
    admin: str | None = None
    """None: the host of `pulsar`, on the usual port."""
    token: Secret | None = None
    """Read again whenever it is needed."""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: Secret | None = None
    """The gateway's own certificate for Pulsar; clients that bring a token do not come with it."""
    listeners: tuple[Listener, ...] = (Listener(address=Host("127.0.0.1", 9092)),)
    trust_clients: bool = False
    """Whether clients of listeners without SASL act with the rights of the gateway."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    """For listeners with TLS; both are read again when they change."""
    stamp_identity: bool = False
    """Whether records are given the header `source-identity`."""
    limits: Limits = field(default_factory=Limits)
    group_limits: GroupLimits = field(default_factory=GroupLimits)
    max_names_per_request: int = Settings().max_names_per_request
    max_principals: int = 1000
    metrics: Host | None = None
    default_namespace: str = "public/default"
    on_undecodable: OnUndecodable = OnUndecodable.FAIL
    packed: bool = False
    """Whether offsets are packed message ids, for brokers without the index."""
    auto_create: bool = True
    """Whether a topic that a client asks for by Metadata is made."""
    default_partitions: int = 1
    """The partitions of a topic that is made without a number of them."""
    retention_hours: int = KAFKA_HOURS
    """How long the topics that clients make are kept at least; -1 for ever, 0 as their namespace says."""
    node_id: int | None = None
    """None: made of the address that clients are told."""
    beside: tuple[Host, ...] | None = None
    """The brokers that this gateway sits beside, port 0 for all of a host; None: those of its own hosts."""
    groups_namespace: str = NAMESPACE
    """Where consumer groups and their offsets are kept."""
    groups_partitions: int = PARTITIONS
    """Over how many partitions, when the topic is made."""
    cursor_period: float = PERIOD
    """Seconds between two times that cursors are brought to the committed offsets; 0 leaves them alone."""
    adopt_cursors: bool = False
    """Whether what Pulsar's tools do to a subscription is done to the group of its name."""

    @property
    def keeps_cursors(self) -> bool:
        """Whether committed offsets become cursors.

        A packed offset is a place already; there is no index to find a cursor's place by.
        """
        return self.cursor_period > 0 and not self.packed

    @property
    def has_own_clients(self) -> bool:
        """Whether clients that do not say who they are act as the gateway itself."""
        return self.trust_clients or (self.token is None and self.cert_file is None)


def guess_admin(pulsar: str) -> str:
    """Guess the admin address from that of the service.

    >>> guess_admin("pulsar://a:6650,b:6650"), guess_admin("pulsar+ssl://[::1]")
    ('http://a:8080', 'https://[::1]:8443')
    """
    return ServiceUrl.parse(pulsar).usual_admin
