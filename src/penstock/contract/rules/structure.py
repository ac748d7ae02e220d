"""Rules about the shape of an object: its fields, their types and their ranges."""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

__all__ = [
    "BAD_EXPRESSION",
    "BAD_NAME",
    "BAD_URL",
    "MISSING_FIELD",
    "NOT_IN_SET",
    "OUT_OF_RANGE",
    "RULES",
    "UNKNOWN_FIELD",
    "WRONG_TYPE",
]

MISSING_FIELD = Rule(
    id="PK230",
    severity=Severity.ERROR,
    message="{owner} lacks the required field {field}",
    why="The specification requires it; without it the object has no meaning.",
    fix="add {field}",
    clause="AsyncAPI 3, the table of the object's fixed fields",
)
UNKNOWN_FIELD = Rule(
    id="PK231",
    severity=Severity.ERROR,
    message="{owner} has no field {field}",
    why="The object may contain only the fields that the specification defines, and extensions (x-).",
    fix="remove it, or write it as an extension: x-{field}",
    clause="AsyncAPI 3, Specification Extensions; Kafka bindings: MUST contain only the properties defined",
)
WRONG_TYPE = Rule(
    id="PK232",
    severity=Severity.ERROR,
    message="{field} must be {wanted}, here it is {found}",
    why="A reader of the document cannot use a value of another type.",
    fix="write {wanted}",
    clause="AsyncAPI 3, the table of the object's fixed fields",
)
NOT_IN_SET = Rule(
    id="PK233",
    severity=Severity.ERROR,
    message="{field} is '{found}', it must be one of {wanted}",
    why="The specification names the values that are allowed.",
    fix="use one of {wanted}",
    clause="AsyncAPI 3, the table of the object's fixed fields",
)
OUT_OF_RANGE = Rule(
    id="PK234",
    severity=Severity.ERROR,
    message="{field} is {found}, it must be {wanted}",
    why="The broker would refuse the value, or the specification forbids it.",
    fix="choose a value that is {wanted}",
    clause="Kafka bindings, TopicConfiguration Object; Kafka's own types int and long",
)
BAD_URL = Rule(
    id="PK235",
    severity=Severity.ERROR,
    message="{field} is not a URL: {found}",
    why="Programs must be able to open it.",
    fix="write an absolute address, for example https://registry.example.com",
    clause="Kafka bindings, Server Binding Object: string (url); RFC 3986",
)
BAD_EXPRESSION = Rule(
    id="PK236",
    severity=Severity.ERROR,
    message="{field} is not a runtime expression: {found}",
    why="Only a place in the message's header or payload can be named, by a JSON Pointer after the #.",
    fix="write it like $message.header#/correlationId or $message.payload#/replyTo",
    clause="AsyncAPI 3, Runtime Expression",
)
BAD_NAME = Rule(
    id="PK237",
    severity=Severity.ERROR,
    message="'{found}' cannot be the name of {owner}",
    why="Names of components and servers may hold letters, digits, dot, hyphen and underscore only.",
    fix="rename it, and the references to it",
    clause="AsyncAPI 3, Components Object",
)

RULES = (
    MISSING_FIELD,
    UNKNOWN_FIELD,
    WRONG_TYPE,
    NOT_IN_SET,
    OUT_OF_RANGE,
    BAD_URL,
    BAD_EXPRESSION,
    BAD_NAME,
)
