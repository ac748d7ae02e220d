"""Operation, Operation Trait, Operation Reply and Operation Reply Address Objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.contract.bindings import Bindings, operation_bindings
from penstock.contract.info import ExternalDocs, Tag, external_docs, tags
from penstock.contract.kafka import KafkaOperation
from penstock.contract.readers import (
    ChannelId,
    channel_reference,
    expression,
    list_of,
    message_reference,
    one_of,
    part,
    text,
)
from penstock.contract.servers import SecurityScheme, security
from penstock.contract.shape import Part, spec
from penstock.contract.traits import with_traits

__all__ = ["Operation", "OperationTrait", "Reply", "ReplyAddress", "operation", "reply", "reply_address"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyAddress(Part):
    """Operation Reply Address Object."""

    SPEC_NAME: ClassVar[str] = "an Operation Reply Address Object"
    description: str | None = spec(text)
    location: str | None = spec(expression, required=True)


reply_address = part(ReplyAddress, "replyAddresses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Part):
    """Operation Reply Object."""

    SPEC_NAME: ClassVar[str] = "an Operation Reply Object"
    address: ReplyAddress | None = spec(reply_address)
    channel: ChannelId | None = spec(channel_reference)
    messages: tuple[tuple[ChannelId, str], ...] | None = spec(list_of(message_reference))


reply = part(Reply, "replies")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTrait(Part):
    """Operation Trait Object: an operation without action, channel, messages, reply and traits."""

    SPEC_NAME: ClassVar[str] = "an Operation Trait Object"
    title: str | None = spec(text)
    summary: str | None = spec(text)
    description: str | None = spec(text)
    security: tuple[SecurityScheme, ...] = spec(security, default=())
    tags: tuple[Tag, ...] = spec(tags, default=())
    external_docs: ExternalDocs | None = spec(external_docs)
    bindings: Bindings[KafkaOperation, Part] = spec(operation_bindings, default=Bindings())


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(OperationTrait):
    """Operation Object, with its traits merged in: what the application does with a channel."""

    SPEC_NAME: ClassVar[str] = "an Operation Object"
    action: str | None = spec(one_of("send", "receive"), required=True)
    channel: ChannelId | None = spec(channel_reference, required=True)
    messages: tuple[tuple[ChannelId, str], ...] | None = spec(list_of(message_reference))
    """None means all messages of the channel; an empty tuple means none."""
    reply: Reply | None = spec(reply)
    traits: tuple[OperationTrait, ...] = spec(list_of(part(OperationTrait, "operationTraits")), default=())


operation = with_traits(Operation, "operations", "operationTraits")
