"""A kept plan that somebody else may have written: what is taken from it, and what is not.

A loop keeps what its routes were made of in topics of the clusters that it writes to. Others may write there,
too, and the digest beside the text is theirs as well, so a plan says nothing of itself. What a loop takes of
it is a choice among what the files of now name:

| of the kept plan | is taken |
|---|---|
| conditions, `set`, `key`, which operations of the contract are used | as it says |
| servers, topics, logins, registries, schemas | as the contract of now says, if that of then said the same |
| functions | if the routes of now call them; none is imported because a kept plan names it |

So who may write to such a topic can have what is open routed among channels of the contract, and no more: not
to another topic or server, and no code is run for them. Spark keeps its plans beside its checkpoint, where
nobody else writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.contract.files import Access
from penstock.contract.finding import Report
from penstock.contract.library import Library
from penstock.contract.node import JsonValue, plain
from penstock.errors import PipelineError
from penstock.pipeline.compile import CompiledRoute, Pipeline, check_pipeline
from penstock.pipeline.plan.route import FunctionKey

__all__ = ["compiled_by"]

_PARTS = ("channels", "operations")
"""What the contract may have more of, or less, as long as the kept routes do not use it."""


def compiled_by(now: Pipeline, pipeline: str, contract: str) -> Pipeline:
    """Compile kept routes with the contract and the context of `now`; nothing of them is loaded or run.

    Raises PipelineError if they break a rule, call a function that the routes of `now` do not call, or were
    compiled with a contract that said something else of what they use.
    """
    found = check_pipeline(now.path, context=now.context, raw=pipeline.encode(), known=now.contract)
    if found.pipeline is None:
        raise PipelineError(
            "the routes that began it cannot be compiled with the contract of now",
            why=found.errors[0].message,
        )
    unknown = {*_functions(found.pipeline)} - {*_functions(now)}
    if unknown:
        raise PipelineError(f"they call {', '.join(sorted(unknown))}, which the routes of now do not call")
    was, then = _document(now.path, contract.encode()), _document(now.path, now.contract_raw)
    if was != then and (was is None or then is None or _says_otherwise(was, then, found.pipeline)):
        raise PipelineError("the contract says something else now of what they read or write")
    return found.pipeline


def _functions(pipeline: Pipeline) -> Iterator[str]:
    for route in pipeline.routes:
        if route.document.apply is not None:
            yield route.document.apply.function
        if isinstance(route.plan.key, FunctionKey):
            yield route.plan.key.name


def _document(path: Path, raw: bytes) -> dict[str, JsonValue] | None:
    """Read a document as it is written: no reference is followed."""
    root = Library(path, Report(), Access(), raw).root
    found = None if root is None else plain(root)
    return found if isinstance(found, dict) else None


def _says_otherwise(was: dict[str, JsonValue], now: dict[str, JsonValue], old: Pipeline) -> bool:
    """Whether two contracts differ in what routes use; functions may use any channel, by their receipts."""
    if {key: value for key, value in was.items() if key not in _PARTS} != {
        key: value for key, value in now.items() if key not in _PARTS
    }:
        return True
    is_whole = any(True for _ in _functions(old))
    used = {name for route in old.routes for name in _used(route)}
    for part in _PARTS:
        before, after = was.get(part), now.get(part)
        if before == after:
            continue
        if is_whole or not isinstance(before, dict) or not isinstance(after, dict):
            return True
        if any(before.get(name) != after.get(name) for name in used):
            return True
    return False


def _used(route: CompiledRoute) -> Iterator[str]:
    """Name the operations of a route, and the channels."""
    yield route.dead_letter_channel
    if route.unknown_channel is not None:
        yield route.unknown_channel
    for operation in (route.receive, *route.send):
        yield operation.id
        yield operation.channel
