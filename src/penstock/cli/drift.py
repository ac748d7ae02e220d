"""`penstock drift`: have the clusters moved away from the contract? A plan for schedules."""

from __future__ import annotations

import typer

from penstock.cli.planning import (
    CHANGES_PENDING,
    Environment,
    Explain,
    Output,
    PipelineFile,
    Servers,
    form_of,
    look,
    print_plan,
    refuse_unseen,
)

__all__ = ["command"]


def command(
    environment: Environment = None,
    server: Servers = None,
    pipeline: PipelineFile = None,
    explain: Explain = False,
    form: Output = None,
) -> None:
    """Compare and exit with 3 if anything differs, with 0 if not; nothing is asked or changed."""
    with look(environment=environment, servers=server, pipeline=pipeline) as situation:
        plan = situation.plan()
    print_plan(plan, form_of(form), explain=explain)
    if plan.steps:
        raise typer.Exit(CHANGES_PENDING)
    refuse_unseen(plan)
