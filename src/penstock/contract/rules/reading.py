"""Rules about the file itself: its syntax, its size and the version of AsyncAPI it is written in."""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

__all__ = [
    "DUPLICATE_KEY",
    "NOT_ASYNCAPI",
    "NOT_JSON_DATA",
    "RULES",
    "SYNTAX",
    "TOO_LARGE",
    "UNKNOWN_VERSION",
    "VERSION_NOT_TEXT",
]

SYNTAX = Rule(
    id="PK201",
    severity=Severity.ERROR,
    message="the file is not YAML or JSON: {problem}",
    why="Nothing can be read from a file whose syntax is broken.",
    fix="correct the syntax at this place",
    clause="AsyncAPI 3, Format",
)
DUPLICATE_KEY = Rule(
    id="PK202",
    severity=Severity.ERROR,
    message="the key '{key}' is written twice in one object",
    why="YAML forbids it, and tools disagree which of the two wins.",
    fix="remove or rename one of the two",
    clause="YAML 1.2, 3.2.1.3",
)
TOO_LARGE = Rule(
    id="PK203",
    severity=Severity.ERROR,
    message="the document is too large: {problem}",
    why="A few lines of aliases can expand to gigabytes, so size, depth and number of values are bounded.",
    fix="split the document with $ref, or remove the aliases",
    clause="Penstock limit",
)
VERSION_NOT_TEXT = Rule(
    id="PK204",
    severity=Severity.ERROR,
    message="asyncapi must be a text, here it is {kind}",
    why="Without quotes YAML reads 3.0 as a number, and 3.10 would become 3.1.",
    fix="write the version with three parts and quotes, asyncapi: '3.0.0'",
    clause="AsyncAPI 3, AsyncAPI Version String",
)
UNKNOWN_VERSION = Rule(
    id="PK205",
    severity=Severity.ERROR,
    message="AsyncAPI {version} is not supported",
    why="Penstock reads 3.0.x and 3.1.x; in 2.x operations, channels and security mean something else.",
    fix="write asyncapi: 3.0.0 or 3.1.0; convert a 2.x document with its converter (asyncapi convert)",
    clause="AsyncAPI 3, AsyncAPI Version String",
)
NOT_ASYNCAPI = Rule(
    id="PK206",
    severity=Severity.ERROR,
    message="this is not an AsyncAPI document: {problem}",
    why="The root must be an object with the field asyncapi, which says the version.",
    fix="name an AsyncAPI document, or add asyncapi: 3.0.0 at its top",
    clause="AsyncAPI 3, AsyncAPI Object",
)
NOT_JSON_DATA = Rule(
    id="PK207",
    severity=Severity.ERROR,
    message="JSON has no such value: {problem}",
    why="AsyncAPI allows only what JSON can say: texts as keys, finite numbers, no tags of your own.",
    fix="quote the value to make it a text",
    clause="AsyncAPI 3, Format",
)

RULES = (SYNTAX, DUPLICATE_KEY, TOO_LARGE, VERSION_NOT_TEXT, UNKNOWN_VERSION, NOT_ASYNCAPI, NOT_JSON_DATA)
