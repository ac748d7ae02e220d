"""Channel and Parameter Objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.contract.bindings import Bindings, channel_bindings
from penstock.contract.info import ExternalDocs, Tag, external_docs, tags
from penstock.contract.kafka import KafkaChannel
from penstock.contract.messages import Message, message
from penstock.contract.pulsar import PulsarChannel
from penstock.contract.readers import (
    ChannelId,
    channel_reference,
    expression,
    list_of,
    map_of,
    nullable_text,
    part,
    server_reference,
    text,
    texts,
)
from penstock.contract.shape import NOTHING, Part, spec

__all__ = ["Channel", "Parameter", "parameters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter(Part):
    """Parameter Object: a part of the address that is known later."""

    SPEC_NAME: ClassVar[str] = "a Parameter Object"
    enum: tuple[str, ...] = spec(texts, default=())
    default: str | None = spec(text)
    description: str | None = spec(text)
    examples: tuple[str, ...] = spec(texts, default=())
    location: str | None = spec(expression)


parameters = map_of(part(Parameter, "parameters"), named="a parameter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel(Part):
    """Channel Object: where messages travel."""

    SPEC_NAME: ClassVar[str] = "a Channel Object"
    address: str | None = spec(nullable_text)
    """None if it is unknown when the document is written."""
    messages: Mapping[str, Message] = spec(map_of(message, named="a message"), default=NOTHING)
    title: str | None = spec(text)
    summary: str | None = spec(text)
    description: str | None = spec(text)
    servers: tuple[str, ...] = spec(list_of(server_reference), default=())
    """Names of servers; empty means all of them."""
    parameters: Mapping[str, Parameter] = spec(parameters, default=NOTHING)
    tags: tuple[Tag, ...] = spec(tags, default=())
    external_docs: ExternalDocs | None = spec(external_docs)
    bindings: Bindings[KafkaChannel, PulsarChannel] = spec(channel_bindings, default=Bindings())
    dead_letter: ChannelId | None = spec(channel_reference, name="x-penstock-dead-letter")
    """The channel that takes what cannot be processed; our extension."""
