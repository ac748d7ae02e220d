"""The subjects that a contract wants in its schema registries.

A server with `schemaRegistryUrl` has a registry; every payload of its channels is registered there, and
every key that is more than one plain value. The strategy of a message (schemaLookupStrategy) goes before
that of its topic (confluent.*.subject.name.strategy), and the vendor's default comes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.contract.addresses import addresses_of
from penstock.contract.document import Contract
from penstock.contract.environments import kafka_channel
from penstock.contract.kafka import KafkaServer, TopicConfiguration
from penstock.contract.messages import Message
from penstock.contract.registry import default_strategy, strategy_name
from penstock.contract.schema import Schema, SchemaFormat
from penstock.contract.subjects import (
    SCHEMA_TYPES,
    import_text,
    is_plain_key,
    record_name,
    registration,
    subject_name,
)
from penstock.contract.topics import kafka_topic

__all__ = ["WantedSubject", "subjects_of"]

MAX_RANK: Final = 50
"""A chain of references longer than this is not sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSubject:
    """A subject and the schema that its newest version should be."""

    registry: str
    """The server of the contract that names the registry."""
    subject: str
    schema_type: str
    schema: str
    place: str = ""
    problem: str = ""
    """Why it cannot be registered; empty if it can."""
    uses: tuple[str, ...] = ()
    """The subjects that the schema refers to; each is named like the type that it holds."""
    rank: int = 0
    """Those that others refer to come first: 0 refers to none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """One schema that a message brings to a subject."""

    channel: str
    subject: str | None
    strategy: str
    message: str
    schema: Schema
    place: str


def subjects_of(
    contract: Contract, servers: Iterable[str], environment: str | None
) -> tuple[WantedSubject, ...]:
    """Give the subjects of the registries beside some Kafka servers; servers may share a registry."""
    uses: dict[tuple[str, str], dict[str, _Use]] = {}
    registries: dict[str, str] = {}
    for name in servers:
        binding = contract.servers[name].bindings.kafka
        if binding is None or binding.schema_registry_url is None:
            continue
        registry = registries.setdefault(binding.schema_registry_url, name)
        for use in _uses(contract, name, binding, environment):
            found = uses.setdefault((registry, use.subject or f"{use.message} ({use.strategy})"), {})
            known = found.get(use.message)
            is_other = known is not None and known.schema.definition != use.schema.definition
            found[f"{use.channel}.{use.message}" if is_other else use.message] = use
    own = {key: _wanted(*key, found) for key, found in uses.items()}
    imported = _imported(uses)
    # A type that is a message too is registered once; where the two differ the message's own says why.
    return tuple(_ranked(each, imported | own) for _, each in sorted((imported | own).items()))


def _imported(uses: Mapping[tuple[str, str], Mapping[str, _Use]]) -> dict[tuple[str, str], WantedSubject]:
    """Give the subjects of the types to which the schemas of messages refer."""
    found: dict[tuple[str, str], WantedSubject] = {}
    for (registry, _), users in uses.items():
        made = registration({name: use.schema for name, use in users.items()})
        for each in made.imports if made is not None else ():
            wanted = WantedSubject(
                registry=registry,
                subject=each.name,
                schema_type=SCHEMA_TYPES[SchemaFormat.AVRO],
                schema=import_text(each),
                place=next(iter(users.values())).place,
                uses=each.uses,
            )
            known = found.setdefault((registry, each.name), wanted)
            if known.schema != wanted.schema:
                problem = "two files define the type differently"
                found[registry, each.name] = replace(known, problem=problem)
    return found


def _ranked(wanted: WantedSubject, every: Mapping[tuple[str, str], WantedSubject]) -> WantedSubject:
    """Give a subject with its distance from those that refer to none, and what is wrong on the way."""
    rank, level, problem = 0, {wanted.subject}, wanted.problem
    while rank <= MAX_RANK:
        used = {each for subject in level for each in every[wanted.registry, subject].uses}
        level = {each for each in used if (wanted.registry, each) in every}
        if not level:
            break
        rank += 1
        broken = sorted(each for each in level if every[wanted.registry, each].problem)
        problem = problem or (f"it refers to {broken[0]}, which cannot be registered" if broken else "")
    return replace(wanted, rank=rank, problem=problem)


def _uses(contract: Contract, server: str, binding: KafkaServer, environment: str | None) -> Iterator[_Use]:
    vendor = binding.schema_registry_vendor
    for channel_name, channel in contract.channels.items():
        if server not in contract.servers_of(channel):
            continue
        settings = kafka_channel(channel, environment).topic_configuration
        for topic in addresses_of(kafka_topic(channel), channel) or ():
            for name, message in channel.messages.items():
                for part, schema in _parts(message):
                    strategy = _strategy(message, settings, part, vendor)
                    yield _Use(
                        channel=channel_name,
                        subject=subject_name(strategy, topic, part, record_name(schema)),
                        strategy=strategy,
                        message=name,
                        schema=schema,
                        place=str(schema.node.position()),
                    )


def _parts(message: Message) -> Iterator[tuple[str, Schema]]:
    key = message.bindings.kafka.key if message.bindings.kafka is not None else None
    if key is not None and key.format in SCHEMA_TYPES and not is_plain_key(key):
        yield "key", key
    if message.payload is not None and message.payload.format in SCHEMA_TYPES:
        yield "value", message.payload


def _strategy(message: Message, settings: TopicConfiguration | None, part: str, vendor: str | None) -> str:
    binding = message.bindings.kafka
    said = binding.schema_lookup_strategy if binding is not None else None
    if said is None and settings is not None:
        said = settings.key_subject_name_strategy if part == "key" else settings.value_subject_name_strategy
    return strategy_name(said) if said else default_strategy(vendor)


def _wanted(registry: str, subject: str, uses: dict[str, _Use]) -> WantedSubject:
    first = next(iter(uses.values()))
    made = registration({name: use.schema for name, use in uses.items()})
    problem = ""
    if first.subject is None:
        problem = f"{first.strategy} gives no subject for message {first.message}"
    elif made is None:
        problem = f"messages {', '.join(uses)} have schemas that one subject cannot hold"
    return WantedSubject(
        registry=registry,
        subject=subject,
        schema_type=SCHEMA_TYPES[first.schema.format],
        schema=made.text if made is not None else "",
        place=first.place,
        problem=problem,
        uses=made.uses if made is not None else (),
    )
