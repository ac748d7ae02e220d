"""Server, Server Variable, Security Scheme and OAuth Flows Objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from penstock.contract.bindings import Bindings, server_bindings
from penstock.contract.info import ExternalDocs, Tag, external_docs, tags
from penstock.contract.kafka import KafkaServer
from penstock.contract.node import Node
from penstock.contract.pulsar import PulsarServer
from penstock.contract.readers import list_of, map_of, one_of, part, text, texts, url
from penstock.contract.rules import servers as rules
from penstock.contract.rules import structure
from penstock.contract.shape import NOTHING, Part, Reading, spec

__all__ = [
    "OAuthFlow",
    "OAuthFlows",
    "SecurityScheme",
    "Server",
    "ServerVariable",
    "security",
    "security_scheme",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthFlow(Part):
    """OAuth Flow Object."""

    SPEC_NAME: ClassVar[str] = "an OAuth Flow Object"
    authorization_url: str | None = spec(url)
    token_url: str | None = spec(url)
    refresh_url: str | None = spec(url)
    available_scopes: Mapping[str, str] = spec(map_of(text), required=True, default=NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthFlows(Part):
    """OAuth Flows Object."""

    SPEC_NAME: ClassVar[str] = "an OAuth Flows Object"
    implicit: OAuthFlow | None = spec(part(OAuthFlow))
    password: OAuthFlow | None = spec(part(OAuthFlow))
    client_credentials: OAuthFlow | None = spec(part(OAuthFlow))
    authorization_code: OAuthFlow | None = spec(part(OAuthFlow))


# What each type needs beside itself (AsyncAPI 3, Security Scheme Object).
SECURITY_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "userPassword": (),
    "apiKey": ("in",),
    "X509": (),
    "symmetricEncryption": (),
    "asymmetricEncryption": (),
    "httpApiKey": ("name", "in"),
    "http": ("scheme",),
    "oauth2": ("flows",),
    "openIdConnect": ("openIdConnectUrl",),
    "plain": (),
    "scramSha256": (),
    "scramSha512": (),
    "gssapi": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityScheme(Part):
    """Security Scheme Object: how to prove who you are, never with what."""

    SPEC_NAME: ClassVar[str] = "a Security Scheme Object"
    type: str | None = spec(one_of(*SECURITY_TYPES), required=True)
    description: str | None = spec(text)
    name: str | None = spec(text)
    where: str | None = spec(one_of("user", "password", "query", "header", "cookie"), name="in")
    scheme: str | None = spec(text)
    bearer_format: str | None = spec(text)
    flows: OAuthFlows | None = spec(part(OAuthFlows))
    open_id_connect_url: str | None = spec(url)
    scopes: tuple[str, ...] = spec(texts, default=())


def security_scheme(reading: Reading, node: Node) -> SecurityScheme | None:
    """Read a Security Scheme Object or a reference to one."""
    if _is_version_2(node):
        reading.report.add(rules.SECURITY_OF_VERSION_2, node, name=next(iter(node.keys), ""))
        return None
    scheme: Any = part(SecurityScheme, "securitySchemes")(reading, node)
    if scheme is None:
        return None
    for field in SECURITY_TYPES.get(scheme.type or "", ()):
        if scheme.node.get(field) is None:
            reading.report.add(
                structure.MISSING_FIELD, scheme.node, owner=f"a {scheme.type} security scheme", field=field
            )
    return scheme  # type: ignore[no-any-return]


def _is_version_2(node: Node) -> bool:
    """In 2.x a requirement was a map from a scheme's name to a list of scopes."""
    if not isinstance(node.value, dict) or not node.value or "type" in node.value:
        return False
    return all(isinstance(child.value, list) for child in node.value.values())


security = list_of(security_scheme)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVariable(Part):
    """Server Variable Object."""

    SPEC_NAME: ClassVar[str] = "a Server Variable Object"
    enum: tuple[str, ...] = spec(texts, default=())
    default: str | None = spec(text)
    description: str | None = spec(text)
    examples: tuple[str, ...] = spec(texts, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Server(Part):
    """Server Object: where a cluster is and how it is spoken to."""

    SPEC_NAME: ClassVar[str] = "a Server Object"
    host: str = spec(text, required=True, default="")
    protocol: str = spec(text, required=True, default="")
    protocol_version: str | None = spec(text)
    pathname: str | None = spec(text)
    title: str | None = spec(text)
    summary: str | None = spec(text)
    description: str | None = spec(text)
    variables: Mapping[str, ServerVariable] = spec(
        map_of(part(ServerVariable, "serverVariables")), default=NOTHING
    )
    security: tuple[SecurityScheme, ...] = spec(security, default=())
    tags: tuple[Tag, ...] = spec(tags, default=())
    external_docs: ExternalDocs | None = spec(external_docs)
    bindings: Bindings[KafkaServer, PulsarServer] = spec(server_bindings, default=Bindings())
