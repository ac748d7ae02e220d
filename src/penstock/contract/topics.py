"""The names that a channel has on the clusters: a Kafka topic, a Pulsar topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NewType

from penstock.contract.channels import Channel
from penstock.contract.servers import Server

__all__ = [
    "BRACES",
    "KafkaTopic",
    "PulsarTopic",
    "fill",
    "is_kafka_topic",
    "is_named_by",
    "kafka_topic",
    "namespace_of",
    "pulsar_topic",
]

KafkaTopic = NewType("KafkaTopic", str)
PulsarTopic = NewType("PulsarTopic", str)

# Apache Kafka, Topic.java: legal characters and the longest name.
_KAFKA_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
BRACES: Final = re.compile(r"\{([^{}]*)\}")


def is_kafka_topic(name: str) -> bool:
    """Say whether Kafka takes a name for a topic.

    >>> is_kafka_topic("orders.placed"), is_kafka_topic("a b/c"), is_kafka_topic("..")
    (True, False, False)
    """
    return bool(_KAFKA_NAME.match(name)) and name not in (".", "..")


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values in place of the names in braces; a name without a value stays.

    >>> fill("orders.{env}.{x}", {"env": "dev"})
    'orders.dev.{x}'
    """
    return BRACES.sub(lambda match: values.get(match[1], match[0]), template)


def is_named_by(template: str, topic: str) -> bool:
    """Say whether a topic is the template with some text, without a slash, for each of its parameters.

    Each text is matched where it comes first, which is enough for wildcards and never goes back: a pattern of
    many parameters costs no more than the length of the topic.

    >>> is_named_by("orders.{customer}.v1", "orders.acme.v1"), is_named_by("orders.{customer}", "orders.")
    (True, False)
    """
    first, *rest = BRACES.split(template)[::2]
    if not rest:
        return topic == template
    *middle, last = rest
    end = len(topic) - len(last)
    if not topic.startswith(first) or not topic.endswith(last) or topic.count("/") != template.count("/"):
        return False
    at = len(first)
    for text in middle:
        found = topic.find(text, at + 1, end)
        if found < 0:
            return False
        at = found + len(text)
    return at + 1 <= end


def kafka_topic(channel: Channel) -> str | None:
    """The topic of a channel, perhaps with names in braces; None if it is not known."""
    binding = channel.bindings.kafka
    # Kafka bindings, Channel Binding Object: topic, if different from channel name; the topic wins.
    return binding.topic if binding is not None and binding.topic else channel.address


def pulsar_topic(channel: Channel, server: Server) -> str | None:
    """The full topic name of a channel on a Pulsar server; None if it is not known."""
    binding = channel.bindings.pulsar
    if channel.address is None:
        return None
    tenant = server.bindings.pulsar.tenant if server.bindings.pulsar is not None else "public"
    namespace = binding.namespace if binding is not None and binding.namespace else "default"
    persistence = binding.persistence if binding is not None and binding.persistence else "persistent"
    # Pulsar bindings do not say it: the address is the last part of the name {persistence}://{tenant}/{ns}/.
    return f"{persistence}://{tenant}/{namespace}/{channel.address}"


def namespace_of(topic: str) -> str:
    """Give the namespace in the full name of a Pulsar topic.

    >>> namespace_of("persistent://acme/shop/orders")
    'acme/shop'
    """
    return "/".join(topic.partition("://")[2].split("/")[:2])
