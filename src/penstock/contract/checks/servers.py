"""Checks of the rules in `rules.servers`: variables in braces, and bindings of another protocol."""

from __future__ import annotations

import re
from typing import Final

from penstock.contract.document import Contract
from penstock.contract.finding import Report
from penstock.contract.protocols import family_of
from penstock.contract.rules import kafka as kafka_rules
from penstock.contract.rules import servers as rules
from penstock.contract.servers import Server
from penstock.contract.shape import Part

__all__ = ["BRACES", "check_servers", "is_written"]

BRACES: Final = re.compile(r"\{([^{}]*)\}")


def check_servers(contract: Contract, report: Report) -> None:
    """Report variables that are not defined or not used, and bindings that have no effect."""
    for server in (*contract.servers.values(), *contract.components.servers.values()):
        _check_variables(server, report)
        _check_protocol(server, report)


def is_written(part: Part, field: str, name: str) -> bool:
    """Say whether a map of the document has a name, also if what it stands for could not be read.

    That is reported already, and it is not missing.
    """
    found = part.node.get(field)
    return (
        found is not None and isinstance(found.value, dict) and (name in found.value or "$ref" in found.value)
    )


def _check_variables(server: Server, report: Report) -> None:
    used: set[str] = set()
    for field, value in (("host", server.host), ("pathname", server.pathname or "")):
        for name in BRACES.findall(value):
            used.add(name)
            if not is_written(server, "variables", name):
                report.add(rules.UNDEFINED_VARIABLE, server.at(field), field=field, name=name)
    for name, variable in server.variables.items():
        if name not in used:
            report.add(rules.UNUSED_VARIABLE, variable.node, name=name)


def _check_protocol(server: Server, report: Report) -> None:
    family = family_of(server)
    for protocol, binding in (("kafka", server.bindings.kafka), ("pulsar", server.bindings.pulsar)):
        if binding is not None and family != protocol:
            report.add(
                kafka_rules.BINDING_OFF_PROTOCOL,
                binding.node,
                protocol=protocol,
                where="the server",
                found=server.protocol,
            )
