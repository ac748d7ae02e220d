"""Checks of the rules in `rules.kafka`: across servers, channels and messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.contract.document import Contract
from penstock.contract.finding import Report
from penstock.contract.kafka import KafkaMessage, KafkaOperation, KafkaServer, TopicConfiguration
from penstock.contract.messages import MessageTrait
from penstock.contract.protocols import family_of
from penstock.contract.registry import ID_WIDTHS, strategies_of, strategy_name
from penstock.contract.rules import kafka as rules
from penstock.contract.rules import structure
from penstock.contract.schema import constants
from penstock.contract.servers import Server
from penstock.contract.shape import Part

__all__ = ["check_kafka"]

REGISTRY_FIELDS: Final = ("schemaIdLocation", "schemaIdPayloadEncoding", "schemaLookupStrategy")

# The topic settings of Apache Kafka 4 (TopicConfig); confluent.* ones exist only on Confluent's brokers.
TOPIC_SETTINGS: Final = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)


def check_kafka(contract: Contract, report: Report) -> None:
    """Report what the single fields cannot show."""
    for server in (*contract.servers.values(), *contract.components.servers.values()):
        _check_server(server.bindings.kafka, report)
    for settings in _topic_configurations(contract):
        _check_settings(settings, report)
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


def _check_names(binding: KafkaOperation | None, report: Report) -> None:
    if binding is None:
        return
    for field, schema in (("groupId", binding.group_id), ("clientId", binding.client_id)):
        if schema is not None and len(constants(schema) or ()) != 1:
            report.add(rules.NO_CONSTANT, binding.at(field), field=field)


def _check_registry(contract: Contract, report: Report) -> None:
    used: set[int] = set()
    for name, channel in contract.channels.items():
        servers = contract.servers_of(channel)
        for message in channel.messages.values():
            used.add(id(message))
            binding = message.bindings.kafka
            if binding is not None:
                _check_servers(binding, name, servers, report)
                _check_message(binding, {_vendor(server) for server in servers.values()}, report)
    for stored in contract.components.messages.values():
        if id(stored) not in used:
            _check_unused(stored, report)


def _vendor(server: Server) -> str | None:
    return server.bindings.kafka.schema_registry_vendor if server.bindings.kafka is not None else None


def _given(binding: KafkaMessage) -> list[str]:
    return [field for field in REGISTRY_FIELDS if binding.node.get(field) is not None]


def _check_servers(
    binding: KafkaMessage, channel: str, servers: Mapping[str, Server], report: Report
) -> None:
    """MUST NOT be specified if schemaRegistryUrl is not specified at the Server level."""
    kafka = {name: server for name, server in servers.items() if family_of(server) == "kafka"}
    lacking = [name for name, server in kafka.items() if not _has_registry(server)]
    if not servers:
        lacking = ["(none is defined)"]
    for field in _given(binding):
        for server in lacking:
            report.add(rules.NO_REGISTRY, binding.at(field), field=field, server=server, channel=channel)


def _has_registry(server: Server) -> bool:
    binding = server.bindings.kafka
    return binding is not None and binding.node.get("schemaRegistryUrl") is not None


def _check_unused(message: MessageTrait, report: Report) -> None:
    binding = message.bindings.kafka
    if binding is None:
        return
    for field in _given(binding):
        report.add(rules.UNUSED_REGISTRY_FIELD, binding.at(field), field=field)


def _check_message(binding: KafkaMessage, vendors: set[str | None], report: Report) -> None:
    encoding = binding.schema_id_payload_encoding
    if encoding is not None and binding.schema_id_location == "header":
        report.add(rules.ENCODING_UNUSED, binding.at("schemaIdPayloadEncoding"))
    elif encoding is not None and encoding not in ID_WIDTHS:
        report.add(rules.WIDTH_UNCLEAR, binding.at("schemaIdPayloadEncoding"), found=encoding)
    strategy = binding.schema_lookup_strategy
    for vendor in sorted(vendors, key=str) if strategy is not None else ():
        known = strategies_of(vendor)
        if strategy_name(strategy or "") not in known:
            report.add(
                rules.UNKNOWN_STRATEGY,
                binding.at("schemaLookupStrategy"),
                found=strategy,
                vendor=vendor or "any vendor",
                wanted=", ".join(known),
            )


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
