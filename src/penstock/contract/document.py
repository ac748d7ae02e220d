"""The AsyncAPI document as one frozen value, and how it is read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final

from penstock.contract.bindings import (
    Bindings,
    channel_bindings,
    message_bindings,
    operation_bindings,
    server_bindings,
)
from penstock.contract.channels import Channel, Parameter, parameters
from penstock.contract.files import Access
from penstock.contract.finding import Report
from penstock.contract.info import ExternalDocs, Info, Tag, external_docs
from penstock.contract.library import Library
from penstock.contract.messages import CorrelationId, Message, MessageTrait, correlation_id, message
from penstock.contract.node import Node, kind_of
from penstock.contract.operations import (
    Operation,
    OperationTrait,
    Reply,
    ReplyAddress,
    operation,
    reply,
    reply_address,
)
from penstock.contract.readers import map_of, part, report_unplaced, text
from penstock.contract.rules import reading as rules
from penstock.contract.schema import Schema, SchemasTooLarge, multi_format_schema
from penstock.contract.servers import SecurityScheme, Server, ServerVariable, security_scheme
from penstock.contract.shape import NOTHING, NOWHERE, Part, Reader, Reading, read_part, spec

__all__ = ["Components", "Contract", "read_contract"]

# AsyncAPI 3, AsyncAPI Version String: the patch number is not considered by tooling.
SUPPORTED: Final = re.compile(r"3\.[01]\.[0-9]+(?:-[A-Za-z0-9.-]+)?\Z")


def _store(read: Reader) -> Reader:
    return map_of(read, named="a component")


@dataclass(frozen=True, slots=True, kw_only=True)
class Components(Part):
    """Components Object: a store; nothing in it has an effect until it is referred to."""

    SPEC_NAME: ClassVar[str] = "the Components Object"
    schemas: Mapping[str, Schema] = spec(_store(multi_format_schema), default=NOTHING)
    servers: Mapping[str, Server] = spec(_store(part(Server, "servers")), default=NOTHING)
    server_variables: Mapping[str, ServerVariable] = spec(
        _store(part(ServerVariable, "serverVariables")), default=NOTHING
    )
    channels: Mapping[str, Channel] = spec(_store(part(Channel, "channels")), default=NOTHING)
    operations: Mapping[str, Operation] = spec(_store(operation), default=NOTHING)
    messages: Mapping[str, Message] = spec(_store(message), default=NOTHING)
    security_schemes: Mapping[str, SecurityScheme] = spec(_store(security_scheme), default=NOTHING)
    parameters: Mapping[str, Parameter] = spec(parameters, default=NOTHING)
    correlation_ids: Mapping[str, CorrelationId] = spec(_store(correlation_id), default=NOTHING)
    operation_traits: Mapping[str, OperationTrait] = spec(
        _store(part(OperationTrait, "operationTraits")), default=NOTHING
    )
    message_traits: Mapping[str, MessageTrait] = spec(
        _store(part(MessageTrait, "messageTraits")), default=NOTHING
    )
    replies: Mapping[str, Reply] = spec(_store(reply), default=NOTHING)
    reply_addresses: Mapping[str, ReplyAddress] = spec(_store(reply_address), default=NOTHING)
    external_docs: Mapping[str, ExternalDocs] = spec(_store(external_docs), default=NOTHING)
    tags: Mapping[str, Tag] = spec(_store(part(Tag, "tags")), default=NOTHING)
    server_bindings: Mapping[str, Bindings[Part, Part]] = spec(_store(server_bindings), default=NOTHING)
    channel_bindings: Mapping[str, Bindings[Part, Part]] = spec(_store(channel_bindings), default=NOTHING)
    operation_bindings: Mapping[str, Bindings[Part, Part]] = spec(_store(operation_bindings), default=NOTHING)
    message_bindings: Mapping[str, Bindings[Part, Part]] = spec(_store(message_bindings), default=NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract(Part):
    """AsyncAPI Object: the whole document, with references followed and traits merged."""

    SPEC_NAME: ClassVar[str] = "the document"
    asyncapi: str = spec(text, required=True, default="")
    id: str | None = spec(text)
    info: Info = spec(part(Info), required=True, default=Info())
    default_content_type: str | None = spec(text)
    servers: Mapping[str, Server] = spec(map_of(part(Server, "servers"), named="a server"), default=NOTHING)
    channels: Mapping[str, Channel] = spec(map_of(part(Channel, "channels")), default=NOTHING)
    operations: Mapping[str, Operation] = spec(map_of(operation), default=NOTHING)
    components: Components = spec(part(Components), default=Components())
    schemas: tuple[Schema, ...] = field(default=(), repr=False, compare=False)
    """Every schema of the document, each once."""
    fingerprint: str = field(default="", compare=False)
    """SHA-256 over all files of the document."""
    files: tuple[Path, ...] = field(default=(), repr=False, compare=False)
    """The document and every other file of this machine that it needs."""

    def servers_of(self, channel: Channel) -> Mapping[str, Server]:
        """The servers on which a channel is available."""
        # AsyncAPI 3, Channel Object: if servers is absent or empty, the channel is available on all servers.
        if not channel.servers:
            return self.servers
        return {name: self.servers[name] for name in channel.servers if name in self.servers}


def read_contract(path: Path, report: Report, access: Access, raw: bytes | None = None) -> Contract | None:
    """Read a document and everything it refers to; None if nothing can be said about it."""
    library = Library(path, report, access, raw)
    root = library.root
    if root is None or not _is_supported(root, report):
        return None
    reading = Reading(library, report)
    try:
        contract = read_part(Contract, reading, root)
    except SchemasTooLarge:
        return None
    if contract is None:
        return None
    report_unplaced(reading, _references_in_use(contract))
    schemas = tuple(found for found in reading.schemas.values() if found is not None)
    digests = "".join(library.files.digests.values()).encode()
    return replace(
        contract,
        schemas=schemas,
        fingerprint=hashlib.sha256(digests).hexdigest(),
        files=library.files.paths,
    )


def _references_in_use(contract: Contract) -> Iterator[Node]:
    """Give the references of all channels and operations at the root to servers, channels and messages."""
    for channel in contract.channels.values():
        yield from _children(channel.node.get("servers"))
        yield channel.at("x-penstock-dead-letter")
    for each in contract.operations.values():
        for node in (each.node, each.reply.node if each.reply is not None else NOWHERE):
            yield node.get("channel") or NOWHERE
            yield from _children(node.get("messages"))


def _children(node: Node | None) -> list[Node]:
    return node.value if node is not None and isinstance(node.value, list) else []


def _is_supported(root: Node, report: Report) -> bool:
    version = root.get("asyncapi")
    if version is None:
        problem = (
            "the field asyncapi is missing"
            if isinstance(root.value, dict)
            else f"it is {kind_of(root.value)}"
        )
        report.add(rules.NOT_ASYNCAPI, root, problem=problem)
        return False
    if not isinstance(version.value, str):
        report.add(rules.VERSION_NOT_TEXT, version, kind=kind_of(version.value))
        return False
    if not SUPPORTED.match(version.value):
        report.add(rules.UNKNOWN_VERSION, version, version=version.value)
        return False
    return True
