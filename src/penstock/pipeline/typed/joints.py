"""The joints of a stage that the contract decides: reader and checks of a source, writer of a target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from penstock.contract import Contract, ResolvedOperation
from penstock.events.bindings.pulsar import Profile, Values
from penstock.events.reading import Level
from penstock.pipeline.compile import CompiledRoute
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.plain import PlainReader, is_plain, plain_reader
from penstock.pipeline.pulsar import PULSAR, PulsarReader
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import Form, forms_of
from penstock.pipeline.typed.schemas import Schemas
from penstock.pipeline.typed.write import ContractWriter

__all__ = ["checks_of", "has_writer", "reader_of", "reads_data", "writer_of"]


def _said(routes: tuple[CompiledRoute, ...], key: str) -> Any:
    """Give what the routes of a source say; `check_pipeline` has seen to it that they agree."""
    said = (getattr(route.document, key) for route in routes)
    return next((each for each in said if each is not None), None)


def reader_of(routes: tuple[CompiledRoute, ...]) -> PlainReader | PulsarReader | KafkaReader | None:
    """Give the reader of a source; None: CloudEvents on Kafka, exactly as the binding says."""
    receive = routes[0].receive
    said = _said(routes, "events")
    if said == "plain" or (said is None and is_plain(receive)):
        return plain_reader(receive)
    level, sniff = Level(_said(routes, "reading") or "strict"), bool(_said(routes, "sniff"))
    if receive.protocol != PULSAR:
        reader = KafkaReader(level=level, dash=bool(_said(routes, "dash")), sniff=sniff)
        return None if reader == KafkaReader() else reader
    dialects = PulsarReader.of(_said(routes, "dialects") or ())
    return replace(
        dialects,
        sniffed=dialects.sniffed or sniff,
        level=level,
        keep_case=bool(_said(routes, "keep_case")),
        values=Values(_said(routes, "values") or "auto"),
    )


def checks_of(routes: tuple[CompiledRoute, ...], schemas: Schemas) -> Iterator[ContractCheck]:
    """Give the checks of a source: none if the routes want none, or the contract names no message."""
    receive, check = routes[0].receive, _said(routes, "check") or "message"
    if check != "none" and receive.messages:
        yield ContractCheck(
            operation=receive.id,
            forms=forms_of(receive),
            schemas=schemas.table(receive),
            full=check == "schema",
        )


def writer_of(
    operation: ResolvedOperation,
    contract: Contract,
    schemas: Schemas,
    profile: Profile | None = None,
    values: Values = Values.AUTO,
    repeat_headers: bool = False,
) -> ContractWriter | None:
    """Give the writer of a target; None: CloudEvents as the binding writes them, in the route's mode."""
    if not has_writer(operation):
        return None
    forms = forms_of(operation)
    plain = is_plain(operation)
    made = {
        message.name: schemas.written(contract, operation, message)
        for message, form in zip(operation.messages, forms, strict=True)
        if form.codec in ("avro", "json") and not form.is_envelope
    }
    return ContractWriter(
        operation=operation.id,
        forms=forms,
        written={name: each for name, each in made.items() if each is not None},
        is_plain=plain,
        profile=profile,
        values=values,
        repeat_headers=repeat_headers,
    )


def has_writer(operation: ResolvedOperation) -> bool:
    """Say whether `writer_of` gives a writer, without asking a registry."""
    return is_plain(operation) or any(_is_special(form) for form in forms_of(operation))


def reads_data(routes: tuple[CompiledRoute, ...]) -> bool:
    """Say whether the checks of a source look at data or keys, and not only at type and dataschema."""
    check = _said(routes, "check")
    forms = forms_of(routes[0].receive)
    decoded = any(form.is_decoded or form.is_framed_protobuf for form in forms)
    return check == "schema" or (check != "none" and decoded)


def _is_special(form: Form) -> bool:
    """Say whether a message is more than a CloudEvent whose data is JSON or bytes."""
    if form.is_envelope:
        essence = (form.content_type or "").partition(";")[0].strip().lower()
        return "+" in essence and not essence.endswith("+json")
    return form.is_decoded or form.codec == "protobuf"
