"""Rules of the Pulsar bindings that concern more than one field."""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

PULSAR_NOT_HERE = Rule(
    id="PK293",
    severity=Severity.WARNING,
    message="the Pulsar binding of {owner} has no effect",
    why="Pulsar has bindings for servers and channels only; those of operations and messages are reserved, "
    "and must be empty.",
    fix="remove the key pulsar",
    clause="Pulsar bindings, Operation and Message Binding Object: MUST NOT contain any properties",
)
NAMESPACE_DISAGREES = Rule(
    id="PK294",
    severity=Severity.ERROR,
    message="{field} of namespace {namespace} differs from channel {other}",
    why="It is a policy of the namespace, so two channels of one namespace cannot have two values.",
    fix="write the same value in both, or move one channel to another namespace",
    clause="Pulsar bindings, Channel Binding Object; Pulsar namespace policies",
)
BAD_PULSAR_NAME = Rule(
    id="PK295",
    severity=Severity.ERROR,
    message="'{found}' cannot be a {kind} of Pulsar",
    why="Tenants and namespaces hold letters, digits and - = : . _ only; a topic holds no slash, and its "
    "last part must not look like a partition (-partition-N).",
    fix="rename it",
    clause="Pulsar, NamedEntity and TopicName",
)

NOT_STORED = Rule(
    id="PK244",
    severity=Severity.WARNING,
    message="{field} has no effect on a topic that is not persistent",
    why="Pulsar stores nothing of such a topic: there is nothing to keep, to expire or to compact.",
    fix="remove {field}, or write persistence: persistent",
    clause="Pulsar, non-persistent topics",
)

RULES = (PULSAR_NOT_HERE, NAMESPACE_DISAGREES, BAD_PULSAR_NAME, NOT_STORED)
