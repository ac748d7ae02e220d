"""The Kafka bindings 0.3.0, 0.4.0 and 0.5.0: server, channel, topicConfiguration, operation, message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from penstock.contract.readers import boolean, integer, list_of, map_of, one_of, part, text, url
from penstock.contract.schema import Schema, key_schema, name_schema
from penstock.contract.shape import NOTHING, Part, spec

__all__ = [
    "KafkaChannel",
    "KafkaMessage",
    "KafkaOperation",
    "KafkaOverride",
    "KafkaServer",
    "TopicConfiguration",
]

INT: Final = 2**31 - 1
LONG: Final = 2**63 - 1
PARTITIONS: Final = integer(1, INT, hint="a topic has one partition or more")
REPLICAS: Final = integer(1, 2**15 - 1, hint="a topic has one replica or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaServer(Part):
    """Server Binding Object: the schema registry beside the cluster."""

    SPEC_NAME: ClassVar[str] = "the Kafka server binding"
    schema_registry_url: str | None = spec(url)
    schema_registry_vendor: str | None = spec(text)
    binding_version: str | None = spec(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfiguration(Part):
    """TopicConfiguration Object; settings that it does not name are in `extensions`."""

    SPEC_NAME: ClassVar[str] = "topicConfiguration"
    # 0.5.0: MAY contain ... optional additional properties; 0.4.0 was closed.
    OPEN_SINCE: ClassVar[str] = "0.5.0"

    cleanup_policy: tuple[str, ...] | None = spec(list_of(one_of("delete", "compact")), name="cleanup.policy")
    retention_ms: int | None = spec(integer(-1, LONG), name="retention.ms")
    retention_bytes: int | None = spec(integer(-1, LONG), name="retention.bytes")
    delete_retention_ms: int | None = spec(integer(0, LONG), name="delete.retention.ms")
    max_message_bytes: int | None = spec(integer(0, INT), name="max.message.bytes")
    key_schema_validation: bool | None = spec(boolean, name="confluent.key.schema.validation", since="0.5.0")
    key_subject_name_strategy: str | None = spec(
        text, name="confluent.key.subject.name.strategy", since="0.5.0"
    )
    value_schema_validation: bool | None = spec(
        boolean, name="confluent.value.schema.validation", since="0.5.0"
    )
    value_subject_name_strategy: str | None = spec(
        text, name="confluent.value.subject.name.strategy", since="0.5.0"
    )

    @property
    def settings(self) -> Mapping[str, str]:
        """The declared settings as the broker writes them; extensions of the document are not settings."""
        named = {name: getattr(self, attribute) for name, attribute in _SETTINGS.items()}
        named |= {key: value for key, value in self.extensions.items() if not key.startswith("x-")}
        return MappingProxyType({key: _setting(value) for key, value in named.items() if value is not None})


_SETTINGS: Final = {
    "cleanup.policy": "cleanup_policy",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "delete.retention.ms": "delete_retention_ms",
    "max.message.bytes": "max_message_bytes",
    "confluent.key.schema.validation": "key_schema_validation",
    "confluent.key.subject.name.strategy": "key_subject_name_strategy",
    "confluent.value.schema.validation": "value_schema_validation",
    "confluent.value.subject.name.strategy": "value_subject_name_strategy",
}


def _setting(value: object) -> str:
    """Write a value as Kafka's own tools print it; repeated words count once.

    >>> _setting(("delete", "compact", "delete")), _setting(True), _setting(5)
    ('delete,compact', 'true', '5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ",".join(dict.fromkeys(_setting(item) for item in value))
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOverride(Part):
    """What one environment changes (our extension x-penstock-environments)."""

    SPEC_NAME: ClassVar[str] = "an override of x-penstock-environments"
    partitions: int | None = spec(PARTITIONS)
    replicas: int | None = spec(REPLICAS)
    topic_configuration: TopicConfiguration | None = spec(part(TopicConfiguration))


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaChannel(Part):
    """Channel Binding Object: the topic."""

    SPEC_NAME: ClassVar[str] = "the Kafka channel binding"
    topic: str | None = spec(text)
    partitions: int | None = spec(PARTITIONS)
    replicas: int | None = spec(REPLICAS)
    topic_configuration: TopicConfiguration | None = spec(part(TopicConfiguration), since="0.4.0")
    binding_version: str | None = spec(text)
    environments: Mapping[str, KafkaOverride] = spec(
        map_of(part(KafkaOverride)), name="x-penstock-environments", default=NOTHING
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOperation(Part):
    """Operation Binding Object: who reads or writes."""

    SPEC_NAME: ClassVar[str] = "the Kafka operation binding"
    group_id: Schema | None = spec(name_schema)
    client_id: Schema | None = spec(name_schema)
    binding_version: str | None = spec(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaMessage(Part):
    """Message Binding Object: the key, and how a schema id travels."""

    SPEC_NAME: ClassVar[str] = "the Kafka message binding"
    key: Schema | None = spec(key_schema)
    schema_id_location: str | None = spec(one_of("header", "payload"))
    schema_id_payload_encoding: str | None = spec(text)
    schema_lookup_strategy: str | None = spec(text)
    binding_version: str | None = spec(text)
