"""`penstock dlq`: the dead letters of a contract: what is there and why, one of them, and bringing back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import output
from penstock.cli.confirmation import confirm
from penstock.cli.planning import contract_path
from penstock.cli.settings import Format, configuration, current
from penstock.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from penstock.config import Context
    from penstock.contract import Contract
    from penstock.contract.places import Place
    from penstock.errors import RecordRefused
    from penstock.pipeline.arrow.bindings import Binding
    from penstock.pipeline.deadletters import Letter, Letters
    from penstock.record import KafkaRecord

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Look at dead letters, and bring records back.")

Channel = Annotated[
    str | None,
    typer.Argument(help="A channel or operation; left out, the only dead-letter channel of the contract."),
]
Code = Annotated[str | None, typer.Option("--code", help="Only letters with this code.")]
RouteName = Annotated[str | None, typer.Option("--route", help="Only letters of this route.")]

_MOST_TOLD: Final = 10
_NOT_KEPT: Final = "not kept: it was too large for the dead-letter topic; read it at its origin"


@dataclass(frozen=True, slots=True)
class _Box:
    """A dead-letter channel that was read."""

    contract: Contract
    context: Context | None
    place: Place
    found: Letters

    @property
    def options(self) -> dict[str, str]:
        return _options(self.place)

    @property
    def binding(self) -> Binding:
        """How its letters are written."""
        return _binding(self.contract, self.place)


@app.command("list")
def list_letters(
    channel: Channel = None,
    code: Code = None,
    route: RouteName = None,
    each: Annotated[bool, typer.Option("--each", help="One line a letter, not one a reason.")] = False,
) -> None:
    """Count the dead letters by reason and route."""
    from penstock.pipeline.deadletters import by_reason

    box = _open(channel)
    letters = _chosen(box.found.letters, code, route)
    if each:
        columns: tuple[str, ...] = ("id", "code", "route", "origin", "attempt", "record", "reason")
        rows: list[tuple[object, ...]] = [_line(letter) for letter in letters]
    else:
        columns = ("code", "route", "letters", "first", "last", "newest id", "reason")
        rows = [(code, route, *_span(members)) for code, route, members in by_reason(letters)]
    output.rows(columns, rows, current().output)
    output.talk(_summary(box, len(letters)))


@app.command()
def show(
    letter: Annotated[str, typer.Argument(metavar="ID", help="The id of a letter, or how it begins.")],
    channel: Channel = None,
) -> None:
    """Show one dead letter: why, where from, and the record as it came."""
    found = _one(_open(channel).found.letters, letter)
    if current().output is Format.TABLE:
        output.data(_text(found))
    else:
        output.document(_data(found), current().output)


@app.command()
def restore(
    channel: Channel = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="This letter (ID or ID@PARTITION/OFFSET); may be repeated."),
    ] = None,
    code: Code = None,
    route: RouteName = None,
    everything: Annotated[bool, typer.Option("--all", help="Every letter.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many, the oldest first.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="A channel or operation instead of the origin.")
    ] = None,
    keep_time: Annotated[
        bool, typer.Option("--keep-time", help="Keep the records' times; retention may delete old ones.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be written, write nothing.")
    ] = False,
) -> None:
    """Write records back as they were, bit for bit; their letters are marked and no longer listed.

    A letter that does not keep its record, because it was too large, stays open.
    """
    from penstock.pipeline.deadletters import refuse_without_record

    if not (ids or code or route or everything):
        raise UsageError("nothing is chosen", next="choose with --id, --code, --route or --all")
    box = _open(channel)
    letters = _chosen(box.found.letters, code, route)
    if ids:
        letters = [_one(letters, each) for each in ids]
        refuse_without_record(letters)
    letters = _with_record(letters)[:limit]
    if not letters:
        output.talk("no dead letter fits; nothing to restore")
        return
    targets = _targets(box, letters, to)
    rows = [(place.server, place.topic, len(own)) for place, own in targets]
    output.rows(("server", "topic", "records"), rows, current().output)
    if dry_run:
        output.talk("nothing was written: --dry-run")
        return
    confirm("restore writes records", f"write {len(letters)} record{'' if len(letters) == 1 else 's'}?")
    _restore(box, targets, len(letters), named=to is not None, keep_time=keep_time)


def _restore(
    box: _Box, targets: Sequence[tuple[Place, list[Letter]]], total: int, *, named: bool, keep_time: bool
) -> None:
    from penstock.pipeline.deadletters import restore_letters

    refused: list[tuple[Letter, RecordRefused]] = []
    with output.progress("restoring", total=total) as bar:
        for place, letters in targets:
            topic = place.topic if named else None
            refused += restore_letters(
                letters,
                to=_options(place),
                topic=topic,
                marks=box.options,
                binding=box.binding,
                keep_time=keep_time,
                on_restored=bar.advance,
            )
    done = total - len(refused)
    left = len(box.found.letters) - done
    output.talk(f"{done} restored; {len(box.found.letters)} open before, {left} now")
    if refused:
        _refuse(refused)


def _refuse(refused: Sequence[tuple[Letter, RecordRefused]]) -> None:
    """Name the letters whose record its topic does not take, and raise."""
    for letter, exc in refused[:_MOST_TOLD]:
        output.talk(f"not restored: {letter.id[:12]}  {letter.letter.origin}: {exc.why}")
    if len(refused) > _MOST_TOLD:
        output.talk(f"  and {len(refused) - _MOST_TOLD} more")
    what = "1 record was" if len(refused) == 1 else f"{len(refused)} records were"
    raise ClusterError(
        f"{what} refused by the topic; the letters stay open",
        where=refused[0][1].where,
        why=refused[0][1].why,
        next=refused[0][1].next,
    )


# Which letters, and where to


def _open(channel: str | None) -> _Box:
    """Read the dead letters of a channel."""
    from penstock.contract import load
    from penstock.contract.places import place_of
    from penstock.pipeline.deadletters import read_letters

    config = configuration()
    contract, context = load(contract_path(config)), config.context()
    place = _reached(place_of(contract, channel or _only_channel(contract), context=context), context)
    with output.progress(f"reading {place.topic}"):
        found = read_letters(_options(place), place.topic, binding=_binding(contract, place))
    return _Box(contract, context, place, found)


def _reached(place: Place, context: Context | None) -> Place:
    """Give a place as the Kafka protocol reaches it: one on Pulsar through the gateway of the context."""
    from penstock.pipeline.pulsar import PULSAR, gateway_of

    if place.protocol == "kafka":
        return place
    gateway = gateway_of(context) if place.protocol == PULSAR else None
    if gateway is None:
        raise UsageError(
            f"channel {place.channel} is on {place.protocol}",
            next="name a channel on Kafka, or a context with a gateway: for its Pulsar",
        )
    return replace(place, connection=gateway)


def _binding(contract: Contract, place: Place) -> Binding:
    from penstock.events import Mode
    from penstock.pipeline.arrow.bindings import binding_of
    from penstock.pipeline.pulsar import profile_on

    return binding_of(profile_on(place.protocol, contract, place.channel), Mode.BINARY)


def _only_channel(contract: Contract) -> str:
    from penstock.contract.places import dead_letter_channels

    names = dead_letter_channels(contract)
    if len(names) == 1:
        return names[0]
    what = "the contract has no dead-letter channel" if not names else "the contract has several of them"
    raise UsageError(what, next=f"name one of: {', '.join(names or contract.channels)}")


def _options(place: Place) -> dict[str, str]:
    from penstock.contract.credentials import Client, options, reveal

    return reveal(options(place.connection, Client.CONFLUENT_KAFKA))


def _chosen(letters: Sequence[Letter], code: str | None, route: str | None) -> list[Letter]:
    return [
        letter
        for letter in letters
        if code in (None, letter.letter.code) and route in (None, letter.letter.route)
    ]


def _one(letters: Sequence[Letter], name: str) -> Letter:
    """Find a letter by how its id begins, and behind an @ by its place if others have that id, too."""
    prefix, _, place = name.partition("@")
    found = [letter for letter in letters if letter.id.startswith(prefix) and place in ("", letter.place)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"no open letter begins with {name!r}", next="penstock dlq list --each")
    names = ", ".join(f"{letter.id[:12]}@{letter.place}" for letter in found[:_MOST_TOLD])
    raise UsageError(
        f"{len(found)} letters begin with {name!r}",
        why=f"They are {names}{', ...' if len(found) > _MOST_TOLD else ''}.",
        next="name one of them so, by id@partition/offset, or see penstock dlq list --each",
    )


def _with_record(letters: Sequence[Letter]) -> list[Letter]:
    """Give the letters that keep their record; the others are told, and stay open."""
    without = [letter for letter in letters if not letter.letter.kept]
    if without:
        what = "1 without its record" if len(without) == 1 else f"{len(without)} without their records"
        output.talk(f"not restored: {what}, too large to be kept; read at the origin:")
        for letter in without[:_MOST_TOLD]:
            output.talk(f"  {letter.id[:12]}  {letter.letter.origin}")
        if len(without) > _MOST_TOLD:
            output.talk(f"  and {len(without) - _MOST_TOLD} more: penstock dlq list --each")
    return [letter for letter in letters if letter.letter.kept]


def _targets(box: _Box, letters: Sequence[Letter], to: str | None) -> list[tuple[Place, list[Letter]]]:
    """Find where each record goes: the named place, or the channel of the contract that it came from."""
    from penstock.contract.places import place_of

    if to is not None:
        return [(_reached(place_of(box.contract, to, context=box.context), box.context), list(letters))]
    groups: dict[tuple[str | None, str], list[Letter]] = {}
    for letter in letters:
        groups.setdefault((letter.letter.server, str(letter.letter.record.topic)), []).append(letter)
    origins = _origins(box)
    return [(_origin_of(origins, *where), own) for where, own in groups.items()]


def _origin_of(origins: Sequence[Place], server: str | None, topic: str) -> Place:
    """Find the topic of a letter; an older letter names no server, and then only one may have the topic."""
    found = [place for place in origins if place.topic == topic and server in (None, place.server)]
    if not found:
        on = f" on server {server}" if server else ""
        raise UsageError(f"no channel of the contract is topic {topic}{on}", next="name one with --to")
    if len({place.server for place in found}) > 1:
        names = ", ".join(f"{place.channel} ({place.server})" for place in found)
        raise UsageError(
            f"topic {topic} is on several servers, and these letters do not say which",
            why=f"They were written by an older version. The topic is that of {names}.",
            next="choose the letters with --id, --code or --route, and the channel with --to",
        )
    return found[0]


def _origins(box: _Box) -> list[Place]:
    """Give every topic, on every server, that dead letters of this channel can come from."""
    from penstock.contract.places import place_of

    feeding = [name for name, each in box.contract.channels.items() if each.dead_letter == box.place.channel]
    receives = (each.channel for each in box.contract.operations.values() if each.action == "receive")
    names = dict.fromkeys((*feeding, *(name for name in receives if name)))
    return [
        _reached(place_of(box.contract, name, server=server, context=box.context), box.context)
        for name in names
        for server in _near(box, name)
    ]


def _near(box: _Box, channel: str) -> list[str]:
    """Name the servers of a channel that the Kafka protocol reaches."""
    from penstock.contract.protocols import family_of
    from penstock.pipeline.pulsar import PULSAR, gateway_of

    families = ("kafka",) if gateway_of(box.context) is None else ("kafka", PULSAR)
    servers = box.contract.servers_of(box.contract.channels[channel])
    return [name for name in servers if family_of(box.contract.servers[name]) in families]


# What people read


def _line(letter: Letter) -> tuple[object, ...]:
    own = letter.letter
    record = "kept" if own.kept else "not kept"
    return letter.id, own.code, own.route, own.origin, own.attempt, record, _reason(own.reason)


def _span(members: Sequence[Letter]) -> tuple[object, ...]:
    times = [_time(letter.stored.timestamp) for letter in members]
    newest = max(members, key=lambda letter: letter.stored.timestamp or 0)
    shown = newest.id[:12] if current().output is Format.TABLE else newest.id
    return len(members), min(times), max(times), shown, _reason(newest.letter.reason)


def _summary(box: _Box, shown: int) -> str:
    found = box.found
    parts = [f"{shown} open in {box.place.topic}"]
    parts += [
        f"{count} {word}"
        for count, word in (
            (found.restored, "restored before"),
            (found.repeated, "written twice"),
            (found.foreign, "no dead letters of ours"),
            (found.left_out, "more, not read"),
        )
        if count
    ]
    return " · ".join(parts)


def _text(found: Letter) -> str:
    lines = [f"{name:<8}  {value}" for name, value in _facts(found).items()]
    facts = _record_facts(found.letter.record) if found.letter.kept else {"record": _NOT_KEPT}
    lines += ["", *(f"{name:<8}  {value}" for name, value in facts.items())]
    return "\n".join(lines)


def _facts(found: Letter) -> dict[str, Any]:
    own = found.letter
    return {
        "letter": found.id,
        "code": own.code,
        "reason": own.reason,
        "route": own.route or "- (before any route)",
        "origin": own.origin,
        "attempt": own.attempt,
        "stored": _time(found.stored.timestamp),
    }


def _record_facts(record: KafkaRecord) -> dict[str, str]:
    from penstock.errors import EventError
    from penstock.events.bindings.kafka import KafkaBinding

    try:
        event = KafkaBinding().decode(record)
        reading = f"{event.type} {event.id} from {event.source}"
    except EventError as exc:
        reading = f"no event: {exc.what}"
    headers = "".join(f"\n            {name} = {_shown(value)}" for name, value in record.headers)
    return {
        "event": reading,
        "written": _time(record.timestamp),
        "key": _shown(record.key),
        "headers": headers or "-",
        "value": _shown(record.value),
    }


def _data(found: Letter) -> dict[str, Any]:
    from penstock.pipeline.deadletter import dead_letter_event

    facts = _facts(found)
    data: Any = dead_letter_event(found.letter, "").json()
    return {**facts, "route": found.letter.route, "record": data["record"], "origin": data["origin"]}


def _time(millis: int | None) -> str:
    """Write a time; one that is no date, which any producer can send, as its number.

    >>> _time(0), _time(10**18), _time(None)
    ('1970-01-01T00:00:00Z', '1000000000000000000', '-')
    """
    if millis is None:
        return "-"
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(millis)


def _reason(reason: str) -> str:
    """Shorten a reason for a table; programs get all of it."""
    if current().output is not Format.TABLE:
        return reason
    line = reason.partition("\n")[0]
    return line if len(line) <= 60 else f"{line[:57]}..."


def _shown(raw: bytes | None) -> str:
    """Write bytes as text if they are some, else as hex.

    >>> _shown(b"ada"), _shown(b"\\xff\\x00"), _shown(None), _shown(b"")
    ('ada', '0xff00', 'null', '(empty)')
    """
    if raw is None:
        return "null"
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return f"0x{raw.hex()}"
    return (text if text.isprintable() or "\n" in text else f"0x{raw.hex()}") or "(empty)"
