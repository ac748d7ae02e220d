"""The schemas of a job, on the driver: fetched and registered here and nowhere else.

At the start all versions of the subjects of a source are fetched. An id that comes later, or that another
subject has, is looked up when a batch names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.brokers.schema_registry import Registered, SchemaReference, SchemaRegistry
from penstock.contract import Contract, Registry, ResolvedMessage, ResolvedOperation
from penstock.contract.clusters import compatible_address
from penstock.contract.credentials import Client, options, reveal
from penstock.contract.registry import strategy_name
from penstock.contract.schema import Schema, SchemaFormat
from penstock.contract.schema_ids import Part, SchemaId
from penstock.contract.subjects import (
    SCHEMA_TYPES,
    Registration,
    import_text,
    is_plain_key,
    record_name,
    registration,
    subject_name,
)
from penstock.errors import PipelineError
from penstock.pipeline.typed.avro_schema import SchemaTexts
from penstock.pipeline.typed.form import Written, schema_token
from penstock.pipeline.typed.schema_table import SchemaTable, unknown_ids

__all__ = ["Schemas"]

_MOST_REFERENCES: Final = 100
_MOST_LOOKUPS: Final = 1_000
"""Ids that were not found before no more are asked for: a topic full of noise must not stop the job."""

_ASK_AGAIN: Final = 60.0
"""Seconds; a registry of several nodes may not know at once what one of them was told."""

Open = Callable[[Registry], SchemaRegistry]


def open_registry(registry: Registry) -> SchemaRegistry:
    """Connect to the registry of a message."""
    address = compatible_address(registry.connection.address, (registry.vendor or "").lower())
    made = reveal(options(replace(registry.connection, address=address), Client.SCHEMA_REGISTRY))
    return SchemaRegistry(made)


@dataclass(slots=True)
class _Book:
    """What is known of one operation's schemas."""

    operation: ResolvedOperation
    registry: Registry
    known: dict[str, SchemaTexts] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)
    lookups: int = 0
    has_news: bool = False
    """Whether something was found out since the last table was made."""


class Schemas:
    """Keeps what was looked up over the batches of a job; `open` and `clock` are for tests."""

    def __init__(self, *, open: Open = open_registry, clock: Callable[[], float] = time.monotonic) -> None:
        self._open = open
        self._clock = clock
        self._books: dict[str, _Book] = {}

    def table(self, operation: ResolvedOperation) -> SchemaTable:
        """Give the schemas that an operation reads with; the first call fetches them."""
        registry = _registry_of(operation)
        if registry is None:
            return SchemaTable(asks=False)
        book = self._books.get(operation.id)
        if book is None:
            book = _Book(operation, registry)
            self._prefetch(book)  # if the registry is away, the next call asks again
            self._books[operation.id] = book
        now, book.has_news = self._clock(), False
        book.missing = {token: at for token, at in book.missing.items() if now - at < _ASK_AGAIN}
        return SchemaTable(
            known=dict(book.known), missing=frozenset(book.missing), asks=book.lookups < _MOST_LOOKUPS
        )

    def learn(self, text: str) -> bool:
        """Look up the ids that a failed batch names; True if it is worth running it again.

        That is if something was found out, be it that there is no such schema, since the last table was made:
        who names an id of which the table has told that already would name it for ever.
        """
        named = {name: tokens for name, tokens in unknown_ids(text).items() if name in self._books}
        for name, tokens in named.items():
            self._look_up(self._books[name], sorted(tokens - self._books[name].known.keys()))
        return any(self._books[name].has_news for name in named)

    def written(
        self, contract: Contract, operation: ResolvedOperation, message: ResolvedMessage
    ) -> Written | None:
        """Register the schema that a message is written with; None if its ids do not travel."""
        registry, payload = message.registry, message.payload
        if registry is None or registry.id_location is None or payload is None:
            return None
        subject = _subject(registry, operation, Part.VALUE, message)
        if subject is None:
            raise PipelineError(
                f"operation {operation.id}: {registry.lookup_strategy} gives no subject for {message.name}",
                next="name another schemaLookupStrategy in the contract",
            )
        others = _sharing(contract, operation, message, subject)
        made = registration(others)
        if made is None:
            raise PipelineError(f"subject {subject} cannot hold the schemas of {', '.join(others)}")
        with self._open(registry) as client:
            references = _register_imports(client, made)
            number = client.register(subject, SCHEMA_TYPES[payload.format], made.text, *references)
        is_union = payload.format is SchemaFormat.AVRO and made.text.startswith("[")
        return Written(
            schema_id=SchemaId(number=number),
            schema=(*map(import_text, made.imports), made.text),
            branch=record_name(payload) if is_union else None,
        )

    def _prefetch(self, book: _Book) -> None:
        with self._open(book.registry) as client:
            for subject in _subjects(book):
                for version in client.versions(subject):
                    found = client.version(subject, version)
                    if found is not None:
                        _remember(book, found, _with_references(client, found))

    def _look_up(self, book: _Book, tokens: list[str]) -> None:
        with self._open(book.registry) as client:
            for token in tokens:
                if token in book.missing:
                    continue
                book.lookups += 1
                kind, _, value = token.partition(":")
                found = _LOOKUPS[kind](client, value)
                book.has_news = True
                if found is None:
                    book.missing[token] = self._clock()
                else:
                    book.known[token] = _with_references(client, found)


def _register_imports(client: SchemaRegistry, made: Registration) -> tuple[()] | tuple[list[SchemaReference]]:
    """Register the types of other files, each before those that use it; give what the schema refers to."""
    known: dict[str, SchemaReference] = {}
    for each in made.imports:
        schema = (each.name, SCHEMA_TYPES[SchemaFormat.AVRO], import_text(each))
        references = [known[name] for name in each.uses]
        client.register(*schema, references)
        found = client.find(*schema, references)
        if found is None:
            raise PipelineError(f"the registry does not hold {each.name}, although it took it")
        known[each.name] = SchemaReference(name=each.name, subject=each.name, version=found.version)
    return ([known[name] for name in made.uses],) if made.uses else ()


def _registry_of(operation: ResolvedOperation) -> Registry | None:
    """Give the registry whose schemas are needed to read an operation: that of its Avro."""
    for message in operation.messages:
        key_is_avro = message.key is not None and message.key.format is SchemaFormat.AVRO
        if message.registry is not None and (message.codec == "avro" or key_is_avro):
            return message.registry
    return None


def _subjects(book: _Book) -> list[str]:
    operation = book.operation
    named: dict[str, None] = {}
    for message in operation.messages:
        if message.registry is None:
            continue
        for part in Part:
            subject = _subject(message.registry, operation, part, message)
            if subject is not None:
                named[subject] = None
    return list(named)


def _subject(
    registry: Registry, operation: ResolvedOperation, part: Part, message: ResolvedMessage
) -> str | None:
    schema = message.payload if part is Part.VALUE else message.key
    if schema is None or schema.format not in SCHEMA_TYPES or (part is Part.KEY and is_plain_key(schema)):
        return None
    strategy = strategy_name(registry.lookup_strategy)
    return subject_name(strategy, str(operation.topic), part, record_name(schema))


def _sharing(
    contract: Contract, operation: ResolvedOperation, message: ResolvedMessage, subject: str
) -> dict[str, Schema]:
    """Give the payloads of the channel that have one subject: the registry holds them as one schema."""
    registry = message.registry
    strategy = strategy_name(registry.lookup_strategy) if registry else ""
    found = {}
    for name, each in contract.channels[operation.channel].messages.items():
        payload = each.payload
        if payload is None or payload.format not in SCHEMA_TYPES:
            continue
        if subject_name(strategy, str(operation.topic), Part.VALUE, record_name(payload)) == subject:
            found[name] = payload
    return found


_LOOKUPS: Final[dict[str, Callable[[SchemaRegistry, str], Registered | None]]] = {
    "id": lambda client, value: client.by_id(int(value)),
    "globalId": lambda client, value: client.by_global_id(int(value)),
    "guid": lambda client, value: client.by_guid(value),
}


def _remember(book: _Book, found: Registered, texts: SchemaTexts) -> None:
    if found.id is not None:
        book.known[schema_token(SchemaId(number=found.id))] = texts
    if found.guid:
        book.known[f"guid:{found.guid.lower()}"] = texts


def _with_references(client: SchemaRegistry, found: Registered) -> SchemaTexts:
    """Give a schema behind those that it refers to, each once."""
    texts: list[str] = []
    seen: set[tuple[str, int]] = set()

    def add(each: Registered) -> None:
        for reference in each.references:
            if reference not in seen and len(seen) < _MOST_REFERENCES:
                seen.add(reference)
                target = client.version(*reference)
                if target is not None:
                    add(target)
        texts.append(each.schema)

    add(found)
    return tuple(texts)
