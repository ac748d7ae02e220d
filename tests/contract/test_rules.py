"""The table of rules as a whole: complete, unique, used, and equal to the page in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.contract.finding import Rule
from penstock.contract.render import rules_page
from penstock.contract.rules import table
from penstock.contract.rules.table import RULES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock" / "contract"


def test_no_id_is_used_twice() -> None:
    ids = [rule.id for family in table._FAMILIES for rule in family.RULES]
    assert sorted(ids) == list(RULES)


def test_every_rule_is_reported_somewhere() -> None:
    names = {
        name for family in table._FAMILIES for name, value in vars(family).items() if isinstance(value, Rule)
    }
    assert len(names) == len(RULES)
    source = "".join(path.read_text() for path in SOURCE.rglob("*.py") if path.parent.name != "rules")
    assert {name for name in names if not re.search(rf"\b{name}\b", source)} == set()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_speaks_in_sentences(rule: Rule) -> None:
    assert rule.why.endswith((".", "..")) and rule.why[0].isupper()
    assert not rule.message.endswith(".") and not rule.fix.endswith(".")
    assert rule.clause


def test_the_page_of_rules_is_that_of_the_code() -> None:
    """To write it anew: `print(rules_page(RULES.values()), end="")` into docs/contract/rules.md."""
    assert (ROOT / "docs" / "contract" / "rules.md").read_text() == rules_page(RULES.values())
