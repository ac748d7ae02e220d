"""From a Server Object to a connection: address, TLS and SASL mechanism; the context may override all.

AsyncAPI does not say how its security types map to Kafka; the table below is our reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.config import Context, Security
from penstock.config import Server as KnownServer
from penstock.contract.credentials import Connection
from penstock.contract.protocols import family_of
from penstock.contract.servers import SecurityScheme, Server
from penstock.contract.topics import fill
from penstock.errors import ConfigError, ContractError

__all__ = ["MECHANISMS", "connect", "connect_registry", "connect_server"]

SECURE: Final = frozenset({"kafka-secure", "pulsar+ssl", "pulsar-secure", "https"})

# plain, scram* and gssapi are SASL mechanisms by their names; userPassword is the general word for PLAIN;
# oauth2 and openIdConnect are OAUTHBEARER; X509 is a client certificate and no SASL at all.
MECHANISMS: Final[Mapping[str, str]] = {
    "plain": "PLAIN",
    "userPassword": "PLAIN",
    "scramSha256": "SCRAM-SHA-256",
    "scramSha512": "SCRAM-SHA-512",
    "gssapi": "GSSAPI",
    "oauth2": "OAUTHBEARER",
    "openIdConnect": "OAUTHBEARER",
}


def connect(
    name: str, server: Server, extra: tuple[SecurityScheme, ...], context: Context | None
) -> Connection:
    """Give the connection to a server; `extra` are the security schemes of the operation."""
    schemes = (*server.security, *extra)
    mechanism = _mechanism(schemes) if family_of(server) == "kafka" else None
    token_url = _token_url(schemes)
    tls = server.protocol.lower() in SECURE
    if context is None or name not in context.server_names:
        return Connection(address=_address(name, server), tls=tls, mechanism=mechanism, token_url=token_url)
    known = context.server(name)
    if known.kind == "pulsar" and family_of(server) == "kafka":
        raise ConfigError(
            f"server {name} is a Kafka in the contract and a Pulsar in context {context.name}",
            where=known.origin,
            next="write its address as host:port, without `kind: pulsar`",
        )
    return connect_server(known, tls=tls, mechanism=mechanism, token_url=token_url)


def connect_server(
    known: KnownServer, *, tls: bool = False, mechanism: str | None = None, token_url: str | None = None
) -> Connection:
    """Give the connection to a server of a context; a document may say more of it.

    Only an address of Pulsar (pulsar:// or pulsar+ssl://) says itself whether there is TLS.
    """
    return replace(
        _from_context(known.security, tls and not known.says_tls, mechanism),
        address=known.address,
        admin=known.admin,
        token_url=known.security.token_url or token_url,
    )


def connect_registry(url: str, context: Context | None) -> Connection:
    """Give the connection to the schema registry that a document names."""
    known = context.registry() if context is not None else None
    if known is None:
        return Connection(address=url, tls=url.startswith("https:"))
    return Connection(address=known.address, tls=known.address.startswith("https:"), security=known.security)


def _from_context(security: Security, tls: bool, mechanism: str | None) -> Connection:
    """Take from the document what the context leaves out; only a protocol that it names takes TLS away.

    Without credentials there is no SASL. A context that names an address and nothing else is still the
    cluster of the document: what is encrypted there is never sent in the clear because a key was left out.
    """
    proves = any((security.username, security.password, security.token))
    sasl = security.mechanism or (mechanism if proves else None)
    if security.protocol is not None:
        sasl = (security.mechanism or mechanism) if security.protocol.startswith("sasl") else None
        tls = security.uses_tls
    else:
        tls = security.uses_tls or tls
    return Connection(address="", tls=tls, mechanism=sasl.upper() if sasl else None, security=security)


def _mechanism(schemes: tuple[SecurityScheme, ...]) -> str | None:
    """The first alternative that is a SASL mechanism: one of the list suffices."""
    return next((found for s in schemes if (found := MECHANISMS.get(s.type or ""))), None)


def _token_url(schemes: tuple[SecurityScheme, ...]) -> str | None:
    flows = (scheme.flows.client_credentials for scheme in schemes if scheme.flows is not None)
    return next((flow.token_url for flow in flows if flow is not None and flow.token_url), None)


def _address(name: str, server: Server) -> str:
    values = {key: v.default for key, v in server.variables.items() if v.default is not None}
    address = fill(server.host, values)
    pulsar = family_of(server) == "pulsar"
    if "{" in address:
        raise ContractError(
            f"the host {server.host} of server {name} needs a value",
            where=str(server.at("host").position()),
            next="give the variable a default, or name the server in a context of penstock.yaml",
        )
    scheme = ("pulsar+ssl://" if server.protocol.lower() in SECURE else "pulsar://") if pulsar else ""
    return f"{scheme}{address}"
