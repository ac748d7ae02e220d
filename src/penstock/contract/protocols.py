"""Which protocol a server speaks, as far as Penstock can act on it (AsyncAPI 3, Server Object: protocol)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.contract.servers import Server

__all__ = ["FAMILIES", "family_of"]

# The word in the document, and the family whose bindings apply.
FAMILIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "kafka",
        "kafka-secure": "kafka",
        "pulsar": "pulsar",
        "pulsar+ssl": "pulsar",
        "pulsar-secure": "pulsar",
    }
)


def family_of(server: Server) -> str:
    """Give `kafka`, `pulsar`, or the protocol itself if it is neither."""
    return FAMILIES.get(server.protocol.lower(), server.protocol.lower())
