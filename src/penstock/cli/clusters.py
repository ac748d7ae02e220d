"""The clusters that a person has: those of the context, or of the contract, each with its clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeVar

import typer

from penstock.cli import output
from penstock.cli.planning import contract_path
from penstock.cli.settings import configuration
from penstock.errors import ClusterError, ConfigError, UsageError

if TYPE_CHECKING:
    from penstock.brokers.kafka_groups import KafkaGroups
    from penstock.brokers.pulsar_subscriptions import PulsarSubscriptions
    from penstock.config import Context
    from penstock.contract import Contract
    from penstock.contract.credentials import Connection

__all__ = ["Cluster", "Clusters", "find_clusters", "find_contract", "is_internal"]

KINDS = ("kafka", "gateway", "pulsar")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """One server of the context."""

    name: str
    kind: str
    """kafka, gateway or pulsar."""
    connection: Connection

    @cached_property
    def kafka(self) -> KafkaGroups:
        """The client of the Kafka protocol."""
        from penstock.brokers.kafka_groups import KafkaGroups
        from penstock.cli.places import kafka_options

        return KafkaGroups(kafka_options(self.connection), name=self.name)

    @cached_property
    def pulsar(self) -> PulsarSubscriptions:
        """The client of Pulsar's admin API."""
        from penstock.brokers.pulsar_subscriptions import PulsarSubscriptions
        from penstock.contract.clusters import admin_address
        from penstock.contract.credentials import Client, options, reveal

        admin = self.connection.admin or admin_address(self.connection)
        made = options(replace(self.connection, admin=admin), Client.PULSAR_REST)
        return PulsarSubscriptions(reveal(made), name=self.name)

    def close(self) -> None:
        """Close the connections of the clients that were made."""
        if "pulsar" in self.__dict__:
            self.pulsar.close()


@dataclass(kw_only=True)
class Clusters:
    """Some clusters, and what went wrong with them: one that fails does not hide the others."""

    chosen: Sequence[Cluster]
    known: Sequence[Cluster]
    failed: list[ClusterError | ConfigError] = field(default_factory=list)

    def each(self, look: Callable[[Cluster], _T], kinds: Iterable[str] = KINDS) -> list[_T]:
        """Look at every cluster of some kinds."""
        found = []
        for cluster in self.chosen:
            if cluster.kind in kinds:
                try:
                    found.append(look(cluster))
                except (ClusterError, ConfigError) as exc:
                    self.failed.append(exc)
        return found

    @property
    def behind_gateway(self) -> Cluster | None:
        """The Pulsar that the gateway serves; None if the context does not tell."""
        found = [cluster for cluster in self.known if cluster.kind == "pulsar"]
        return found[0] if len(found) == 1 else None

    @property
    def with_topics(self) -> tuple[str, ...]:
        """The kinds that have topics of their own: those of a gateway are Pulsar's, if that is at hand."""
        kinds = {cluster.kind for cluster in self.chosen}
        return ("kafka", "pulsar") if "pulsar" in kinds else ("kafka", "gateway")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for cluster in self.known:
            cluster.close()

    def end(self) -> None:
        """Tell what went wrong, if something did."""
        for error in self.failed:
            output.error(error)
        if self.failed:
            raise typer.Exit(self.failed[0].exit_code)


def find_clusters(only: str | None = None) -> Clusters:
    """Give the Kafka, Pulsar and gateway of the context, or of the contract if there is no context."""
    context, contract = configuration().context(), find_contract()
    known = _of_context(context, contract) if context is not None else _of_contract(contract)
    chosen = [cluster for cluster in known if only in (None, cluster.name)]
    if not chosen:
        what = f"there is no Kafka or Pulsar server {only!r}" if only else "there are no servers"
        names = ", ".join(cluster.name for cluster in known)
        advice = (
            f"name one of: {names}" if names else "penstock dev up, or write a context into penstock.yaml"
        )
        raise UsageError(what, next=advice)
    return Clusters(chosen=chosen, known=known)


def find_contract() -> Contract | None:
    """Load the contract, if there is one."""
    from penstock.contract import load

    try:
        path = contract_path(configuration())
    except UsageError:
        return None
    return load(path)


def _of_context(context: Context, contract: Contract | None) -> list[Cluster]:
    from penstock.contract.connections import connect, connect_server

    servers = [context.server(name) for name in context.server_names]
    gateway = context.gateway()
    found = []
    for server in [*servers, *([gateway] if gateway else [])]:
        described = contract.servers.get(server.name) if contract is not None else None
        connection = connect(server.name, described, (), context) if described else connect_server(server)
        found.append(Cluster(name=server.name, kind=server.kind, connection=connection))
    return [cluster for cluster in found if cluster.kind in KINDS]


def _of_contract(contract: Contract | None) -> list[Cluster]:
    from penstock.contract.connections import connect
    from penstock.contract.protocols import family_of

    servers = contract.servers if contract is not None else {}
    found = [
        Cluster(name=name, kind=family_of(server), connection=connect(name, server, (), None))
        for name, server in servers.items()
    ]
    return [cluster for cluster in found if cluster.kind in KINDS]


def is_internal(topic: str) -> bool:
    """Say whether a topic is one in which a broker or the gateway keeps its own state.

    >>> is_internal("__consumer_offsets"), is_internal("persistent://public/__kafka/x"), is_internal("orders")
    (True, True, False)
    """
    path = topic.rpartition("://")[2]
    return path.startswith("pulsar/system/") or any(part.startswith("__") for part in path.split("/"))
