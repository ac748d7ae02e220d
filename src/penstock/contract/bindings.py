"""The four Bindings Objects: Kafka and Pulsar read, every other known protocol carried untouched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from penstock.contract.kafka import KafkaChannel, KafkaMessage, KafkaOperation, KafkaServer
from penstock.contract.node import JsonValue, Node, plain
from penstock.contract.pulsar import (
    PulsarChannel,
    PulsarMessage,
    PulsarOperation,
    PulsarReserved,
    PulsarServer,
)
from penstock.contract.readers import follow
from penstock.contract.rules import kafka as kafka_rules
from penstock.contract.rules import pulsar as pulsar_rules
from penstock.contract.rules import structure
from penstock.contract.shape import NOTHING, NOWHERE, Part, Reading, read_part, report_type

__all__ = ["Bindings", "channel_bindings", "message_bindings", "operation_bindings", "server_bindings"]

# AsyncAPI 3, Server Bindings Object and its three siblings; ros2 came with 3.1.
PROTOCOLS: Final = frozenset(
    {
        "amqp", "amqp1", "anypointmq", "googlepubsub", "http", "ibmmq", "jms", "kafka", "mercure", "mqtt",
        "mqtt5", "nats", "pulsar", "redis", "ros2", "sns", "solace", "sqs", "stomp", "ws",
    }
)  # fmt: skip
# An absent bindingVersion means latest; latest means this, until somebody decides otherwise.
LATEST: Final[Mapping[str, str]] = {"kafka": "0.5.0", "pulsar": "0.1.0"}
VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {"kafka": ("0.3.0", "0.4.0", "0.5.0"), "pulsar": ("0.1.0",)}

K = TypeVar("K", bound=Part)
P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings(Generic[K, P]):
    """What is said for each protocol; `others` holds the protocols that Penstock does not read."""

    kafka: K | None = None
    pulsar: P | None = None
    others: Mapping[str, JsonValue] = field(default_factory=lambda: NOTHING)
    node: Node = field(default=NOWHERE, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class _BindingsReader:
    """Reads one of the four kinds."""

    store: str
    owner: str
    parts: Mapping[str, type[Part]]

    def __call__(self, reading: Reading, node: Node) -> Bindings[Any, Any] | None:
        target = follow(reading, node, self.store)
        if target is None:
            return None
        if not isinstance(target.value, dict):
            report_type(reading, target, "an object")
            return None
        found: dict[str, Any] = {}
        others: dict[str, JsonValue] = {}
        for protocol, child in target.value.items():
            if protocol in LATEST:
                found[protocol] = self._read(reading, target, protocol, child)
            elif protocol in PROTOCOLS or protocol.startswith("x-"):
                others[protocol] = plain(child)
            else:
                reading.report.add(
                    structure.UNKNOWN_FIELD,
                    target,
                    key=protocol,
                    owner=f"bindings of {self.owner}",
                    field=protocol,
                )
        return Bindings(**found, others=MappingProxyType(others), node=target)

    def _read(self, reading: Reading, bindings: Node, protocol: str, node: Node) -> Part | None:
        cls = self.parts[protocol]
        if issubclass(cls, PulsarReserved):
            reading.report.add(pulsar_rules.PULSAR_NOT_HERE, bindings, key=protocol, owner=self.owner)
        version = _version(reading, protocol, node)
        if version is None:
            return None
        return read_part(cls, replace(reading, binding_version=version), node)


def _version(reading: Reading, protocol: str, node: Node) -> str | None:
    """The version to read a binding by; None if it is not known."""
    written = node.get("bindingVersion")
    if written is None or not isinstance(written.value, str):
        return LATEST[protocol]
    if written.value == "latest":
        reading.report.add(kafka_rules.LATEST_VERSION, written, version=LATEST[protocol])
        return LATEST[protocol]
    if written.value in VERSIONS[protocol]:
        return written.value
    reading.report.add(
        kafka_rules.UNKNOWN_BINDING_VERSION,
        written,
        found=written.value,
        protocol=protocol,
        wanted=", ".join(VERSIONS[protocol]),
    )
    return None


server_bindings = _BindingsReader(
    "serverBindings", "a server", MappingProxyType({"kafka": KafkaServer, "pulsar": PulsarServer})
)
channel_bindings = _BindingsReader(
    "channelBindings", "a channel", MappingProxyType({"kafka": KafkaChannel, "pulsar": PulsarChannel})
)
operation_bindings = _BindingsReader(
    "operationBindings",
    "an operation",
    MappingProxyType({"kafka": KafkaOperation, "pulsar": PulsarOperation}),
)
message_bindings = _BindingsReader(
    "messageBindings", "a message", MappingProxyType({"kafka": KafkaMessage, "pulsar": PulsarMessage})
)
