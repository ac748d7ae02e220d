"""From a path to a contract: read, check, and either a contract or everything that is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.contract.checks import run_checks
from penstock.contract.document import Contract, read_contract
from penstock.contract.files import Access, CannotRead
from penstock.contract.finding import Finding, Report, Severity
from penstock.errors import ContractError, UsageError

__all__ = ["Validation", "find_contract", "load", "validate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What a check found; `contract` is None if nothing could be read."""

    contract: Contract | None
    findings: tuple[Finding, ...]
    omitted: int = 0
    """How many findings were left out because there were too many."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make the document unusable."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)


def validate(
    path: str | Path, *, allow_remote: bool = False, allow_outside: bool = False, raw: bytes | None = None
) -> Validation:
    """Read a document and check every rule; `raw` is its content if it is not on disk.

    Files below the contract's root may be referred to (setting `contract_root`), any file with
    `allow_outside`, the network with `allow_remote` (setting `contract_remote`).
    """
    report = Report()
    access = Access.configured(remote=allow_remote, outside=allow_outside)
    try:
        contract = read_contract(Path(path), report, access, raw)
    except CannotRead as exc:
        raise _unreadable(Path(path), str(exc)) from exc
    if contract is not None:
        run_checks(contract, report)
    return Validation(contract=contract, findings=tuple(report), omitted=report.omitted)


def _unreadable(path: Path, problem: str) -> UsageError:
    """Say what to name instead: of a folder, the documents in it."""
    if not path.is_dir():
        return UsageError(f"cannot read {path}: {problem}", next="name an AsyncAPI document that is there")
    found = sorted(each.name for each in path.iterdir() if each.suffix in (".yaml", ".yml", ".json"))
    named = [name for name in ("asyncapi.yaml", "asyncapi.yml", "asyncapi.json") if name in found] or found
    advice = f"name a file in it: {path / named[0]}" if named else "name an AsyncAPI document"
    return UsageError(f"{path} is a folder", next=advice)


def load(path: str | Path, *, allow_remote: bool = False, allow_outside: bool = False) -> Contract:
    """Give the contract of a document without errors; raise the first error otherwise."""
    result = validate(path, allow_remote=allow_remote, allow_outside=allow_outside)
    if result.contract is not None and not result.errors:
        return result.contract
    first = result.errors[0]
    raise ContractError(
        f"{path} breaks {_count(len(result.errors))} of the contract",
        where=str(first.position),
        why=f"{first.rule.id}: {first.message}",
        next=f"penstock validate {path}",
    )


def _count(number: int) -> str:
    return "a rule" if number == 1 else f"{number} rules"


def find_contract(start: Path, name: str = "asyncapi.yaml") -> Path:
    """Find the document in a folder or above it, up to the root of the repository."""
    for folder in (start, *start.parents):
        if (folder / name).is_file():
            return folder / name
        if (folder / ".git").exists():
            break
    raise UsageError(
        f"no {name} in {start} or above it",
        why="The search ends at the root of the repository.",
        next="name the document: -f FILE, or `contract: FILE` in penstock.yaml",
    )
