"""The whole table of rules, by id; ids are stable and never used twice.

PK201 to PK209 the file, PK220 references, PK230 structure, PK240 servers, PK250 channels, PK260 operations,
PK270 schemas, PK280 Kafka bindings, PK293 Pulsar bindings, PK296 our extensions. PK210 to PK219 belong to
the comparison with clusters.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from penstock.contract.rules import (
    channels,
    extensions,
    kafka,
    operations,
    pulsar,
    reading,
    references,
    schemas,
    servers,
    structure,
)

__all__ = ["RULES"]

_FAMILIES: Final = (
    reading,
    references,
    structure,
    servers,
    channels,
    operations,
    schemas,
    kafka,
    pulsar,
    extensions,
)

RULES: Final = MappingProxyType(
    {rule.id: rule for rule in sorted((r for family in _FAMILIES for r in family.RULES), key=lambda r: r.id)}
)
