"""Rules about servers, their variables and their security."""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

UNDEFINED_VARIABLE = Rule(
    id="PK240",
    severity=Severity.ERROR,
    message="{field} uses the variable {name}, which is not defined",
    why="The address cannot be built: every name in braces needs an entry under variables.",
    fix="add variables.{name} with a default, or remove the braces",
    clause="AsyncAPI 3, Server Object: variables",
)
SECURITY_OF_VERSION_2 = Rule(
    id="PK241",
    severity=Severity.ERROR,
    message="security '{name}: []' is written as in AsyncAPI 2",
    why="In 3.x an entry of security is a Security Scheme Object or a reference to one, not a name.",
    fix="write - $ref: '#/components/securitySchemes/{name}'",
    clause="AsyncAPI 3, Server Object: security",
)
UNUSED_VARIABLE = Rule(
    id="PK243",
    severity=Severity.WARNING,
    message="the variable {name} is used neither in host nor in pathname",
    why="A variable only has a meaning where its name stands in braces.",
    fix="remove it, or use it as {{{name}}}",
    clause="AsyncAPI 3, Server Object: variables",
)

RULES = (UNDEFINED_VARIABLE, SECURITY_OF_VERSION_2, UNUSED_VARIABLE)
