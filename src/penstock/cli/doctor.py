"""`penstock doctor`: is this machine, its clusters, the contract and the pipeline in order?"""

from __future__ import annotations

from dataclasses import asdict

import typer

from penstock.cli import output
from penstock.cli.checks import Check, examine
from penstock.cli.settings import Format, configuration, current


def command() -> None:
    """Check machine, clusters, contract and pipeline; each ✗ names the command that repairs it."""
    checks = list(examine(configuration()))
    if current().output is Format.TABLE:
        _print(checks)
    else:
        output.document([asdict(check) for check in checks], current().output)
    if any(check.ok is False for check in checks):
        raise typer.Exit(1)


def _print(checks: list[Check]) -> None:
    groups: dict[str, list[output.Item]] = {check.group: [] for check in checks}
    for check in checks:
        groups[check.group].append((check.ok, check.name, check.detail, check.repair))
    output.checklist(groups)
    failed = sum(check.ok is False for check in checks)
    output.talk(f"{failed} of {len(checks)} checks failed" if failed else "all is well")
