"""The real clusters of a contract: clients made from its servers and a context, each when it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Self
from urllib.parse import urlsplit

from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.brokers.pulsar_admin import PulsarAdmin
from penstock.brokers.schema_registry import SchemaRegistry
from penstock.config import Context
from penstock.contract.connections import connect, connect_registry
from penstock.contract.credentials import Client, Connection, options, reveal
from penstock.contract.document import Contract
from penstock.errors import ContractError

__all__ = ["ContractClusters", "admin_address", "compatible_address"]

# Pulsar's own ports of the admin REST API, with and without TLS.
_ADMIN: Final = {False: ("http", 8080), True: ("https", 8443)}
_COMPATIBLE: Final = "/apis/ccompat/v7"


class ContractClusters:
    """Clients by the name of the server; a client is made once."""

    def __init__(
        self,
        contract: Contract,
        context: Context | None = None,
        *,
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
    ) -> None:
        self._contract = contract
        self._context = context
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._kafka: dict[str, KafkaAdmin] = {}
        self._pulsar: dict[str, PulsarAdmin] = {}
        self._registries: dict[str, SchemaRegistry] = {}

    def kafka(self, server: str) -> KafkaAdmin:
        """Give the client of a Kafka server."""
        if server not in self._kafka:
            made = reveal(options(self._connection(server), Client.CONFLUENT_KAFKA))
            self._kafka[server] = KafkaAdmin(
                made, name=server, timeout=self._timeout, connect_timeout=self._connect_timeout
            )
        return self._kafka[server]

    def pulsar(self, server: str) -> PulsarAdmin:
        """Give the client of a Pulsar server."""
        if server not in self._pulsar:
            connection = self._connection(server)
            if connection.admin is None:
                connection = replace(connection, admin=admin_address(connection))
            made = reveal(options(connection, Client.PULSAR_REST))
            self._pulsar[server] = PulsarAdmin(
                made, name=server, timeout=self._timeout, connect_timeout=self._connect_timeout
            )
        return self._pulsar[server]

    def registry(self, server: str) -> SchemaRegistry:
        """Give the client of the registry that a Kafka server names."""
        if server not in self._registries:
            binding = self._contract.servers[server].bindings.kafka
            if binding is None or binding.schema_registry_url is None:
                raise ContractError(f"server {server} names no schema registry", next="add schemaRegistryUrl")
            vendor = (binding.schema_registry_vendor or "").lower()
            connection = connect_registry(binding.schema_registry_url, self._context)
            connection = replace(connection, address=compatible_address(connection.address, vendor))
            made = reveal(options(connection, Client.SCHEMA_REGISTRY))
            self._registries[server] = SchemaRegistry(
                made, timeout=self._timeout, connect_timeout=self._connect_timeout
            )
        return self._registries[server]

    def close(self) -> None:
        """Close the connections of all clients."""
        for pulsar in self._pulsar.values():
            pulsar.close()
        for registry in self._registries.values():
            registry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _connection(self, server: str) -> Connection:
        return connect(server, self._contract.servers[server], (), self._context)


def admin_address(connection: Connection) -> str:
    """The admin address beside a Pulsar server whose context does not name one.

    >>> admin_address(Connection(address="pulsar+ssl://host:6651", tls=True))
    'https://host:8443'
    """
    parts = urlsplit(connection.address)
    scheme, port = _ADMIN[connection.tls or parts.scheme == "pulsar+ssl"]
    return f"{scheme}://{parts.hostname}:{port}"


def compatible_address(url: str, vendor: str) -> str:
    """The Confluent-compatible API of a registry; Apicurio has it beside its own.

    >>> compatible_address("http://host:8080/apis/registry/v2", "apicurio")
    'http://host:8080/apis/ccompat/v7'
    """
    if vendor != "apicurio" or "ccompat" in url:
        return url
    base = url.partition("/apis/")[0].rstrip("/")
    return f"{base}{_COMPATIBLE}"
