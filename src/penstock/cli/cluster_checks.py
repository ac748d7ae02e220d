"""What `penstock doctor` asks a server: TLS, login, one harmless request, rights to the contract's topics.

The sentences about what is wrong are those of every verb (`penstock.brokers.conditions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.errors import AccessDenied, PenstockError, PulsarRefused

if TYPE_CHECKING:
    from penstock.brokers.kafka_groups import KafkaGroups
    from penstock.config import Context, Server
    from penstock.contract import Contract
    from penstock.contract.credentials import Connection

__all__ = ["NEEDS", "ask", "contract_of", "verbs_without_rights"]

NEEDS: Final[Mapping[str, frozenset[str]]] = {
    "publish": frozenset({"WRITE"}),
    "tail": frozenset({"READ"}),
    "plan": frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"}),
    "apply": frozenset({"DESCRIBE", "DESCRIBE_CONFIGS", "ALTER", "ALTER_CONFIGS"}),
}
"""The operations of Kafka that verbs need on a topic that is there."""


def ask(server: Server, context: Context, contract: Contract | None, timeout: float) -> Iterator[str]:
    """Log in and ask; each text says what works. Raises what every verb would."""
    from penstock.contract.connections import connect, connect_server

    described = contract.servers.get(server.name) if contract is not None else None
    is_broker = described is not None and server.kind != "registry"
    connection = (
        connect(server.name, described, (), context)
        if is_broker and described is not None
        else connect_server(server)
    )
    topics = _topics(server.name, contract) if is_broker else ()
    yield from _ASKING[server.kind](server.name, connection, topics, timeout)


def _topics(server: str, contract: Contract | None) -> Sequence[str]:
    from penstock.contract.desired import desired_state

    if contract is None:
        return ()
    desired = desired_state(contract, servers=[server])
    return [
        *(each.topic for each in desired.kafka_topics),
        *(each.topic for each in desired.pulsar_topics),
    ]


def _kafka(name: str, connection: Connection, topics: Sequence[str], timeout: float) -> Iterator[str]:
    from penstock.brokers.kafka_groups import KafkaGroups
    from penstock.cli.places import kafka_options

    client = KafkaGroups(kafka_options(connection), name=name, timeout=timeout, connect_timeout=timeout)
    brokers = client.cluster().brokers
    yield f"{brokers} {'broker' if brokers == 1 else 'brokers'}"
    yield from verbs_without_rights(client, topics)


def verbs_without_rights(client: KafkaGroups, topics: Sequence[str]) -> Iterator[str]:
    """Say which verbs lack a right on a topic of the contract; AccessDenied if none of them may be seen."""
    allowed = client.allowed(topics)
    hidden = [topic for topic, found in allowed.items() if isinstance(found, AccessDenied)]
    if hidden and len(hidden) == len(allowed):
        error = allowed[hidden[0]]
        assert isinstance(error, AccessDenied)
        raise error
    for topic in hidden:
        yield f"topic {topic} may not be seen"
    for verb, needs in NEEDS.items():
        lacking = {
            topic: needs - found
            for topic, found in allowed.items()
            if isinstance(found, frozenset) and needs - found
        }
        for topic, rights in lacking.items():
            yield f"no {' or '.join(sorted(rights))} on topic {topic}, for {verb}"


def _pulsar(name: str, connection: Connection, topics: Sequence[str], timeout: float) -> Iterator[str]:
    from penstock.brokers.pulsar_admin import PulsarAdmin
    from penstock.contract.clusters import admin_address
    from penstock.contract.credentials import Client, options, reveal

    unseen = asyncio.run(_pulsar_topics(connection, topics, timeout))
    admin = connection.admin or admin_address(connection)
    made = reveal(options(replace(connection, admin=admin), Client.PULSAR_REST))
    with PulsarAdmin(made, name=name, timeout=timeout, connect_timeout=timeout) as client:
        yield f"cluster {', '.join(client.clusters())}"
    yield from (f"topic {topic} may not be seen" for topic in unseen)


async def _pulsar_topics(connection: Connection, topics: Sequence[str], timeout: float) -> list[str]:
    """Log in, and look up each topic: that needs the right to produce or to consume.

    Gives the topics that may not be seen; AccessDenied if none of them may. Those that are not there are no
    matter of rights: `penstock plan` tells of them.
    """
    from penstock.brokers.pulsar import Options
    from penstock.cli.places import pulsar_client
    from penstock.wire.pulsar.pulsar_pb2 import ServerError

    patience = Options(connect_timeout=timeout, request_timeout=timeout, open_timeout=timeout)
    async with pulsar_client(connection, patience) as client:
        await client.check()
        hidden: dict[str, AccessDenied] = {}
        for topic in topics:
            try:
                await client.partitions(topic)
            except AccessDenied as denied:
                hidden[topic] = denied
            except PulsarRefused as refused:
                if refused.server_error != ServerError.TOPIC_NOT_FOUND:
                    raise
    if hidden and len(hidden) == len(topics):
        raise next(iter(hidden.values()))
    return list(hidden)


def _registry(name: str, connection: Connection, _topics: Sequence[str], timeout: float) -> Iterator[str]:
    from penstock.brokers.schema_registry import SchemaRegistry
    from penstock.contract.credentials import Client, options, reveal

    made = reveal(options(connection, Client.SCHEMA_REGISTRY))
    with SchemaRegistry(made, timeout=timeout, connect_timeout=timeout) as client:
        yield f"{len(client.subjects())} subjects"


_ASKING: Final[Mapping[str, Callable[[str, Connection, Sequence[str], float], Iterator[str]]]] = {
    "kafka": _kafka,
    "gateway": _kafka,
    "pulsar": _pulsar,
    "registry": _registry,
}


def contract_of() -> Contract | None:
    """Load the contract for the names of its topics; one that cannot be read is told elsewhere."""
    from penstock.cli.clusters import find_contract

    try:
        return find_contract()
    except PenstockError:
        return None
