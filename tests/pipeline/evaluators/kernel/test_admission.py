"""Which events need no word of the contract's check, and which checks the kernel cannot stand in for."""

from __future__ import annotations

import re

import pytest

from penstock.contract.selection import Selector
from penstock.pipeline.evaluators.kernel.admission import admission_of, stops_checks
from penstock.pipeline.plan.explain import explain
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import Form, choose

TYPES = (None, "a", "b", "c", "other")
SCHEMAS = (None, "s1", "s2")


def form(name: str, *types: str, schemas: tuple[str, ...] | None = None, codec: str = "json") -> Form:
    return Form(name=name, selector=Selector(types=types or None, dataschemas=schemas), codec=codec)


FORMS = {
    "one that takes all": ((form("m"),), "true"),
    "one type": ((form("m", "a"),), "type = 'a'"),
    "two messages": ((form("m", "a"), form("n", "b", "c")), "type IN ('a', 'b', 'c')"),
    "a dataschema decides": ((form("m", "a"), form("n", "b", schemas=("s1",))), "type = 'a'"),
    "two take the same": ((form("m", "a"), form("n", "a", "b")), "type = 'b'"),
    "two take the same, one has its name": ((form("a", "a"), form("n", "a")), "type = 'a'"),
    "the rest, but not what two take": (
        (form("rest"), form("m", "a"), form("n", "a")),
        "NOT type IN ('a')",
    ),
    "named like their types": ((form("a"), form("b")), "type IN ('a', 'b')"),
    "a name that another message takes by its type": (
        (form("a"), form("b"), form("c", "a")),
        "type IN ('a', 'b')",
    ),
    "nobody": ((form("m"), form("m")), "false"),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_condition(name: str) -> None:
    forms, text = FORMS[name]
    conditions = admission_of([ContractCheck(operation="o", forms=forms)])
    assert [explain(each).lower() for each in conditions] == ([] if text == "true" else [text.lower()])


@pytest.mark.parametrize("name", FORMS)
def test_what_is_admitted_has_a_message(name: str) -> None:
    forms, text = FORMS[name]
    names = set(re.findall(r"'(\w)'", text))
    for event_type in TYPES:
        admitted = {"true": True, "false": False}.get(text, (event_type in names) != text.startswith("NOT"))
        if admitted and event_type is not None:
            assert all(choose(forms, event_type, schema) is not None for schema in SCHEMAS)


def test_checks_that_look_at_data_stop_the_kernel() -> None:
    avro = ContractCheck(operation="o", forms=(form("m", codec="avro"),))
    full = ContractCheck(operation="o", forms=(form("m"),), full=True)
    fine = ContractCheck(operation="o", forms=(form("m"), form("n", "a")))
    assert list(stops_checks([avro, full, fine])) == ["message m is avro", "check: schema"]
    assert list(stops_checks([lambda events, batch: events])) == ["events are checked by function"]
