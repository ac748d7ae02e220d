"""Rules about `$ref`: where it may stand, what it may name, and that it leads somewhere."""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

__all__ = [
    "CANNOT_READ",
    "DANGLING",
    "IGNORED_SIBLINGS",
    "LOOP",
    "MALFORMED",
    "NOT_ALLOWED_HERE",
    "OUTSIDE",
    "RULES",
    "WRONG_KIND",
    "WRONG_PLACE",
]

DANGLING = Rule(
    id="PK220",
    severity=Severity.ERROR,
    message="nothing is at {reference}",
    why="The reference must lead to an existing object.",
    fix="correct the reference, or add what it names",
    clause="AsyncAPI 3, Reference Object",
)
CANNOT_READ = Rule(
    id="PK221",
    severity=Severity.ERROR,
    message="cannot read {reference}: {problem}",
    why="The contract is only complete with every file it refers to.",
    fix="put the file there, or correct the reference; relative paths start at the file that holds the $ref",
    clause="AsyncAPI 3, Reference Object",
)
LOOP = Rule(
    id="PK222",
    severity=Severity.ERROR,
    message="the reference {reference} leads back to itself",
    why="A circle of references holds no object.",
    fix="let one of the references name an object that is written out",
    clause="AsyncAPI 3, Reference Object",
)
OUTSIDE = Rule(
    id="PK223",
    severity=Severity.ERROR,
    message="{reference} is {problem}",
    why="A document from somebody else must not read your files or call the network unless you allow it.",
    fix="set contract_root in penstock.yaml to a folder that holds both (contract_remote: true for the "
    "network), or validate with --allow-outside or --allow-remote",
    clause="Penstock safety rule",
)
IGNORED_SIBLINGS = Rule(
    id="PK224",
    severity=Severity.WARNING,
    message="{siblings} beside $ref is ignored",
    why="A Reference Object cannot be extended: anything beside $ref has no effect.",
    fix="remove it, or move it into the object that is referred to",
    clause="AsyncAPI 3, Reference Object",
)
NOT_ALLOWED_HERE = Rule(
    id="PK225",
    severity=Severity.ERROR,
    message="a reference is not allowed here, {wanted} must be written out",
    why="The specification allows a Reference Object only in the places it names.",
    fix="write the object out, or refer to the object around it; bindings as a whole may be a reference",
    clause="AsyncAPI 3, Reference Object",
)
WRONG_PLACE = Rule(
    id="PK226",
    severity=Severity.ERROR,
    message="{field} must refer to {wanted}",
    why="An operation uses a channel of this document and messages through it, a channel uses its servers; "
    "components are only a store and are not active by themselves.",
    fix="write $ref: '{example}'",
    clause="AsyncAPI 3, Operation Object and Channel Object",
)
MALFORMED = Rule(
    id="PK227",
    severity=Severity.ERROR,
    message="$ref is malformed: {problem}",
    why="A reference is a text: an optional file or address, then # and a JSON Pointer.",
    fix="write it like '#/components/messages/orderPlaced' or './messages.yaml#/orderPlaced'",
    clause="RFC 6901; AsyncAPI 3, Reference Object",
)
WRONG_KIND = Rule(
    id="PK228",
    severity=Severity.ERROR,
    message="the reference leads to {found}, wanted is {wanted}",
    why="A reference stands for the object it names, which must be of the kind that is allowed here.",
    fix="refer to an object of components.{store}",
    clause="AsyncAPI 3, Reference Object",
)

RULES = (
    DANGLING,
    CANNOT_READ,
    LOOP,
    OUTSIDE,
    IGNORED_SIBLINGS,
    NOT_ALLOWED_HERE,
    WRONG_PLACE,
    MALFORMED,
    WRONG_KIND,
)
