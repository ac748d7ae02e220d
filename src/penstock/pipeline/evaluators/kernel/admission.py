"""Which events the contract certainly has a message for, as a condition over attributes.

The kernel asks it before any route. An event for which it is not true is not rejected there: it goes the slow
way, where the contract's own check has the word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.pipeline.plan.nodes import Attribute, Boolean, Compare, Comparison, In, Node, Not, Text
from penstock.pipeline.ports import Checker
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import Form, choose

__all__ = ["admission_of", "stops_checks"]

_NEVER_NAMED = "\0"
"""A type and a dataschema that no contract names, since no attribute may hold it."""


def stops_checks(checks: Sequence[Checker]) -> Iterator[str]:
    """Name the checks that look at more than type and dataschema."""
    for check in checks:
        if not isinstance(check, ContractCheck):
            yield f"events are checked by {type(check).__name__}"
        elif check.full:
            yield "check: schema"
        else:
            yield from (f"message {form.name} is {form.codec}" for form in check.forms if _is_read(form))


def admission_of(checks: Sequence[Checker]) -> tuple[Node, ...]:
    """Give conditions that are all true only for events that every check lets pass as they are."""
    conditions = (_condition(check.forms) for check in checks if isinstance(check, ContractCheck))
    return tuple(each for each in conditions if each != Boolean(True))


def _is_read(form: Form) -> bool:
    return form.is_decoded or form.is_framed_protobuf


def _condition(forms: Sequence[Form]) -> Node:
    named = dict.fromkeys(name for form in forms for name in (*(form.selector.types or ()), form.name))
    if _passes(forms, _NEVER_NAMED):
        others = tuple(Text(name) for name in named if not _passes(forms, name))
        return Not(In(Attribute("type"), others)) if others else Boolean(True)
    fine = tuple(Text(name) for name in named if _passes(forms, name))
    if len(fine) == 1:
        return Compare(Comparison.EQUAL, Attribute("type"), fine[0])  # as a route would ask it
    return In(Attribute("type"), fine) if fine else Boolean(False)


def _passes(forms: Sequence[Form], event_type: str) -> bool:
    """Say whether events of a type have a message, whatever their dataschema is."""
    schemas = {name for form in forms for name in form.selector.dataschemas or ()}
    return all(choose(forms, event_type, each) is not None for each in (None, _NEVER_NAMED, *schemas))
