"""What an operation means for a program: one frozen value with everything it needs.

Nothing outside this package reads the document; programs ask `resolve` for an operation by its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.config import Context
from penstock.contract.channels import Channel
from penstock.contract.connections import connect, connect_registry
from penstock.contract.credentials import Connection
from penstock.contract.document import Contract
from penstock.contract.environments import kafka_channel, pulsar_channel, require_environment
from penstock.contract.kafka import KafkaMessage, KafkaOperation
from penstock.contract.messages import Message
from penstock.contract.operations import Operation
from penstock.contract.protocols import family_of
from penstock.contract.registry import APICURIO_WIDTHS, ID_WIDTHS, default_strategy, strategy_name
from penstock.contract.schema import Schema, SchemaFormat, constants
from penstock.contract.selection import Selector, choose_message, is_cloud_event, selector_of
from penstock.contract.servers import Server
from penstock.contract.topics import KafkaTopic, PulsarTopic, fill, kafka_topic, pulsar_topic
from penstock.errors import ContractError, UsageError

__all__ = ["Registry", "ResolvedMessage", "ResolvedOperation", "choose_server", "resolve", "topics_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """How schema ids of a message travel."""

    connection: Connection
    vendor: str | None = None
    id_location: str | None = None
    """`header`, `payload`, or None if the document does not say."""
    id_width: int | None = None
    """Bytes of an id that is written to the payload: 4, 8, or None if the document does not say it."""
    any_width: bool = False
    """Whether ids of the other width are read too: the document's word has meant both."""
    lookup_strategy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedMessage:
    """One message as a program sees it."""

    name: str
    selector: Selector
    content_type: str | None = None
    codec: str = "bytes"
    """How the payload is read: json, avro, protobuf, text or bytes."""
    payload: Schema | None = None
    headers: Schema | None = None
    key: Schema | None = None
    cloud_event: bool = False
    mode: str | None = None
    """binary or structured; None if it is no CloudEvent or the document does not say."""
    registry: Registry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedOperation:
    """Everything a program needs to run an operation."""

    id: str
    action: str
    channel: str
    server: str
    protocol: str
    """kafka, pulsar, or the server's own word."""
    connection: Connection
    kafka_topic: KafkaTopic | None = None
    pulsar_topic: PulsarTopic | None = None
    partitions: int | None = None
    group_ids: tuple[str, ...] | None = None
    """The consumer groups that the contract allows; None if it does not restrict them."""
    client_ids: tuple[str, ...] | None = None
    messages: tuple[ResolvedMessage, ...] = ()
    dead_letter_channel: str | None = None
    dead_letter_topic: str | None = None

    @property
    def topic(self) -> str | None:
        """The topic on its server, whichever that is."""
        return self.kafka_topic or self.pulsar_topic

    @property
    def group_id(self) -> str | None:
        """The consumer group, if the contract names exactly one."""
        return _only(self.group_ids)

    @property
    def client_id(self) -> str | None:
        """The client id, if the contract names exactly one."""
        return _only(self.client_ids)

    def message_for(self, event_type: str | None, dataschema: str | None = None) -> ResolvedMessage | None:
        """The message that an event belongs to; None if there is none, or more than one could be meant."""
        at = choose_message([(m.name, m.selector) for m in self.messages], event_type, dataschema)
        return None if at is None else self.messages[at]


def resolve(
    contract: Contract,
    operation_id: str,
    *,
    server: str | None = None,
    parameters: Mapping[str, str] | None = None,
    environment: str | None = None,
    context: Context | None = None,
) -> ResolvedOperation:
    """Give the meaning of an operation on one server.

    `server` is needed if the channel is on several; `parameters` fill the braces of the address;
    `environment` chooses the overrides; `context` brings addresses and credentials.
    """
    operation = _operation(contract, operation_id)
    channel = contract.channels[operation.channel or ""]
    require_environment(contract, environment)
    name = choose_server(contract, f"operation {operation_id}", channel, server, context)
    described = contract.servers[name]
    family = family_of(described)
    binding = operation.bindings.kafka or KafkaOperation()
    dead = contract.channels.get(channel.dead_letter or "")
    kafka, pulsar = topics_of(channel, described, parameters or {})
    return ResolvedOperation(
        id=operation_id,
        action=operation.action or "",
        channel=operation.channel or "",
        server=name,
        protocol=family,
        connection=connect(name, described, operation.security, context),
        kafka_topic=kafka,
        pulsar_topic=pulsar,
        partitions=_partitions(channel, family, environment),
        group_ids=constants(binding.group_id),
        client_ids=constants(binding.client_id),
        messages=tuple(
            _message(contract, described, key, found, context, _topic_strategy(channel, environment))
            for key, found in _chosen(channel, operation)
        ),
        dead_letter_channel=channel.dead_letter,
        dead_letter_topic=_dead_letter_topic(contract, dead, name, parameters or {}),
    )


def _dead_letter_topic(
    contract: Contract, dead: Channel | None, server: str, parameters: Mapping[str, str]
) -> str | None:
    """Give the topic of the dead letters, on this server or on the one where their channel is."""
    servers = contract.servers_of(dead) if dead is not None else {}
    described = servers.get(server) or (next(iter(servers.values())) if len(servers) == 1 else None)
    if dead is None or described is None:
        return None
    return next(filter(None, topics_of(dead, described, parameters)), None)


def _operation(contract: Contract, operation_id: str) -> Operation:
    operation = contract.operations.get(operation_id)
    if operation is None:
        known = ", ".join(contract.operations) or "none"
        raise UsageError(f"the contract has no operation '{operation_id}'", next=f"use one of: {known}")
    if operation.channel not in contract.channels:
        raise ContractError(f"operation {operation_id} has no channel", where=str(operation.node.position()))
    return operation


def choose_server(
    contract: Contract, what: str, channel: Channel, wanted: str | None, context: Context | None
) -> str:
    """Name the server that is meant: the wanted one, else the one the context knows, else the only one."""
    names = tuple(contract.servers_of(channel))
    if wanted is not None:
        if wanted in names:
            return wanted
        raise UsageError(f"{what} is not on server '{wanted}'", next=f"use one of: {', '.join(names)}")
    reachable = [name for name in names if context is not None and name in context.server_names]
    candidates = reachable or list(names)
    if len(candidates) == 1:
        return candidates[0]
    raise ContractError(
        f"{what} is on {len(candidates)} servers" if names else "the contract names no server",
        where=str(channel.node.position()),
        next=f"name one of: {', '.join(candidates)}" if names else "add a server",
    )


def topics_of(
    channel: Channel, server: Server, parameters: Mapping[str, str]
) -> tuple[KafkaTopic | None, PulsarTopic | None]:
    """Give the topic of a channel on a server, with its parameters filled."""
    values = {name: p.default for name, p in channel.parameters.items() if p.default is not None}
    values |= {name: value for name, value in parameters.items() if name in channel.parameters}
    for name, value in values.items():
        allowed = channel.parameters[name].enum
        if allowed and value not in allowed:
            raise UsageError(f"{name} is '{value}', it must be one of {', '.join(allowed)}")
    family = family_of(server)
    if family == "kafka":
        return KafkaTopic(_filled(kafka_topic(channel), values, channel)), None
    if family == "pulsar":
        return None, PulsarTopic(_filled(pulsar_topic(channel, server), values, channel))
    return None, None


def _filled(template: str | None, values: Mapping[str, str], channel: Channel) -> str:
    if template is None:
        raise ContractError("the address of the channel is not known", where=str(channel.node.position()))
    missing = [name for name in channel.parameters if name not in values and f"{{{name}}}" in template]
    if missing:
        raise UsageError(
            f"the address {template} needs a value for {', '.join(missing)}", next="give parameters"
        )
    return fill(template, values)


def _partitions(channel: Channel, family: str, environment: str | None) -> int | None:
    if family == "pulsar":
        return pulsar_channel(channel, environment).partitions
    return kafka_channel(channel, environment).partitions


def _only(names: tuple[str, ...] | None) -> str | None:
    return names[0] if names is not None and len(names) == 1 else None


def _chosen(channel: Channel, operation: Operation) -> list[tuple[str, Message]]:
    # AsyncAPI 3, Operation Object: messages omitted means all of the channel, an empty list means none.
    if operation.messages is None:
        return list(channel.messages.items())
    return [(name, channel.messages[name]) for _, name in operation.messages if name in channel.messages]


_CODECS: Final[Mapping[SchemaFormat, str]] = {SchemaFormat.AVRO: "avro", SchemaFormat.PROTOBUF: "protobuf"}
_STRUCTURED: Final = "application/cloudevents"


def _topic_strategy(channel: Channel, environment: str | None) -> str | None:
    """Give the strategy that a topic's configuration names for its values; that of a message goes before."""
    settings = kafka_channel(channel, environment).topic_configuration
    said = settings.value_subject_name_strategy if settings is not None else None
    return strategy_name(said) if said else None


def _message(
    contract: Contract,
    server: Server,
    name: str,
    message: Message,
    context: Context | None,
    strategy: str | None,
) -> ResolvedMessage:
    content_type = message.content_type or contract.default_content_type
    cloud_event = is_cloud_event(message, content_type)
    binding = message.bindings.kafka
    return ResolvedMessage(
        name=name,
        selector=selector_of(message),
        content_type=content_type,
        codec=_codec(message.payload, content_type),
        payload=message.payload,
        headers=message.headers,
        key=binding.key if binding is not None else None,
        cloud_event=cloud_event,
        mode=_mode(message, content_type) if cloud_event else None,
        registry=_registry(server, message, context, strategy),
    )


def _mode(message: Message, content_type: str | None) -> str | None:
    if (content_type or "").startswith(_STRUCTURED):
        return "structured"
    return "binary" if message.headers is not None else None


def _codec(payload: Schema | None, content_type: str | None) -> str:
    if payload is not None and payload.format in _CODECS:
        return _CODECS[payload.format]
    essence = (content_type or "").partition(";")[0].strip().lower()
    if essence.endswith(("/json", "+json")) or (not essence and payload is not None):
        return "json"
    if essence.endswith(("avro", "+avro")):
        return "avro"
    if "protobuf" in essence:
        return "protobuf"
    return "text" if essence.startswith("text/") else "bytes"


def _registry(
    server: Server, message: Message, context: Context | None, strategy: str | None
) -> Registry | None:
    kafka = server.bindings.kafka
    if kafka is None or kafka.schema_registry_url is None:
        return None
    said = message.bindings.kafka or KafkaMessage()
    encoding = said.schema_id_payload_encoding or ""
    width = message.schema_id_bytes or ID_WIDTHS.get(encoding)
    return Registry(
        connection=connect_registry(kafka.schema_registry_url, context),
        vendor=kafka.schema_registry_vendor,
        id_location=None if message.schema_id_bytes == 0 else said.schema_id_location,
        id_width=width or APICURIO_WIDTHS.get(encoding),
        any_width=width is None,
        lookup_strategy=said.schema_lookup_strategy
        or strategy
        or default_strategy(kafka.schema_registry_vendor),
    )
