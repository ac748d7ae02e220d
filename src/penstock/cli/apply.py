"""`penstock apply`: does exactly the plan that was shown, and says how far it came."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import output
from penstock.cli.confirmation import confirm
from penstock.cli.planning import (
    Environment,
    Form,
    Output,
    PipelineFile,
    Previous,
    Servers,
    Situation,
    form_of,
    look,
    print_plan,
    refuse_unseen,
)
from penstock.cli.settings import current
from penstock.errors import AccessDenied, ClusterError, Refused, TlsFailed, Unreachable, UsageError

if TYPE_CHECKING:
    from penstock.contract.apply import Outcome
    from penstock.contract.desired import Desired
    from penstock.contract.plan import Plan
    from penstock.contract.plan_file import PlanFile
    from penstock.contract.steps import Step

__all__ = ["command"]

SETTLING: Final = 15.0
"""Seconds in which brokers agree on what was changed."""
_FOR_PEOPLE: Final = (Form.TABLE, Form.MARKDOWN)
TOLD: Final = 20
"""Steps of each kind that are named when an apply fails."""

PlanPath = Annotated[
    Path | None,
    typer.Argument(metavar="PLANFILE", show_default=False, help="A plan that `penstock plan --out` saved."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="STEP",
        help="Do this dangerous step, named as the plan prints it; may be repeated. One that is done already "
        "is no error.",
    ),
]


def command(
    planfile: PlanPath = None,
    allow: Allow = None,
    environment: Environment = None,
    previous: Previous = None,
    server: Servers = None,
    pipeline: PipelineFile = None,
    form: Output = None,
) -> None:
    """Change the clusters to what the contract says; a stale plan is refused."""
    names, chosen = allow or [], form_of(form)
    if planfile is None:
        with look(environment=environment, previous=previous, servers=server, pipeline=pipeline) as situation:
            _apply(situation.plan(), situation, None, names, chosen)
        return
    if environment or previous or server or pipeline:
        raise UsageError("a saved plan brings its own environment and servers", next="leave the options out")
    saved = _load(planfile)
    with saved.look() as situation:
        _apply(saved.resume(situation.plan()), situation, saved, names, chosen)


def _apply(plan: Plan, situation: Situation, saved: SavedPlan | None, names: list[str], form: Form) -> None:
    _check_allowed(plan, situation.desired, names)
    if form in _FOR_PEOPLE:
        print_plan(plan, form, allow=names)
    steps = plan.accepted(names)
    if steps:
        confirm("apply changes clusters", f"do {len(steps)} step{'' if len(steps) == 1 else 's'}?")
    outcome = _execute(steps, situation, saved)
    _report(outcome, plan, names, form)
    if steps:
        _settle(situation, names)
    _refuse_the_rest(plan, names)
    refuse_unseen(plan)


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan file, from which an apply starts and in which its progress is written down."""

    path: Path
    file: PlanFile

    def look(self) -> Situation:
        """Go to the contract and the clusters that the plan was made for."""
        file, folder = self.file, self.path.parent
        return look(
            contract=current().contract or folder / file.contract,
            context=file.plan.context,
            environment=file.plan.environment,
            previous=folder / file.previous if file.previous else None,
            servers=list(file.servers) if file.servers else None,
            pipeline=folder / file.pipeline if file.pipeline else None,
        )

    def resume(self, fresh: Plan) -> Plan:
        """Give what is to be done; refuse if that is not what was shown."""
        from penstock.contract.plan_file import resume

        return resume(self.file, fresh, self.path)

    def note(self, done: int) -> None:
        """Write down that some steps are done."""
        from penstock.contract.plan_file import save_plan

        save_plan(self.path, self.file.progressed(self.file.done + done))

    def try_note(self, done: int) -> None:
        """Write down that some steps are done; if that fails it is said, and the steps go on.

        The count is for people: what is left to do is found by looking at the clusters.
        """
        try:
            self.note(done)
        except UsageError as exc:
            output.talk(f"{done} step{' is' if done == 1 else 's are'} done, and {exc.what}")


def _load(path: Path) -> SavedPlan:
    from penstock.contract.plan_file import load_plan

    file = load_plan(path)
    wanted = file.plan.context
    if current().context is not None and wanted is not None and current().context != wanted:
        raise Refused(f"{path} was made for context {wanted}", next=f"penstock -C {wanted} apply {path}")
    return SavedPlan(path, file)


def _check_allowed(plan: Plan, desired: Desired, allowed: list[str]) -> None:
    """Refuse an identity that this contract could never need; say which of the others have nothing to do."""
    from penstock.contract.plan import allowable
    from penstock.contract.steps import name_of, step_id

    pending = {step_id(step): name_of(step) for step in plan.steps}
    known = allowable(desired)
    for each in allowed:
        if each in pending:
            continue
        if each in known:
            output.talk(f"{each} is allowed and there is nothing to do")
            continue
        dangerous = [step_id(step) for step in plan.dangerous]
        meant = [identity for identity in dangerous if pending[identity] == each]
        raise UsageError(
            f"no step of this contract is '{each}'",
            why="A step is allowed by its kind, its server and its name, as the plan prints them.",
            next=" ".join(f"--allow {identity}" for identity in meant[:5])
            or f"dangerous here: {', '.join(dangerous[:5]) or 'nothing'}",
        )


def _execute(steps: tuple[Step, ...], situation: Situation, saved: SavedPlan | None) -> Outcome:
    from penstock.contract.apply import Outcome, execute
    from penstock.contract.plan_text import line_of

    if not steps:
        return Outcome(done=())
    done: list[Step] = []
    if saved is not None:
        saved.note(0)
    with output.progress("apply", total=len(steps)) as bar:

        def on_done(step: Step) -> None:
            done.append(step)
            if saved is not None:
                saved.try_note(len(done))
            line = line_of(step)
            bar.advance()
            bar.describe(f"{line.mark} {line.noun} {line.name}")

        try:
            outcome = execute(steps, situation.clusters, on_done)
        except KeyboardInterrupt:
            _tell("done:    ", tuple(done))
            raise
        bar.describe("apply")
    return outcome


def _report(outcome: Outcome, plan: Plan, names: list[str], form: Form) -> None:
    """Say what was done; a failure is raised with it."""
    from penstock.contract.plan_text import as_data, short

    if form not in _FOR_PEOPLE:
        data = as_data(plan, allow=tuple(names))
        data |= {
            "done": [short(step) for step in outcome.done],
            "left": [short(step) for step in outcome.left],
        }
        output.document(data, form)
    if outcome.error is None:
        return
    _tell("done:    ", outcome.done)
    _tell("failed:  ", outcome.left[:1])
    _tell("not done:", outcome.left[1:])
    raise _failure(outcome, outcome.error)


def _tell(label: str, steps: tuple[Step, ...]) -> None:
    from penstock.contract.plan_text import short

    for step in steps[:TOLD]:
        output.talk(f"{label} {short(step)}")
    if len(steps) > TOLD:
        output.talk(f"{label} {len(steps) - TOLD} more")


def _failure(outcome: Outcome, error: ClusterError) -> ClusterError:
    total = len(outcome.done) + len(outcome.left)
    # What is wrong outside of the contract can be put right; what a cluster refuses, it refuses again.
    helps = isinstance(error, Unreachable | AccessDenied | TlsFailed)
    advice = (error.next, "the same command goes on from here" if helps else None)
    failure = type(error)(
        f"stopped at step {len(outcome.done) + 1} of {total}: {error.what}",
        where=error.where,
        why=error.why,
        next="; ".join(filter(None, advice)) or "correct it in the contract, then penstock plan",
    )
    failure.__cause__ = error
    return failure


def _settle(situation: Situation, names: list[str]) -> None:
    """Look again until nothing is left to do: brokers take a moment to agree."""
    from penstock.contract.plan_text import short

    end = monotonic() + SETTLING
    while steps := situation.plan().accepted(names):
        if monotonic() > end:
            raise ClusterError(
                f"{len(steps)} of the steps had no effect",
                why="; ".join(short(step) for step in steps[:5]),
                next="penstock plan",
            )
        sleep(0.2)


def _refuse_the_rest(plan: Plan, names: list[str]) -> None:
    from penstock.contract.plan_text import short

    refused = plan.refused(names)
    if refused:
        raise Refused(
            f"{len(refused)} step{' is' if len(refused) == 1 else 's are'} refused",
            why="; ".join(short(step) for step in refused[:5]) + ("; ..." if len(refused) > 5 else ""),
            next="penstock plan --explain; a dangerous step is done with the --allow that the plan prints",
        )
