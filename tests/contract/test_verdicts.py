"""The 98 verdicts of the reference, as a table: each row is a small change to a valid document."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from penstock.contract import Severity, Validation, validate
from penstock.contract.rules.table import RULES

TABLE = YAML(typ="safe", pure=True).load((Path(__file__).parent / "verdicts.yaml").read_text())
VERDICTS = TABLE["verdicts"]


Source = Callable[[dict[str, Any]], tuple[str, str]]
every_verdict = pytest.mark.parametrize(
    "verdict", [*VERDICTS, *TABLE["further"]], ids=lambda v: f"{v['n']}-{v['what'].replace(' ', '-')}"
)


def judge(verdict: dict[str, Any], source_of: Source) -> Validation:
    file, text = source_of(verdict)
    return validate(file, raw=text.encode())


def found(result: Validation, *severities: Severity) -> list[str]:
    return sorted({f.rule.id for f in result.findings if f.severity in severities})


def test_base_document_is_valid() -> None:
    assert validate("asyncapi.json", raw=json.dumps(TABLE["base"]).encode()).findings == ()


def test_every_verdict_has_a_row() -> None:
    assert {verdict["n"] for verdict in VERDICTS} == set(range(1, 99))


def test_every_rule_has_a_row_or_a_test_of_its_own() -> None:
    """What the table cannot show is about the file itself or about references: see their tests."""
    shown = {rule for row in (*VERDICTS, *TABLE["further"]) for rule in (*row["rules"], *row.get("info", []))}
    elsewhere = {"PK201", "PK203", "PK206", "PK207", "PK221", "PK222", "PK223", "PK227"}
    assert set(RULES) == shown | elsewhere


@every_verdict
def test_verdict(verdict: dict[str, Any], source_of: Source) -> None:
    result = judge(verdict, source_of)
    assert found(result, Severity.ERROR, Severity.WARNING) == sorted(verdict["rules"])
    assert found(result, Severity.INFO) == sorted(verdict.get("info", []))
    told = " ".join(f"{f.message} {f.fix}" for f in result.findings)
    assert verdict.get("names", "") in told


@every_verdict
def test_every_finding_says_where_and_what_next(verdict: dict[str, Any], source_of: Source) -> None:
    for finding in judge(verdict, source_of).findings:
        assert finding.rule is RULES[finding.rule.id]
        assert finding.position.line >= 1 and finding.position.column >= 1
        assert finding.fix and finding.rule.why and finding.rule.clause
        assert "<" not in finding.fix or finding.rule.id in ("PK226", "PK260", "PK262", "PK264")
