"""What a pipeline file has become: routes ready for an engine, or what is wrong with them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.config import Context
from penstock.contract import Contract, ResolvedOperation
from penstock.contract.finding import Finding, Severity
from penstock.contract.places import Place, place_of
from penstock.pipeline.document import Route
from penstock.pipeline.plan.route import RoutePlan

__all__ = ["CompiledRoute", "Pipeline", "PipelineCheck"]

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRoute:
    """A route, ready for an engine: its plan, its operations, and how it delivers."""

    name: str
    plan: RoutePlan
    receive: ResolvedOperation
    send: tuple[ResolvedOperation, ...]
    document: Route
    dead_letter_channel: str
    backoff_seconds: float
    sql: str | None = None
    """A condition in Spark's own SQL, which Spark answers."""
    unknown_channel: str | None = None
    """Where structured events of an unregistered format go unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """All routes of a file."""

    path: Path
    checkpoint: str
    """A local folder, or a URL of another file system that Spark reaches."""
    checkpoint_text: str = ""
    """As the file says."""
    engine: str
    """spark or loop."""
    engine_text: str = ""
    """As the file says, which may be a former name."""
    contract: Contract
    raw: bytes = field(default=b"", repr=False, compare=False)
    """The file as it was compiled; what is on disk may have been edited since."""
    contract_raw: bytes = field(default=b"", repr=False, compare=False)
    """The document of the contract, without the files that it refers to."""
    routes: tuple[CompiledRoute, ...]
    context: Context | None = None
    name: str | None = None
    """As the file says; None: it has no name."""
    on_data_loss: str = "stop"
    requires_exactly_once: bool = False
    trigger: float = 0.0
    """Seconds between two batches of Spark; 0: the next one begins when there is something."""

    @property
    def is_checkpoint_relative(self) -> bool:
        """Whether the checkpoint is a folder whose place depends on that of the pipeline file."""
        return not _URL.match(self.checkpoint_text) and not Path(self.checkpoint_text).is_absolute()

    @property
    def is_checkpoint_mounted(self) -> bool:
        """Whether the checkpoint is named by a `file:` URL: a folder that the author knows to be shared."""
        return self.checkpoint_text.lower().startswith("file:/")

    def place(self, channel: str, near: str) -> Place:
        """Say where a channel is: on the server `near` if it is there too."""
        there = self.contract.servers_of(self.contract.channels[channel])
        return place_of(self.contract, channel, server=near if near in there else None, context=self.context)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCheck:
    """What a check found; `pipeline` is None if there is an error."""

    pipeline: Pipeline | None
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep the pipeline from running."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)
