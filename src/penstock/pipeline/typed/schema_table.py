"""The schemas that a worker was given, by id; an id that is not among them is news for the driver.

Workers never ask a registry. A batch with ids that nobody has looked up yet fails as a whole, the driver
looks them up and runs it again; an id that the registry does not know either is a reject.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.contract.schema_ids import SchemaId
from penstock.pipeline.typed.avro_schema import SchemaTexts
from penstock.pipeline.typed.form import schema_token

__all__ = ["SchemaTable", "UnknownSchema", "unknown_ids"]

# What UnknownSchemas says; of an error in a worker Spark keeps only the text.
_MARK: Final = re.compile(r"<schemas of ([^<>]{1,200}): ([A-Za-z0-9:,\-]{1,10000})>")


class UnknownSchema(Exception):
    """A worker met an id that it cannot resolve; caught where the record is judged."""

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self.token = token


def unknown_ids(text: str) -> dict[str, frozenset[str]]:
    """Find the ids in what Spark tells of a failed batch, by operation.

    >>> from penstock.errors import UnknownSchemas
    >>> unknown_ids(f"... {UnknownSchemas('onOrder', ['id:5'])} ...")
    {'onOrder': frozenset({'id:5'})}
    """
    found: dict[str, frozenset[str]] = {}
    for operation, tokens in _MARK.findall(text):
        found[operation] = found.get(operation, frozenset()) | frozenset(tokens.split(","))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaTable:
    """Schemas by the token of their id."""

    known: Mapping[str, SchemaTexts] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    """Ids that the registry does not know."""
    asks: bool = True
    """Whether a batch with a new id is run again; if not, its records are rejected."""

    def get(self, schema_id: SchemaId) -> SchemaTexts:
        """Give the schema of an id; UnknownSchema if it is not there."""
        token = schema_token(schema_id)
        found = self.known.get(token)
        if found is None:
            raise UnknownSchema(token)
        return found

    def news(self, tokens: Iterable[str]) -> frozenset[str]:
        """Give those that are worth a question."""
        return frozenset(tokens) - self.missing if self.asks else frozenset()
