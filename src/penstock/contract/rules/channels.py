"""Rules about channels: their addresses, their parameters and the topics they stand for."""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

MISSING_PARAMETER = Rule(
    id="PK250",
    severity=Severity.ERROR,
    message="the address uses {{{name}}}, which is not under parameters",
    why="Every expression of the address must be declared, or nobody knows what may stand there.",
    fix="add parameters.{name}",
    clause="AsyncAPI 3, Channel Object: parameters MUST contain all the parameters used in the address",
)
UNUSED_PARAMETER = Rule(
    id="PK251",
    severity=Severity.ERROR,
    message="the parameter {name} is not used in the address",
    why="Parameters may be present only for expressions of the address.",
    fix="remove it, or use it in the address as {{{name}}}",
    clause="AsyncAPI 3, Channel Object: parameters MUST be present only when it contains expressions",
)
QUERY_IN_ADDRESS = Rule(
    id="PK252",
    severity=Severity.ERROR,
    message="the address {found} holds a query or a fragment",
    why="An address is the name of a topic or queue; ? and # belong to bindings.",
    fix="remove what begins with ? or #",
    clause="AsyncAPI 3, Channel Object: query parameters and fragments SHALL NOT be used",
)
BAD_TOPIC = Rule(
    id="PK253",
    severity=Severity.ERROR,
    message="Kafka would refuse the topic name '{found}'",
    why="A topic has 1 to 249 letters, digits, dots, underscores and hyphens, and is neither . nor ..",
    fix="set bindings.kafka.topic to a legal name",
    clause="Apache Kafka, Topic.validate",
)
TOPIC_DISAGREES = Rule(
    id="PK254",
    severity=Severity.ERROR,
    message="channel {channel} says {field} {found} for topic {topic}, channel {other} says {wanted}",
    why="Both channels stand for one topic on one server, and a topic has one value.",
    fix="write the same value in both, or give one channel another topic",
    clause="Kafka bindings, Channel Binding Object",
)
NO_ADDRESS = Rule(
    id="PK255",
    severity=Severity.INFO,
    message="channel {channel} has no address and no topic, it cannot be created",
    why="Without a name there is nothing to create or to compare; the address is learnt at run time.",
    fix="set address if the name is known",
    clause="AsyncAPI 3, Channel Object: address",
)

RULES = (MISSING_PARAMETER, UNUSED_PARAMETER, QUERY_IN_ADDRESS, BAD_TOPIC, TOPIC_DISAGREES, NO_ADDRESS)
