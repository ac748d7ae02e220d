"""The shop of the demo as a project: a copy of the example, a context for its servers, its topics made."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import load, write_context
from penstock.errors import MachineError

if TYPE_CHECKING:
    from penstock.config import Context
    from penstock.contract.plan import Plan
    from penstock.embedded.stack import Stack

__all__ = ["ENVIRONMENT", "Shop", "open_shop"]

ENVIRONMENT = "dev"
_CONTEXT = "demo"
_NOT_PART = shutil.ignore_patterns(".penstock", "__pycache__")


@dataclass(frozen=True, slots=True)
class Shop:
    """A project folder and the context of its servers."""

    folder: Path
    context: Context

    @property
    def contract(self) -> Path:
        """The contract of the shop."""
        return self.folder / "asyncapi.yaml"

    @property
    def pipeline(self) -> Path:
        """The routes of the shop."""
        return self.folder / "both-brokers.yaml"

    def make_topics(self) -> Plan:
        """Plan and apply the contract; gives the plan that was executed."""
        from penstock.contract import load as load_contract
        from penstock.contract.actual import read_actual
        from penstock.contract.apply import execute
        from penstock.contract.clusters import ContractClusters
        from penstock.contract.desired import desired_state
        from penstock.contract.plan import make_plan

        contract = load_contract(self.contract)
        desired = desired_state(contract, environment=ENVIRONMENT)
        clusters = ContractClusters(contract, self.context)
        try:
            plan = make_plan(desired, read_actual(desired, clusters), context=self.context.name)
            outcome = execute(plan.accepted(()), clusters)
        finally:
            clusters.close()
        if outcome.error is not None:
            raise outcome.error
        return plan


def open_shop(folder: Path, stack: Stack) -> Shop:
    """Copy the example into a folder and write a context for the servers of a stack."""
    shutil.copytree(_example(), folder, dirs_exist_ok=True, ignore=_NOT_PART)
    (folder / ".git").mkdir(exist_ok=True)  # settings are looked for upwards to a repository: not further
    write_context(folder / "penstock.yaml", _CONTEXT, _addresses(stack))
    context = load(start=folder, context=_CONTEXT).context()
    if context is None:
        raise MachineError(f"the settings in {folder} cannot be read")
    return Shop(folder, context)


def _example() -> Path:
    """Find the example: inside of an installed package, or beside the sources."""
    package = Path(str(files("penstock")))
    for place in (package / "examples" / "shop", package.parents[1] / "examples" / "shop"):
        if place.is_dir():
            return place
    raise MachineError("the example of the shop is not there", next="install Penstock again")


def _addresses(stack: Stack) -> dict[str, object]:
    pulsar = stack.pulsar
    return {
        "servers": {
            "kafka": {
                "kind": "kafka",
                "address": stack.kafka.bootstrap,
                # The shop's contract asks for TLS; the servers of the demo have none.
                "security": {"protocol": "plaintext"},
            },
            "pulsar": {"kind": "pulsar", "address": pulsar.service_url, "admin": pulsar.admin_url},
        },
        "registry": {"address": stack.registry.url},
        "gateway": {"address": stack.gateway.bootstrap},
    }
