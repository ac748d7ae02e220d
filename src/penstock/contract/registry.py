"""What the words of the Kafka bindings mean for a schema registry: vendors, id widths, strategies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["APICURIO_WIDTHS", "ID_WIDTHS", "STRATEGIES", "default_strategy", "strategies_of", "strategy_name"]

_CONFLUENT: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_APICURIO: Final = (
    "TopicIdStrategy",
    "SimpleTopicIdStrategy",
    "RecordIdStrategy",
    "QualifiedRecordIdStrategy",
    "TopicRecordIdStrategy",
)
STRATEGIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"confluent": _CONFLUENT, "karapace": _CONFLUENT, "apicurio": _APICURIO + _CONFLUENT}
)
"""The naming strategies of each vendor; Apicurio serves Confluent's ones through its compatible API."""

DEFAULT_STRATEGY: Final[Mapping[str, str]] = MappingProxyType({"apicurio": "TopicIdStrategy"})
"""Vendors whose default is not TopicNameStrategy."""

ID_WIDTHS: Final[Mapping[str, int]] = MappingProxyType({"4": 4, "8": 8, "confluent": 4})
"""Bytes of an id by `schemaIdPayloadEncoding`, where the word says it."""

# The handlers of Apicurio changed their names between its versions 2 and 3. The words of the binding are
# older than 3: new was the handler of 8 bytes, legacy that of 4.
APICURIO_WIDTHS: Final[Mapping[str, int]] = MappingProxyType({"apicurio-new": 8, "apicurio-legacy": 4})
"""Bytes that are written for words which are not clear; either width is read."""


def default_strategy(vendor: str | None) -> str:
    """The strategy that a vendor uses when the document names none."""
    return DEFAULT_STRATEGY.get((vendor or "").lower(), "TopicNameStrategy")


def strategies_of(vendor: str | None) -> tuple[str, ...]:
    """The strategies that a vendor knows; all of them if the vendor is not named or not known."""
    return STRATEGIES.get((vendor or "").lower(), _CONFLUENT + _APICURIO)


def strategy_name(written: str) -> str:
    """Give the short name of a strategy, which may be written as a Java class.

    >>> strategy_name("io.confluent.kafka.serializers.subject.RecordNameStrategy")
    'RecordNameStrategy'
    """
    return written.rpartition(".")[2]
