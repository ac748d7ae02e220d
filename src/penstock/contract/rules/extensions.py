"""Rules about Penstock's own extensions of the document, the fields that begin with x-penstock-."""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

UNKNOWN_EXTENSION = Rule(
    id="PK296",
    severity=Severity.ERROR,
    message="{owner} has no extension {field}",
    why="Fields that begin with x-penstock- are read by Penstock; a misspelt one would be lost silently.",
    fix="correct the name; here these are known: {known}",
    clause="Penstock extensions",
)
DEAD_LETTER_LOOP = Rule(
    id="PK297",
    severity=Severity.ERROR,
    message="the dead letters of channel {channel} come back to it",
    why="An event that cannot be processed would be moved in a circle for ever.",
    fix="let x-penstock-dead-letter name a channel that has no dead letters itself",
    clause="Penstock extensions, x-penstock-dead-letter",
)
DEAD_LETTER_ELSEWHERE = Rule(
    id="PK298",
    severity=Severity.INFO,
    message="the dead letters of channel {channel} go to another cluster, where channel {other} is",
    why="They cannot be written while that cluster is away, and a route that reads one Kafka cluster exactly "
    "once writes another at least once.",
    fix="make {other} available on a server of {channel} if both are to stand or fall together",
    clause="Penstock extensions, x-penstock-dead-letter",
)

RULES = (UNKNOWN_EXTENSION, DEAD_LETTER_LOOP, DEAD_LETTER_ELSEWHERE)
