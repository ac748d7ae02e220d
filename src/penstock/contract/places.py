"""Where a channel is: its server, how to reach it, and its topic there."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config import Context
from penstock.contract.connections import connect, connect_server
from penstock.contract.credentials import Connection
from penstock.contract.document import Contract
from penstock.contract.meaning import choose_server, topics_of
from penstock.contract.protocols import family_of
from penstock.contract.pulsar_schemas import payload_schema
from penstock.contract.topics import is_named_by, kafka_topic, pulsar_topic
from penstock.errors import ContractError, UsageError

__all__ = ["Place", "channel_of", "dead_letter_channels", "place_of", "topic_place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A channel on one server."""

    channel: str
    server: str
    protocol: str
    """kafka, pulsar, or the server's own word."""
    connection: Connection
    topic: str
    avro_schema: str | None = None
    """The schema of a Pulsar topic, with which payloads are written; None if it has none by the contract."""


def place_of(
    contract: Contract, name: str, *, server: str | None = None, context: Context | None = None
) -> Place:
    """Find a channel by its name, or by the name of an operation on it."""
    operation = contract.operations.get(name)
    channel = contract.channels.get(operation.channel or "" if operation else name)
    if channel is None:
        known = ", ".join(contract.channels) or "none"
        raise UsageError(f"the contract has no channel '{name}'", next=f"use one of: {known}")
    chosen = choose_server(contract, f"channel {name}", channel, server, context)
    described = contract.servers[chosen]
    topic = next(filter(None, topics_of(channel, described, {})), None)
    if topic is None:
        raise ContractError(f"channel {name} has no topic", where=str(channel.node.position()))
    return Place(
        channel=next(key for key, each in contract.channels.items() if each is channel),
        server=chosen,
        protocol=family_of(described),
        connection=connect(chosen, described, (), context),
        topic=str(topic),
        avro_schema=payload_schema(contract, channel).avro if family_of(described) == "pulsar" else None,
    )


def topic_place(topic: str, server: str | None, context: Context) -> Place:
    """Give a topic that no contract names, on a server of the context; the only one if none is named."""
    names = context.server_names
    if server is None and len(names) != 1:
        raise UsageError(
            f"on which server is {topic}?",
            why="The contract has no channel or operation of that name, so it is taken for a topic.",
            next=f"give --server with one of: {', '.join(names) or 'none'}, or correct the name",
        )
    known = context.server(server or names[0])
    name = topic if known.kind != "pulsar" or "://" in topic else _persistent(topic)
    return Place(
        channel=topic,
        server=known.name,
        protocol=known.kind,
        connection=connect_server(known),
        topic=name,
    )


def _persistent(topic: str) -> str:
    """Write the short name of a Pulsar topic in full, as Pulsar's tools read it."""
    return f"persistent://{topic}" if topic.count("/") else f"persistent://public/default/{topic}"


def channel_of(contract: Contract, server: str, topic: str) -> str | None:
    """Name the channel whose topic this is; a channel with parameters has many."""
    described = contract.servers.get(server)
    if described is None:
        return None
    for name, channel in contract.channels.items():
        if server not in contract.servers_of(channel):
            continue
        pulsar = family_of(described) == "pulsar"
        template = pulsar_topic(channel, described) if pulsar else kafka_topic(channel)
        if template is not None and is_named_by(template, topic):
            return name
    return None


def dead_letter_channels(contract: Contract) -> tuple[str, ...]:
    """Name the channels that take the dead letters of others."""
    named = (channel.dead_letter for channel in contract.channels.values())
    return tuple(dict.fromkeys(name for name in named if name in contract.channels and name is not None))
