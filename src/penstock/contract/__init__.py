"""The AsyncAPI document as the desired state of the clusters."""

from __future__ import annotations

from penstock.contract.document import Contract
from penstock.contract.finding import Finding, Position, Rule, Severity
from penstock.contract.loading import Validation, find_contract, load, validate
from penstock.contract.meaning import Registry, ResolvedMessage, ResolvedOperation, resolve

__all__ = [
    "Contract",
    "Finding",
    "Position",
    "Registry",
    "ResolvedMessage",
    "ResolvedOperation",
    "Rule",
    "Severity",
    "Validation",
    "find_contract",
    "load",
    "resolve",
    "validate",
]
