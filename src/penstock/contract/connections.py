"""From a Server Object to a connection: address, TLS and SASL mechanism; the context may override all.

AsyncAPI does not say how its security types map to Kafka; the table below is our reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.config import Context
from penstock.contract.credentials import Connection
from penstock.contract.protocols import family_of
from penstock.contract.servers import SecurityScheme, Server
from penstock.contract.topics import fill
from penstock.errors import ContractError

__all__ = ["MECHANISMS", "connect"]

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
    mechanism = _mechanism((*server.security, *extra)) if family_of(server) == "kafka" else None
    tls = server.protocol.lower() in SECURE
    if context is None or name not in context.server_names:
        return Connection(address=_address(name, server), tls=tls, mechanism=mechanism)
    known = context.server(name)
    security = known.security
    if security.protocol is not None:
        tls, mechanism = security.uses_tls, mechanism if "sasl" in security.protocol.lower() else None
    sasl = security.mechanism or mechanism
    return Connection(
        address=known.address, tls=tls or security.uses_tls, mechanism=_upper(sasl), security=security
    )


def _mechanism(schemes: tuple[SecurityScheme, ...]) -> str | None:
    """The first alternative that is a SASL mechanism: one of the list suffices."""
    return next((found for s in schemes if (found := MECHANISMS.get(s.type or ""))), None)


def _upper(mechanism: str | None) -> str | None:
    return None if mechanism is None else mechanism.upper()


def _address(name: str, server: Server) -> str:
    values = {key: v.default for key, v in server.variables.items() if v.default is not None}
    address = fill(server.host, values)
    if "{" in address:
        raise ContractError(
            f"the host {server.host} of server {name} needs a value",
            where=str(server.at("host").position()),
            next="give the variable a default, or name the server in a context of penstock.yaml",
        )
    return address
