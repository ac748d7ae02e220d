"""`penstock plan`: the difference between the contract and the clusters, with the risk of every step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.planning import (
    CHANGES_PENDING,
    Environment,
    Explain,
    Output,
    PipelineFile,
    Previous,
    Servers,
    form_of,
    look,
    print_plan,
    refuse_unseen,
)

__all__ = ["command"]

Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Save the plan for `penstock apply FILE`.")
]
ExitCode = Annotated[
    bool, typer.Option("--exit-code", help="Exit with 3 if there is anything to do, with 0 if not.")
]


def command(
    environment: Environment = None,
    out: Out = None,
    explain: Explain = False,
    exit_code: ExitCode = False,
    previous: Previous = None,
    server: Servers = None,
    pipeline: PipelineFile = None,
    form: Output = None,
) -> None:
    """Show what would change; nothing is changed."""
    with look(environment=environment, previous=previous, servers=server, pipeline=pipeline) as situation:
        plan = situation.plan()
    print_plan(plan, form_of(form), explain=explain)
    if out is not None:
        from penstock.contract.plan_file import PlanFile, save_plan

        file = PlanFile(
            contract=os.path.relpath(situation.path, out.parent),
            previous=os.path.relpath(previous, out.parent) if previous else None,
            pipeline=os.path.relpath(pipeline, out.parent) if pipeline else None,
            servers=tuple(server) if server else None,
            plan=plan,
        )
        save_plan(out, file)
        output.talk(f"plan saved to {out}; next: penstock apply {out}")
    if exit_code and plan.steps:
        raise typer.Exit(CHANGES_PENDING)
    if exit_code:
        refuse_unseen(plan)
