"""Steps for the subjects of schema registries."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.contract.actual import UNCHECKED, Actual, ActualSubject
from penstock.contract.desired import Desired, Note
from penstock.contract.steps import Blocked, RegisterSchema, Risk, Step
from penstock.contract.wanted_subjects import WantedSubject

__all__ = ["registry_steps"]


def registry_steps(desired: Desired, actual: Actual) -> Iterator[Step | Note]:
    """Compare the subjects of all registries."""
    for wanted in desired.subjects:
        if wanted.problem:
            yield _blocked(
                wanted,
                wanted.problem,
                "No subject can be named or filled.",
                "choose another schemaLookupStrategy, or name the record",
            )
            continue
        if (wanted.registry, wanted.subject) in actual.hidden:
            continue
        states = actual.registries[wanted.registry]
        versions = tuple(states[name].found if name in states else None for name in wanted.uses)
        yield from _subject(wanted, states.get(wanted.subject), versions)


def _subject(
    wanted: WantedSubject, state: ActualSubject | None, versions: tuple[int | None, ...]
) -> Iterator[Step | Note]:
    if state is None:
        yield _register(wanted, None, versions)
    elif state.found is None and state.verdict.compatible:
        yield _register(wanted, state, versions)
    elif state.found is None:
        yield _blocked(
            wanted,
            f"v{state.latest.version}, {state.compatibility} refused",
            state.verdict.reason or "The registry gives no reason.",
            "make the schema compatible, or change the subject's compatibility on purpose",
        )
    elif state.found != state.latest.version:
        text = f"the contract has v{state.found}, the newest version is v{state.latest.version}"
        yield Note(name=wanted.subject, text=text)
    if state is not None and state.found is not None and state.compatibility == UNCHECKED:
        yield Note(name=wanted.subject, text="its compatibility is NONE: the registry takes any schema")


def _register(
    wanted: WantedSubject, state: ActualSubject | None, versions: tuple[int | None, ...]
) -> RegisterSchema:
    before = state.latest.version if state is not None else None
    unchecked = state is not None and state.compatibility == UNCHECKED
    return RegisterSchema(
        server=wanted.registry,
        place=wanted.place,
        subject=wanted.subject,
        schema_type=wanted.schema_type,
        schema=wanted.schema,
        before=before,
        after=(before or 0) + 1,
        compatibility=state.compatibility if state is not None else "",
        risk=Risk.CAUTION if unchecked else Risk.SAFE,
        warning="compatibility NONE: nothing was checked, readers may fail" if unchecked else "",
        uses=wanted.uses,
        versions=versions,
        rank=wanted.rank,
    )


def _blocked(wanted: WantedSubject, difference: str, why: str, advice: str) -> Blocked:
    return Blocked(
        server=wanted.registry,
        place=wanted.place,
        noun="schema",
        name=wanted.subject,
        difference=difference,
        why=why,
        next=advice,
    )
