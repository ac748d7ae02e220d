"""Overrides per environment: the bindings of a channel as one environment wants them.

`x-penstock-environments` stands inside the Kafka or Pulsar channel binding, by name of environment.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from penstock.contract.channels import Channel
from penstock.contract.document import Contract
from penstock.contract.kafka import KafkaChannel, TopicConfiguration
from penstock.contract.pulsar import PulsarChannel
from penstock.contract.shape import Part
from penstock.errors import UsageError

__all__ = ["environments", "kafka_channel", "pulsar_channel", "require_environment"]

P = TypeVar("P", bound=Part)
_OWN = ("node", "extensions", "environments", "topic_configuration")


def environments(contract: Contract) -> tuple[str, ...]:
    """Every environment that the document names."""
    names: set[str] = set()
    for channel in contract.channels.values():
        for binding in (channel.bindings.kafka, channel.bindings.pulsar):
            names |= set(binding.environments) if binding is not None else set()
    return tuple(sorted(names))


def require_environment(contract: Contract, name: str | None) -> None:
    """Refuse an environment that the document does not name: it would change nothing, silently."""
    known = environments(contract)
    if name is not None and name not in known:
        raise UsageError(
            f"the contract has no environment '{name}'",
            why="Nothing in it has an override of that name under x-penstock-environments.",
            next=f"use one of {', '.join(known)}" if known else "add x-penstock-environments to a binding",
        )


def kafka_channel(channel: Channel, environment: str | None) -> KafkaChannel:
    """The Kafka binding of a channel in an environment; an empty one if there is none."""
    binding = channel.bindings.kafka or KafkaChannel()
    override = binding.environments.get(environment or "")
    if override is None:
        return binding
    settings = _joined(binding.topic_configuration, override.topic_configuration)
    return replace(binding, **_given(override, KafkaChannel), topic_configuration=settings)


def pulsar_channel(channel: Channel, environment: str | None) -> PulsarChannel:
    """The Pulsar binding of a channel in an environment; an empty one if there is none."""
    binding = channel.bindings.pulsar or PulsarChannel()
    override = binding.environments.get(environment or "")
    return binding if override is None else replace(binding, **_given(override, PulsarChannel))


def _joined(base: TopicConfiguration | None, over: TopicConfiguration | None) -> TopicConfiguration | None:
    """Settings are joined key by key; those of the environment win."""
    if base is None or over is None:
        return over or base
    extensions = {**base.extensions, **over.extensions}
    return replace(base, **_given(over, TopicConfiguration), extensions=extensions)


def _given(override: Part, target: type[Part]) -> dict[str, Any]:
    known = {field.name for field in fields(target)} - set(_OWN)
    values = ((field.name, getattr(override, field.name)) for field in fields(override))
    return {name: value for name, value in values if name in known and value is not None}
