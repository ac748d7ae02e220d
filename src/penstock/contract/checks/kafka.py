"""Checks of the rules in `rules.kafka`: across servers, channels and messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from penstock.contract.channels import Channel
from penstock.contract.document import Contract
from penstock.contract.environments import kafka_channel
from penstock.contract.finding import Report, listed
from penstock.contract.kafka import KafkaMessage, KafkaOperation, KafkaServer, TopicConfiguration
from penstock.contract.messages import Message, MessageTrait
from penstock.contract.node import Node
from penstock.contract.protocols import family_of
from penstock.contract.registry import APICURIO_WIDTHS, ID_WIDTHS, strategies_of, strategy_name
from penstock.contract.rules import kafka as rules
from penstock.contract.rules import structure
from penstock.contract.schema import SchemaFormat, constants
from penstock.contract.servers import Server
from penstock.contract.shape import Part
from penstock.contract.topic_settings import TOPIC_SETTINGS

__all__ = ["check_kafka"]

REGISTRY_FIELDS: Final = ("schemaIdLocation", "schemaIdPayloadEncoding", "schemaLookupStrategy")


def check_kafka(contract: Contract, report: Report) -> None:
    """Report what the single fields cannot show."""
    for server in (*contract.servers.values(), *contract.components.servers.values()):
        _check_server(server.bindings.kafka, report)
    for settings in _topic_configurations(contract):
        _check_settings(settings, report)
    for channel in (*contract.channels.values(), *contract.components.channels.values()):
        _check_insync(channel, report)
    for operation in (*contract.operations.values(), *contract.components.operation_traits.values()):
        _check_names(operation.bindings.kafka, report)
    _check_registry(contract, report)
    _check_versions(contract, report)


def _check_server(binding: KafkaServer | None, report: Report) -> None:
    if binding is None or binding.schema_registry_vendor is None:
        return
    if binding.node.get("schemaRegistryUrl") is None:
        report.add(rules.VENDOR_WITHOUT_URL, binding.at("schemaRegistryVendor"))


def _topic_configurations(contract: Contract) -> Iterator[TopicConfiguration]:
    channels = (*contract.channels.values(), *contract.components.channels.values())
    for binding in (channel.bindings.kafka for channel in channels):
        if binding is None:
            continue
        overrides = (override.topic_configuration for override in binding.environments.values())
        yield from (found for found in (binding.topic_configuration, *overrides) if found is not None)


def _check_insync(channel: Channel, report: Report) -> None:
    """Compare min.insync.replicas with the replicas, as they are without an environment and in each."""
    binding = channel.bindings.kafka
    for name in (None, *(binding.environments if binding is not None else ())):
        made = kafka_channel(channel, name)
        settings = made.topic_configuration
        value = settings.settings.get("min.insync.replicas", "") if settings is not None else ""
        if settings is None or made.replicas is None or not value.isdecimal() or int(value) <= made.replicas:
            continue
        place = settings.at("min.insync.replicas") if settings.node.file else made.node
        environment = f" in environment {name}" if name else ""
        found, replicas = value, made.replicas
        report.add(
            rules.INSYNC_ABOVE_REPLICAS, place, found=found, replicas=replicas, environment=environment
        )


def _check_settings(settings: TopicConfiguration, report: Report) -> None:
    policy = settings.cleanup_policy
    if settings.at("cleanup.policy").value == []:
        report.add(rules.EMPTY_CLEANUP, settings.at("cleanup.policy"))
    repeated = [word for word in dict.fromkeys(policy or ()) if (policy or ()).count(word) > 1]
    if repeated:
        report.add(rules.REPEATED_CLEANUP, settings.at("cleanup.policy"), found=repeated[0])
    for key, value in settings.extensions.items():
        if key.startswith(("x-", "confluent.")):
            continue
        if isinstance(value, dict | list) or value is None:
            found = "not one"
            report.add(
                structure.WRONG_TYPE, settings.at(key), field=key, wanted="a single value", found=found
            )
        elif key not in TOPIC_SETTINGS:
            report.add(rules.UNKNOWN_TOPIC_SETTING, settings.node, key=key, field=key)
        elif (wanted := TOPIC_SETTINGS[key].refused(settings.settings[key])) is not None:
            found = settings.settings[key]
            report.add(structure.OUT_OF_RANGE, settings.at(key), field=key, found=found, wanted=wanted)
    _check_topic_strategies(settings, report)


def _check_topic_strategies(settings: TopicConfiguration, report: Report) -> None:
    for field, strategy in (
        ("confluent.key.subject.name.strategy", settings.key_subject_name_strategy),
        ("confluent.value.subject.name.strategy", settings.value_subject_name_strategy),
    ):
        if strategy is not None:
            _check_strategy(strategy, "confluent", settings.at(field), report)


def _check_strategy(strategy: str, vendor: str | None, where: Node, report: Report) -> None:
    known = strategies_of(vendor)
    if strategy_name(strategy) not in known:
        report.add(
            rules.UNKNOWN_STRATEGY,
            where,
            found=strategy,
            vendor=vendor or "any vendor",
            wanted=", ".join(known),
        )


def _check_names(binding: KafkaOperation | None, report: Report) -> None:
    if binding is None:
        return
    for field, schema in (("groupId", binding.group_id), ("clientId", binding.client_id)):
        if schema is not None and len(constants(schema) or ()) != 1:
            report.add(rules.NO_CONSTANT, binding.at(field), field=field)


def _check_registry(contract: Contract, report: Report) -> None:
    """Look at each message once, with all channels that it is in."""
    found: dict[int, tuple[Message, str, dict[str, Server]]] = {}
    bare: dict[int, list[str]] = {}
    for name, channel in contract.channels.items():
        servers = contract.servers_of(channel)
        lacking = [f"server {each} of channel {name}" for each, s in servers.items() if _lacks_registry(s)]
        for key, message in channel.messages.items():
            found.setdefault(id(message), (message, key, {}))[2].update(servers)
            bare.setdefault(id(message), []).extend(lacking)
    for message, name, servers in found.values():
        binding = message.bindings.kafka
        if binding is not None:
            _check_servers(binding, servers, bare[id(message)], report)
            _check_message(message, binding, {_vendor(server) for server in servers.values()}, report)
        _check_location(message, name, servers, report)
    for stored in contract.components.messages.values():
        if id(stored) not in found:
            _check_unused(stored, report)


def _vendor(server: Server) -> str | None:
    return server.bindings.kafka.schema_registry_vendor if server.bindings.kafka is not None else None


def _given(binding: KafkaMessage) -> list[str]:
    return [field for field in REGISTRY_FIELDS if binding.node.get(field) is not None]


def _check_servers(
    binding: KafkaMessage, servers: Mapping[str, Server], bare: Sequence[str], report: Report
) -> None:
    """MUST NOT be specified if schemaRegistryUrl is not specified at the Server level."""
    given = _given(binding)
    if not given or (servers and not bare):
        return
    fields, where = f"{listed(given)} {'is' if len(given) == 1 else 'are'}", binding.at(given[0])
    if not servers:
        report.add(rules.NO_SERVER, where, fields=fields)
    else:
        each = f"{listed(bare)} {'is' if len(bare) == 1 else 'are'}"
        report.add(rules.NO_REGISTRY, where, fields=fields, servers=each)


def _lacks_registry(server: Server) -> bool:
    """Say whether a Kafka server has no registry; of a binding that could not be read nothing is known."""
    if family_of(server) != "kafka":
        return False
    written = server.bindings.node.get("kafka")
    unread = written is not None and server.bindings.kafka is None
    return not unread and (written is None or written.get("schemaRegistryUrl") is None)


def _check_location(message: Message, name: str, servers: Mapping[str, Server], report: Report) -> None:
    binding = message.bindings.kafka
    said = message.schema_id_bytes is not None or (binding is not None and binding.schema_id_location)
    payload = message.payload
    if said or payload is None or payload.format is not SchemaFormat.AVRO:
        return
    if any(s.bindings.kafka is not None and s.bindings.kafka.schema_registry_url for s in servers.values()):
        report.add(rules.NO_ID_LOCATION, message.node, message=name)


def _check_unused(message: MessageTrait, report: Report) -> None:
    binding = message.bindings.kafka
    if binding is None:
        return
    for field in _given(binding):
        report.add(rules.UNUSED_REGISTRY_FIELD, binding.at(field), field=field)


def _check_message(message: Message, binding: KafkaMessage, vendors: set[str | None], report: Report) -> None:
    encoding = binding.schema_id_payload_encoding
    if encoding is not None and binding.schema_id_location == "header":
        report.add(rules.ENCODING_UNUSED, binding.at("schemaIdPayloadEncoding"))
    elif encoding is not None and encoding not in ID_WIDTHS and message.schema_id_bytes is None:
        where, width = binding.at("schemaIdPayloadEncoding"), APICURIO_WIDTHS.get(encoding)
        read_as = f"{width} bytes are written, 4 or 8 are read" if width else "4 or 8 are read"
        report.add(rules.WIDTH_UNCLEAR, where, found=encoding, read_as=read_as)
    strategy = binding.schema_lookup_strategy
    for vendor in sorted(vendors, key=str) if strategy is not None else ():
        _check_strategy(strategy or "", vendor, binding.at("schemaLookupStrategy"), report)


def _check_versions(contract: Contract, report: Report) -> None:
    """Each object is read by its own version; a mixture is allowed and worth a word."""
    versions: dict[str, Part] = {}
    for binding in _bindings(contract):
        written = binding.node.get("bindingVersion")
        version = written.value if written is not None and isinstance(written.value, str) else "0.5.0"
        versions.setdefault("0.5.0" if version == "latest" else version, binding)
    if len(versions) > 1:
        last = list(versions.values())[-1]
        report.add(rules.MIXED_VERSIONS, last.at("bindingVersion"), versions=", ".join(sorted(versions)))


def _bindings(contract: Contract) -> Iterator[Part]:
    channels = contract.channels.values()
    found: tuple[Part | None, ...] = (
        *(server.bindings.kafka for server in contract.servers.values()),
        *(channel.bindings.kafka for channel in channels),
        *(operation.bindings.kafka for operation in contract.operations.values()),
        *(message.bindings.kafka for channel in channels for message in channel.messages.values()),
    )
    return (binding for binding in found if binding is not None)
