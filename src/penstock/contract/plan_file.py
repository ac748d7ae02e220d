"""A plan as a file: JSON with the plan, the steps done so far, and nothing secret.

The file is foreign when it comes back: it is bounded, and every field is checked.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.contract.plan import Plan
from penstock.contract.steps import Risk, Step
from penstock.errors import MissingExtra, Refused, UsageError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["PlanFile", "load_plan", "resume", "save_plan"]

MAX_BYTES: Final = 64 * 1024 * 1024
FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """What a plan file holds."""

    penstock_plan: int = FORMAT
    """The version of this format."""
    contract: str
    """The document that the plan belongs to, as a path from the folder of this file."""
    previous: str | None = None
    """Its earlier version, likewise, if topics may be removed."""
    pipeline: str | None = None
    """The pipeline whose own topics are planned too, likewise."""
    servers: tuple[str, ...] | None = None
    """The servers that were looked at; None is all that the context knows."""
    started: bool = False
    """An apply of this file has begun and perhaps not ended."""
    done: int = 0
    """How many steps it did."""
    plan: Plan

    def progressed(self, done: int) -> PlanFile:
        """The same file after some steps."""
        return replace(self, started=True, done=done)


def save_plan(path: Path, file: PlanFile) -> None:
    """Write a plan file as a whole, or not at all, also if the machine fails meanwhile."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as stream:
            stream.write(_adapter().dump_json(file, indent=2) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
        _sync_folder(path.parent)
    except OSError as exc:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {exc.strerror}", next="choose another file") from exc


def _sync_folder(folder: Path) -> None:
    """Make a rename last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load_plan(path: Path) -> PlanFile:
    """Read a plan file."""
    from pydantic import ValidationError

    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror}", next="penstock plan --out FILE") from exc
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path} is larger than {MAX_BYTES // 1024**2} MiB", next="penstock plan --out FILE")
    try:
        file = _adapter().validate_json(raw, strict=False)
    except (ValidationError, RecursionError) as exc:
        raise UsageError(
            f"{path} is not a plan", why=_first_line(exc), next="penstock plan --out FILE"
        ) from exc
    if file.penstock_plan != FORMAT:
        raise UsageError(
            f"{path} has format {file.penstock_plan}, this Penstock reads {FORMAT}", next="make a new plan"
        )
    return file


def resume(file: PlanFile, fresh: Plan, path: Path) -> Plan:
    """Give the plan to execute: the one in the file, or what is left of it; refuse a stale one.

    `fresh` is the plan for what is there now. A file whose apply was interrupted may go on if nothing is
    left to do that was not shown, and nothing has become more dangerous since.
    """
    saved = file.plan
    same_state = saved.actual == fresh.actual
    # Equal states give equal plans; a file that says otherwise was edited, and is not what we would do.
    if saved.document == fresh.document and same_state and set(saved.steps) == set(fresh.steps):
        return fresh
    shown = {step: step.risk for step in saved.steps}
    surprises = [step for step in fresh.steps if not _was_shown(step, shown)]
    if saved.document == fresh.document and file.started and not surprises:
        return fresh
    what = (
        "the contract" if saved.document != fresh.document else "the file" if same_state else "the clusters"
    )
    raise Refused(
        f"{path} is stale: {what} changed since the plan was made",
        why="A plan is done exactly as it was shown, or not at all.",
        next=f"penstock plan --out {path}",
    )


def _was_shown(step: Step, shown: dict[Step, Risk]) -> bool:
    return step in shown and (step.risk not in (Risk.DANGEROUS, Risk.IMPOSSIBLE) or step.risk == shown[step])


def _adapter() -> TypeAdapter[PlanFile]:
    try:
        from pydantic import TypeAdapter
    except ImportError as exc:
        raise MissingExtra("contract", "pydantic", purpose="reading and writing plan files") from exc
    return TypeAdapter(PlanFile)


def _first_line(exc: Exception) -> str:
    errors: Any = getattr(exc, "errors", list)()
    if not errors:
        return type(exc).__name__
    place = ".".join(str(step) for step in errors[0]["loc"])
    return f"{place + ': ' if place else ''}{errors[0]['msg']}"[:300]
