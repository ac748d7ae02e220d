"""What `plan`, `apply` and `drift` share: contract, context, clusters, and the plan between them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from penstock.cli import output
from penstock.cli.settings import configuration, current
from penstock.errors import AccessDenied

if TYPE_CHECKING:
    from penstock.config import Config, Context
    from penstock.contract import Contract
    from penstock.contract.clusters import ContractClusters
    from penstock.contract.desired import Desired, WantedKafkaTopic
    from penstock.contract.plan import Plan

__all__ = [
    "CHANGES_PENDING",
    "Form",
    "Situation",
    "contract_path",
    "form_of",
    "look",
    "print_plan",
    "refuse_unseen",
]

CHANGES_PENDING = 3


class Form(StrEnum):
    """The forms in which a plan is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"


Environment = Annotated[
    str | None,
    typer.Option("--env", metavar="NAME", help="Environment of x-penstock-environments to plan for."),
]
Previous = Annotated[
    Path | None,
    typer.Option(
        "--previous",
        metavar="FILE",
        help="Earlier version of the contract; topics that only it declares are removed.",
    ),
]
Servers = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="NAME", help="Only this server of the contract; may be repeated."),
]
PipelineFile = Annotated[
    Path | None,
    typer.Option(
        "--pipeline",
        metavar="FILE",
        help="Pipeline whose contract is planned, with the topics that its job needs for itself.",
    ),
]
Output = Annotated[
    Form | None, typer.Option("-o", "--output", help="Form of the plan; markdown is for a review comment.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Say of every step where it comes from and what it costs.")
]


def form_of(form: Form | None) -> Form:
    """The form that was asked for, here or before the verb."""
    return form or Form(current().output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A contract before its clusters."""

    path: Path
    contract: Contract
    context: Context | None
    clusters: ContractClusters
    desired: Desired

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.clusters.close()

    def plan(self) -> Plan:
        """Look at the clusters and compare."""
        from penstock.contract.actual import read_actual
        from penstock.contract.plan import make_plan

        actual = read_actual(self.desired, self.clusters)
        return make_plan(self.desired, actual, context=self.context.name if self.context else None)


def look(
    *,
    contract: Path | None = None,
    context: str | None = None,
    environment: str | None = None,
    previous: Path | None = None,
    servers: list[str] | None = None,
    pipeline: Path | None = None,
) -> Situation:
    """Load the contract, choose the servers, and make the clients; nothing is connected yet.

    With a pipeline its contract is taken, and what its job keeps on clusters is planned too.
    """
    from penstock.contract import load
    from penstock.contract.clusters import ContractClusters
    from penstock.contract.desired import desired_state

    config = configuration()
    chosen = config.context(context) if context else config.context()
    path, needed = _of_pipeline(pipeline, chosen) if pipeline else (None, ())
    path = contract or path or contract_path(config)
    loaded = load(path)
    desired = desired_state(
        loaded,
        servers=servers or _known(loaded, chosen),
        environment=environment,
        previous=load(previous) if previous else None,
    ).with_topics(needed)
    clusters = ContractClusters(loaded, chosen, connect_timeout=_seconds(config))
    return Situation(path=path, contract=loaded, context=chosen, clusters=clusters, desired=desired)


def _of_pipeline(file: Path, context: Context | None) -> tuple[Path, tuple[WantedKafkaTopic, ...]]:
    """Return the contract of a pipeline, and the topics that its job keeps its progress in."""
    from penstock.pipeline.compile import load_pipeline
    from penstock.pipeline.delivery.progress_topic import wanted_progress_topic
    from penstock.pipeline.job.choice import progress_servers

    pipeline = load_pipeline(file, context=context)
    needed = progress_servers(pipeline).items()
    return (
        Path(os.path.relpath(pipeline.contract.files[0])),
        tuple(wanted_progress_topic(server, sources, str(file)) for server, sources in needed),
    )


def contract_path(config: Config) -> Path:
    """Name the contract: as the flag or the settings say, else asyncapi.yaml found upwards."""
    from penstock.contract import find_contract

    named = config.value("contract")
    if named.text is not None:
        return Path(str(named.get()))
    return Path(os.path.relpath(find_contract(Path.cwd())))


def _known(contract: Contract, context: Context | None) -> list[str] | None:
    """The servers that a context knows; the others of the contract belong to other environments."""
    if context is None:
        return None
    known = [name for name in contract.servers if name in context.server_names]
    for name in contract.servers if known else ():
        if name not in known:
            output.talk(f"server {name} is not in context {context.name}: left out")
    return known or None


def _seconds(config: Config) -> float:
    value = config.get("connect_timeout")
    return value if isinstance(value, float) else 5.0


def print_plan(plan: Plan, form: Form, *, allow: list[str] | None = None, explain: bool = False) -> None:
    """Print a plan in one of its forms."""
    from penstock.contract import plan_text

    names = tuple(allow or ())
    if form is Form.MARKDOWN:
        output.data(plan_text.markdown(plan, allow=names))
    elif form is Form.TABLE:
        output.data(plan_text.text(plan, allow=names))
        if explain and (plan.steps or plan.unseen):
            output.data(f"\n{plan_text.explanation(plan)}")
    else:
        output.document(plan_text.as_data(plan, allow=names), form)


def refuse_unseen(plan: Plan) -> None:
    """Raise AccessDenied if a plan leaves out what may not be seen: nobody can say that all is well."""
    if plan.unseen:
        names = [
            f"{each.noun} {each.name}" + (f" ({each.what})" if each.what else "") for each in plan.unseen
        ]
        raise AccessDenied(
            f"{len(names)} of what the contract declares may not be seen",
            why="; ".join(names[:5]) + ("; ..." if len(names) > 5 else ""),
            next="penstock plan --explain says why; give the user of this context the right to read it",
        )
