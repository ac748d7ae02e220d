"""`penstock validate`: the rules of the contract, each finding with id, place, why and fix."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.settings import configuration, current

if TYPE_CHECKING:
    from penstock.contract import Validation

__all__ = ["command"]

EXIT_FINDINGS = 1
_HEAD = 65_536


class Form(StrEnum):
    """The forms in which findings are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    SARIF = "sarif"


File = Annotated[
    Path | None,
    typer.Argument(
        show_default=False, help="An AsyncAPI document or a pipeline; asyncapi.yaml, found upwards."
    ),
]
Output = Annotated[
    Form | None, typer.Option("-o", "--output", help="Form of the findings; sarif is for code reviews.")
]
Rules = Annotated[bool, typer.Option("--rules", help="List the rules instead of checking a document.")]
Strict = Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")]
Remote = Annotated[bool, typer.Option("--allow-remote", help="Follow a $ref to http and https addresses.")]
Outside = Annotated[
    bool, typer.Option("--allow-outside", help="Follow a $ref to files outside the document's folder.")
]


def command(
    file: File = None,
    form: Output = None,
    rules: Rules = False,
    strict: Strict = False,
    allow_remote: Remote = False,
    allow_outside: Outside = False,
) -> None:
    """Check a contract or a pipeline; exit code 0 if it is fine, 1 if a rule is broken."""
    chosen = form or Form(current().output)
    if rules:
        _list_rules(chosen)
        return
    from penstock.contract.loading import find_contract, validate

    configured = configuration().get("contract")
    path = file or (Path(str(configured)) if configured else Path(os.path.relpath(find_contract(Path.cwd()))))
    if _is_pipeline(path):
        result = _check_pipeline(path)
    else:
        result = validate(path, allow_remote=allow_remote, allow_outside=allow_outside)
    _print(result, chosen)
    failing = [f for f in result.findings if f.severity == "error" or (strict and f.severity == "warning")]
    if failing:
        raise typer.Exit(EXIT_FINDINGS)


def _is_pipeline(path: Path) -> bool:
    """Tell a pipeline file from a contract by its keys; one that cannot be read is left to the reader."""
    try:
        head = path.read_bytes()[:_HEAD]
    except OSError:
        return False
    return re.search(rb"^routes\s*:", head, re.MULTILINE) is not None and b"asyncapi:" not in head


def _check_pipeline(path: Path) -> Validation:
    from penstock.contract import Validation
    from penstock.pipeline.compile import check_pipeline

    checked = check_pipeline(path)
    contract = checked.pipeline.contract if checked.pipeline else None
    return Validation(contract=contract, findings=checked.findings)


def _print(result: Validation, form: Form) -> None:
    from penstock import __version__
    from penstock.contract import render
    from penstock.contract.rules.table import RULES
    from penstock.pipeline.rules import RULES as PIPELINE_RULES

    if form is Form.TABLE:
        for finding in result.findings:
            output.data(f"{render.finding_text(finding)}\n")
    elif form is Form.SARIF:
        output.document(
            render.as_sarif(result, version=__version__, rules=(*RULES.values(), *PIPELINE_RULES)), Form.JSON
        )
    else:
        output.document(render.as_data(result), form)
    output.talk(render.summary(result))


def _list_rules(form: Form) -> None:
    from penstock.contract.render import rule_message
    from penstock.contract.rules.table import RULES
    from penstock.pipeline.rules import RULES as PIPELINE_RULES

    every = (*RULES.values(), *PIPELINE_RULES)
    rows = [(rule.id, str(rule.severity), rule_message(rule), rule.clause) for rule in every]
    fmt = Form.JSON if form is Form.SARIF else form
    output.rows(("rule", "severity", "message", "source"), rows, fmt)
