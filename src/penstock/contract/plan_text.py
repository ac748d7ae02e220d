"""A plan for people: aligned text for a screen, markdown for a review, one block per step to explain it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from penstock.contract.actual import UNCHECKED, Unseen
from penstock.contract.finding import listed
from penstock.contract.fingerprint import canonical
from penstock.contract.plan import Plan
from penstock.contract.steps import (
    AddPartitions,
    AddPulsarPartitions,
    Blocked,
    Change,
    ChangePolicy,
    ChangeSettings,
    ChangeTopicPolicy,
    CreateMissedPartitions,
    CreateNamespace,
    CreatePulsarTopic,
    CreateTenant,
    CreateTopic,
    DeletePulsarTopic,
    DeleteTopic,
    RegisterSchema,
    RemoveTopicPolicy,
    Risk,
    SetPulsarSchema,
    Step,
    name_of,
    step_id,
)

__all__ = ["Line", "as_data", "explanation", "line_of", "markdown", "short", "summary", "text"]

ADD: Final = "+"
CHANGE: Final = "~"
REMOVE: Final = "-"
BLOCK: Final = "!"
HIDDEN: Final = "?"
MAX_NOTES: Final = 8
READERS: Final = 3
ROOM: Final = 48
"""How wide settings and details may be before they cost a line its place on the screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A step as a row: mark, noun, name, server, what, and a remark."""

    mark: str
    noun: str
    name: str
    server: str
    detail: str
    remark: str = ""


def line_of(step: Step, allow: Iterable[str] = ()) -> Line:
    """Write a step as a row."""
    mark, noun, detail = _words(step)
    remarks = {
        Risk.SAFE: "",
        Risk.CAUTION: f"! {step.warning}",
        Risk.DANGEROUS: f"! {step.warning}; "
        + ("allowed" if step_id(step) in allow else f"refused without --allow {step_id(step)}"),
        Risk.IMPOSSIBLE: "refused, see --explain",
    }
    server = "registry" if noun == "schema" else step.server
    return Line(
        mark=mark, noun=noun, name=name_of(step), server=server, detail=detail, remark=remarks[step.risk]
    )


def _words(step: Step) -> tuple[str, str, str]:
    """Mark, noun and detail of each kind of step."""
    match step:
        case CreateTopic() | CreatePulsarTopic():
            return ADD, "topic", _created(step)
        case AddPartitions() | AddPulsarPartitions() | CreateMissedPartitions():
            return _partitions(step)
        case ChangeSettings():
            return CHANGE, "topic", ", ".join(map(_changed, step.changes))
        case DeleteTopic() | DeletePulsarTopic():
            return REMOVE, "topic", _lost(step)
        case CreateTenant() | CreateNamespace():
            return ADD, step.kind.removeprefix("create-"), ""
        case ChangePolicy() | ChangeTopicPolicy() | RemoveTopicPolicy():
            return _policy(step)
        case RegisterSchema():
            return CHANGE if step.before else ADD, "schema", _registered(step)
        case SetPulsarSchema():
            version = "" if step.before is None else f"v{step.before} -> v{step.before + 1}, "
            return ADD if step.before is None else CHANGE, "topic", f"schema {version}AVRO"
        case Blocked():
            return BLOCK, step.noun, step.difference
        case _:
            assert_never(step)


def _partitions(
    step: AddPartitions | AddPulsarPartitions | CreateMissedPartitions,
) -> tuple[str, str, str]:
    if not isinstance(step, CreateMissedPartitions):
        return CHANGE, "topic", f"partitions {step.before} -> {step.after}"
    numbers = ", ".join(map(str, step.missing))
    return ADD, "topic", f"partition{'' if len(step.missing) == 1 else 's'} {numbers}"


def _policy(step: ChangePolicy | ChangeTopicPolicy | RemoveTopicPolicy) -> tuple[str, str, str]:
    if isinstance(step, RemoveTopicPolicy):
        return CHANGE, "topic", f"{step.policy} of its own {step.before} -> {step.after} of the namespace"
    noun = "topic" if isinstance(step, ChangeTopicPolicy) else "namespace"
    return ADD if step.change.before is None else CHANGE, noun, _changed(step.change)


def _created(step: CreateTopic | CreatePulsarTopic) -> str:
    parts = [f"partitions {step.partitions}"] if step.partitions is not None else []
    if isinstance(step, CreateTopic):
        parts += [f"replicas {step.replicas}"] if step.replicas is not None else []
        parts += _fitting([f"{key} {value}" for key, value in step.settings])
    elif not step.partitions:
        parts = ["without partitions"]
    return ", ".join(parts + _dead_letters(step.dead_letters_of)) or "the broker's defaults"


def _fitting(settings: Sequence[str]) -> list[str]:
    """The settings that fit on a line; the others are only counted."""
    shown = [s for number, s in enumerate(settings) if len(", ".join(settings[: number + 1])) <= ROOM]
    left = len(settings) - len(shown)
    return shown + ([f"{left} more setting{'' if left == 1 else 's'}"] if left else [])


def _dead_letters(channels: Sequence[str]) -> list[str]:
    return [f"dead letters of {', '.join(channels)}"] if channels else []


def _changed(change: Change) -> str:
    before = "" if change.before is None else f"{change.before} -> "
    return f"{change.key} {before}{change.after}"


# Who reads, and what is counted: Pulsar counts entries, which may hold several events.
_STORED: Final = {
    "delete-topic": ("group", "event", "events"),
    "delete-pulsar-topic": ("subscription", "entry", "entries"),
}


def _lost(step: DeleteTopic | DeletePulsarTopic) -> str:
    word, one, many = _STORED[step.kind]
    holds = f"holds {step.records:,} {one if step.records == 1 else many}".replace(",", " ")
    readers = [*step.readers[:READERS], *(["..."] if len(step.readers) > READERS else [])]
    if not readers:
        return f"{holds}, nobody reads it"
    verb = "reads" if len(step.readers) == 1 else "read"
    return f"{holds}, {word}{'' if len(step.readers) == 1 else 's'} {', '.join(readers)} {verb} it"


def _registered(step: RegisterSchema) -> str:
    uses = f", refers to {listed(step.uses)}" if step.uses else ""
    if step.before is None:
        return f"v{step.after}, {step.schema_type}{uses}"
    checked = "not checked" if step.compatibility == UNCHECKED else f"{step.compatibility} ok"
    return f"v{step.before} -> v{step.after}, {checked}{uses}"


# The whole plan


def text(plan: Plan, *, allow: Sequence[str] = ()) -> str:
    """Write a plan for a screen; what is unchanged is only counted."""
    body = [*_rows(_lines(plan, allow))]
    body += [f"  {plan.unchanged} unchanged"]
    body += [*_notes(plan)]
    return "\n".join([headline(plan), "", *body, "", summary(plan, allow=allow)])


def _lines(plan: Plan, allow: Sequence[str]) -> list[Line]:
    return [*(line_of(step, allow) for step in plan.steps), *map(_unseen, plan.unseen)]


def _unseen(each: Unseen) -> Line:
    return Line(
        mark=HIDDEN,
        noun=each.noun,
        name=each.name.removeprefix("persistent://"),
        server="registry" if each.noun == "schema" else each.server,
        detail=f"{each.what or 'it'} may not be seen by this user",
    )


def headline(plan: Plan) -> str:
    """Say which contract meets which clusters."""
    environment = f" ({plan.environment})" if plan.environment else ""
    context = f"context {plan.context}" if plan.context else "the servers of the contract"
    targets = f" ({', '.join(plan.targets)})" if plan.targets else ""
    return f"contract {plan.title} {plan.version}{environment} -> {context}{targets}"


def _rows(lines: Sequence[Line]) -> Iterator[str]:
    widths = [
        max((len(getattr(line, column)) for line in lines), default=0)
        for column in ("noun", "name", "server", "detail")
    ]
    noun, name, server, detail = widths
    for line in lines:
        # A long detail does not push the remarks of all others off the screen.
        room = min(detail, ROOM) if line.remark else 0
        row = f"{line.mark} {line.noun:<{noun}} {line.name:<{name}}  {line.server:<{server}}"
        yield f"{row}  {line.detail:<{room}}  {line.remark}".rstrip()


def _notes(plan: Plan) -> Iterator[str]:
    for note in plan.notes[:MAX_NOTES]:
        yield f"  note: {note.name}: {note.text}"
    if len(plan.notes) > MAX_NOTES:
        yield f"  note: {len(plan.notes) - MAX_NOTES} more, see -o json"


_AGREED: Final = "nothing to do: the clusters are as the contract says"
_COUNTED: Final = ((ADD, "to add"), (CHANGE, "to change"), (REMOVE, "to remove"), (BLOCK, "cannot be done"))


def summary(plan: Plan, *, allow: Sequence[str] = ()) -> str:
    """Count the steps by kind, and how many of each are refused."""
    hidden = f"{len(plan.unseen)} may not be seen" if plan.unseen else ""
    if not plan.steps:
        return f"nothing to do in what may be seen; {hidden}" if hidden else _AGREED
    marks = Counter(line_of(step).mark for step in plan.steps)
    refused = Counter(line_of(step).mark for step in plan.refused(allow))
    parts = []
    for mark, words in _COUNTED:
        if marks[mark]:
            held = refused[mark] if mark != BLOCK else 0
            note = "" if not held else " (refused)" if held == marks[mark] else f" ({held} refused)"
            parts.append(f"{marks[mark]} {words}{note}")
    return ", ".join([*parts, *([hidden] if hidden else [])])


def markdown(plan: Plan, *, allow: Sequence[str] = ()) -> str:
    """Write a plan as a comment for a review."""
    lines = [f"**{headline(plan)}**", ""]
    if plan.steps or plan.unseen:
        lines += ["| | what | name | server | change | remark |", "|---|---|---|---|---|---|"]
        lines += [_markdown_row(line) for line in _lines(plan, allow)]
        lines.append("")
    lines.append(f"{summary(plan, allow=allow)}; {plan.unchanged} unchanged")
    lines += [f"- {_cell(note.name)}: {_cell(note.text)}" for note in plan.notes]
    return "\n".join(lines)


def _markdown_row(line: Line) -> str:
    cells = (f"`{line.mark}`", line.noun, f"`{_cell(line.name)}`", line.server)
    return f"| {' | '.join((*cells, _cell(line.detail), _cell(line.remark)))} |"


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def short(step: Step) -> str:
    """Name a step in a few words."""
    line = line_of(step)
    return f"{line.mark} {line.noun} {line.name} {line.detail}".rstrip()


def as_data(plan: Plan, *, allow: Sequence[str] = ()) -> dict[str, Any]:
    """Give a plan as plain data; every step with its mark, name, identity and whether it is refused."""
    refused = plan.refused(allow)
    data: dict[str, Any] = canonical(plan)
    for step, row in zip(plan.steps, data["steps"], strict=True):
        row |= {
            "mark": line_of(step).mark,
            "name": name_of(step),
            "id": step_id(step),
            "refused": step in refused,
        }
    return {**data, "summary": summary(plan, allow=allow)}


def explanation(plan: Plan) -> str:
    """Say of every step where the contract asks for it, what it costs and what to do about it."""
    return "\n\n".join([*map(_explained, plan.steps), *map(_explained_unseen, plan.unseen)])


def _explained_unseen(each: Unseen) -> str:
    line = _unseen(each)
    lines = [f"{line.mark} {line.noun} {line.name} on {line.server}: {line.detail}"]
    lines += [f"  {each.why}"] if each.why else []
    return "\n".join([*lines, "  next: give the user of this context the right to read it"])


def _explained(step: Step) -> str:
    line = line_of(step)
    lines = [f"{line.mark} {line.noun} {line.name} on {line.server}: {line.detail}".rstrip(": ")]
    lines += [f"  --> {step.place}"] if step.place else []
    if isinstance(step, CreateTopic):
        lines += [f"  {key} {value}" for key, value in step.settings]
    if isinstance(step, Blocked):
        lines += [f"  {step.why}", f"  next: {step.next}"]
    else:
        lines.append(f"  {_REASONS[step.kind]}")
        lines += [f"  {step.risk}: {step.warning}"] if step.warning else []
        lines += [f"  next: penstock apply --allow {step_id(step)}"] if step.risk is Risk.DANGEROUS else []
    return "\n".join(lines)


_REASONS: Final = {
    "create-topic": "The topic is not there. What the contract leaves out is the broker's default.",
    "add-partitions": "Partitions only grow; events that are there stay where they are.",
    "change-settings": "Only the settings that the contract declares are compared and changed.",
    "delete-topic": "The earlier contract declared the topic, this one does not.",
    "create-tenant": "The tenant is not there. It may use every cluster, and has no administrators yet.",
    "create-namespace": "The namespace is not there. It begins with the broker's default policies.",
    "change-policy": "It is a policy of the namespace, so it holds for all its topics.",
    "create-pulsar-topic": "The topic is not there.",
    "add-pulsar-partitions": "Partitions only grow; events that are there stay where they are.",
    "change-topic-policy": "It is a policy of the topic, and goes before that of the namespace.",
    "create-missed-partitions": "The topic should have these partitions and does not: they were deleted.",
    "remove-topic-policy": "The topic has a policy of its own, which goes before the one of its namespace.",
    "set-pulsar-schema": "The newest schema of the topic is not the Avro record of the contract.",
    "delete-pulsar-topic": "The earlier contract declared the topic, this one does not.",
    "register-schema": "The newest version of the subject is not the schema of the contract.",
}
