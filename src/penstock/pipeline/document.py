"""pipeline.yaml as frozen values with their positions: routes between the operations of a contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from penstock.contract.files import Access, CannotRead
from penstock.contract.finding import Report
from penstock.contract.library import Library
from penstock.contract.node import JsonValue, Node
from penstock.contract.pulsar import PROFILES
from penstock.contract.readers import any_value, boolean, integer, list_of, map_of, one_of, part, text
from penstock.contract.shape import NOTHING, Part, Reading, read_part, spec
from penstock.errors import UsageError

__all__ = [
    "ENGINES",
    "FORMER_ENGINES",
    "Delivery",
    "FunctionCall",
    "PipelineDocument",
    "Route",
    "read_pipeline",
]

ENGINES: Final = ("spark", "loop")
"""Where routes run."""
FORMER_ENGINES: Final = ("auto", "fused", "columns")
"""Values that `engine` had and still takes; each means `spark` now."""


_MOST_TRIES = 100
_MOST_BATCH = 100_000
_MOST_SECONDS = 3600
_MOST_MEGABYTES = 65_536


def _texts_or_one(reading: Reading, node: Node) -> tuple[str, ...] | None:
    """Read one text, or a list of them."""
    if isinstance(node.value, list):
        found: tuple[str, ...] | None = list_of(text)(reading, node)
        return found
    one = text(reading, node)
    return None if one is None else (one,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(Part):
    """What is tried before an event is given up, and where it goes then; the words are Knative's."""

    SPEC_NAME: ClassVar[str] = "a delivery block"
    retry: int = spec(integer(0, _MOST_TRIES), default=0)
    backoff_policy: str = spec(one_of("linear", "exponential"), default="exponential")
    backoff_delay: str = spec(text, default="PT0.2S")
    dead_letter_sink: str | None = spec(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall(Part):
    """A function of the user and the bounds within which it runs."""

    SPEC_NAME: ClassVar[str] = "an apply block"
    function: str = spec(text, required=True, default="")
    batch: int = spec(integer(1, _MOST_BATCH), default=100)
    timeout: int = spec(integer(1, _MOST_SECONDS), default=30)
    """Seconds for one batch."""
    memory: int = spec(integer(16, _MOST_MEGABYTES), default=512)
    """Megabytes."""
    deterministic: bool = spec(boolean, default=False)
    """Whether it gives the same events for an event whenever it is called."""


def _function_call(reading: Reading, node: Node) -> FunctionCall | None:
    """Read `module:function`, or the block with its bounds."""
    if isinstance(node.value, str):
        return FunctionCall(node=node, function=node.value)
    return read_part(FunctionCall, reading, node)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownFormat(Part):
    """What becomes of structured events in a format that nobody registered."""

    SPEC_NAME: ClassVar[str] = "an unknownFormat block"
    forward: str | None = spec(text, required=True)
    """A channel, or an operation that sends to it; None: they are rejected."""


def _unknown_format(reading: Reading, node: Node) -> UnknownFormat | None:
    """Read `reject`, or the block that says where they go."""
    if isinstance(node.value, dict):
        return read_part(UnknownFormat, reading, node)
    return None if one_of("reject")(reading, node) is None else UnknownFormat(node=node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Part):
    """One route: what it receives, which events it takes, what it changes, where it sends them."""

    SPEC_NAME: ClassVar[str] = "a route"
    receive: str = spec(text, required=True, default="")
    send: tuple[str, ...] = spec(_texts_or_one, required=True, default=())
    events: str | None = spec(one_of("cloudevents", "plain"))
    """None: as the contract declares the messages."""
    check: str | None = spec(one_of("none", "message", "schema"))
    """How far events are held against the contract; None: as another route of the source says, or message."""
    unknown_format: UnknownFormat | None = spec(_unknown_format)
    dialects: tuple[str, ...] | None = spec(list_of(one_of("sniffed", "bridged")))
    """What else is read as an event on Pulsar; None: as another route of the source says, or nothing."""
    reading: str | None = spec(one_of("strict", "lenient"))
    """How much is forgiven in what is read; None, here and below: as another route of the source says."""
    sniff: bool | None = spec(boolean)
    """Whether JSON that looks like an event is one, without any header or property of CloudEvents."""
    dash: bool | None = spec(boolean)
    """Whether `ce-` headers are read on Kafka, too."""
    keep_case: bool | None = spec(boolean)
    """Whether the case of extension names of profile 0.1 is kept."""
    values: str | None = spec(one_of("auto", "json", "raw"))
    """How properties of profile 0.1 say values, where they are read and where they are written."""
    repeat_headers: bool = spec(boolean, default=False)
    """Whether structured events are written with the headers of binary mode besides."""
    where: str | None = spec(text)
    filter: JsonValue = spec(any_value)
    cesql: str | None = spec(text)
    sql: str | None = spec(text)
    set: Mapping[str, str] = spec(map_of(text), default=NOTHING)
    drop: tuple[str, ...] = spec(list_of(text), default=())
    rename: Mapping[str, str] = spec(map_of(text), default=NOTHING)
    key: str = spec(text, default="keep")
    apply: FunctionCall | None = spec(_function_call)
    mode: str = spec(one_of("keep", "binary", "structured"), default="keep")
    profile: str | None = spec(one_of(*PROFILES))
    """How CloudEvents are written on Pulsar; None: as the contract says."""
    ordering: str = spec(one_of("partition", "key", "none"), default="partition")
    tombstones: str = spec(one_of("pass", "drop", "reject", "event"), default="pass")
    expired: str = spec(one_of("keep", "discard"), default="keep")
    delivery: Delivery = spec(part(Delivery), default=Delivery())


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDocument(Part):
    """The whole file."""

    SPEC_NAME: ClassVar[str] = "a pipeline"
    name: str | None = spec(text)
    """What tells this pipeline from others of the same contract; part of the group of a loop."""
    REMOVED: ClassVar[Mapping[str, str]] = {
        "accept-differences": "remove it; Real-Time Mode is gone, engine: loop takes its place"
    }
    contract: str = spec(text, default="asyncapi.yaml")
    checkpoint: str = spec(text, default=".penstock/checkpoints")
    engine: str = spec(one_of(*ENGINES, *FORMER_ENGINES), default="spark")
    """Where the routes run."""
    on_data_loss: str = spec(one_of("stop", "continue"), default="stop")
    """What to do if records are gone from a topic before they were read."""
    exactly_once: str | None = spec(one_of("required"), name="exactly-once")
    """`required`: nothing runs that is delivered with less; None: each source as well as it can be."""
    trigger: str | None = spec(text)
    """How often a batch of Spark begins, as a duration; None: whenever there is something."""
    routes: Mapping[str, Route] = spec(map_of(part(Route), named="a route"), required=True, default=NOTHING)


def read_pipeline(path: Path, report: Report, raw: bytes | None = None) -> PipelineDocument | None:
    """Read the file; None if it cannot be read, and then the report says why."""
    try:
        library = Library(path, report, Access.configured(), raw)
    except CannotRead as exc:
        raise UsageError(f"cannot read {path}: {exc}", next="name a pipeline file") from exc
    if library.root is None:
        return None
    found: Any = read_part(PipelineDocument, Reading(library, report), library.root)
    return found if isinstance(found, PipelineDocument) else None
