"""How a Pulsar cluster is reached, as it travels to workers. No kernel is imported: the driver uses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from penstock.contract.credentials import Connection

__all__ = ["PulsarSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSettings:
    """How a cluster is reached. Secrets have no repr: they travel in a pickle to a worker, shown nowhere.

    A token that came from a file is read again for each connection.
    """

    service_url: str
    admin_url: str | None = None
    """None takes the address that a broker usually has."""
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, connection: Connection) -> Self:
        """Take over what the contract and the context say about a server."""
        security = connection.security
        files = {name: getattr(security, name) for name in ("ca_file", "cert_file", "key_file")}
        return cls(
            service_url=connection.address,
            admin_url=connection.admin,
            token=None if security.token is None else security.token.reveal(),
            key_password=None if security.key_password is None else security.key_password.reveal(),
            **{name: None if path is None else str(path) for name, path in files.items()},
        )
