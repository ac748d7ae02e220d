"""Findings as text for people, as plain data, and as SARIF 2.1.0 for code reviews."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, Final

from penstock.contract.finding import Finding, Rule, Severity
from penstock.contract.loading import Validation

__all__ = ["as_data", "as_sarif", "finding_text", "rule_message", "rule_text", "rules_page", "summary"]

_SARIF_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def finding_text(finding: Finding) -> str:
    """Write a finding as a block: what, where, why, next."""
    return "\n".join(
        (
            f"{finding.severity}[{finding.rule.id}] {finding.message}",
            f"  --> {finding.position}",
            f"  {finding.rule.why}",
            f"  next: {finding.fix}; more: penstock explain {finding.rule.id}",
        )
    )


def summary(result: Validation) -> str:
    """Say in one line how the document did."""
    counts = Counter(finding.severity for finding in result.findings)
    told = [_count(counts[severity], severity) for severity in Severity if counts[severity]]
    told += [f"{result.omitted} more left out"] if result.omitted else []
    contract = result.contract
    if contract is None:
        return ", ".join(told)
    messages = sum(len(channel.messages) for channel in contract.channels.values())
    parts = (
        _count(len(contract.servers), "server"),
        _count(len(contract.channels), "channel"),
        _count(len(contract.operations), "operation"),
        _count(messages, "message"),
    )
    verdict = ", ".join(told) or "valid"
    return f"{contract.info.title} {contract.info.version}: {verdict}; {', '.join(parts)}"


def _count(number: int, word: str) -> str:
    plain = number == 1 or word == Severity.INFO
    return f"{number} {word}" if plain else f"{number} {word}s"


def as_data(result: Validation) -> dict[str, Any]:
    """Give the result as plain data."""
    return {
        "valid": not result.errors,
        "findings": [_finding_data(finding) for finding in result.findings],
        "omitted": result.omitted,
    }


def _finding_data(finding: Finding) -> dict[str, Any]:
    position = finding.position
    return {
        "rule": finding.rule.id,
        "severity": str(finding.severity),
        "message": finding.message,
        "file": position.file,
        "line": position.line,
        "column": position.column,
        "path": position.path,
        "why": finding.rule.why,
        "fix": finding.fix,
        "clause": finding.rule.clause,
    }


def as_sarif(result: Validation, *, version: str, rules: Iterable[Rule]) -> dict[str, Any]:
    """Give the result as a SARIF log with one run."""
    driver = {
        "name": "penstock",
        "semanticVersion": version,
        "rules": [_sarif_rule(rule) for rule in rules],
    }
    results = [_sarif_result(finding) for finding in result.findings]
    return {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule_message(rule)},
        "fullDescription": {"text": f"{rule.why} ({rule.clause})"},
        "help": {"text": _blanks(rule.fix)},
        "defaultConfiguration": {"level": _SARIF_LEVELS[rule.severity]},
    }


def _sarif_result(finding: Finding) -> dict[str, Any]:
    position = finding.position
    region = {"startLine": position.line, "startColumn": position.column}
    location = {"artifactLocation": {"uri": PurePath(position.file).as_posix()}, "region": region}
    return {
        "ruleId": finding.rule.id,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": f"{finding.message}. Next: {finding.fix}"},
        "locations": [
            {"physicalLocation": location, "logicalLocations": [{"fullyQualifiedName": position.path}]}
        ],
    }


def rule_message(rule: Rule) -> str:
    """The message of a rule with its blanks shown.

    >>> rule_message(Rule(id="", severity=Severity.INFO, message="{a} in {{{b}}}", why="", fix="", clause=""))
    '<a> in {<b>}'
    """
    return _blanks(rule.message)


def _blanks(template: str) -> str:
    return re.sub(r"\{(\w+)\}", r"<\1>", template).replace("{{", "{").replace("}}", "}")


def rule_text(rule: Rule) -> str:
    """Write a rule at length, for `penstock explain`."""
    return "\n".join(
        (
            f"{rule.id}  {rule.severity} of the contract",
            "",
            f"  {rule_message(rule)}",
            "",
            f"  why     {rule.why}",
            f"  fix     {_blanks(rule.fix)}",
            f"  source  {rule.clause}",
        )
    )


def rules_page(rules: Iterable[Rule]) -> str:
    """Write the page of the documentation that lists every rule."""
    lines = [
        "# Rules of the contract",
        "",
        "This page is written from the code. An error makes the document unusable; a warning fails only with",
        "`--strict`; an info is for your eyes.",
        "",
        "| rule | severity | what is said | why | source |",
        "|---|---|---|---|---|",
    ]
    for rule in rules:
        cells = (rule.id, str(rule.severity), rule_message(rule), rule.why, rule.clause)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
