"""The attributes of records of one shape as columns, in the dialect that the names of their headers tell.

Kafka's names (spec 000) are those of Pulsar's profile 1.0 (A16); profile 0.1 has its own (spec 002).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.bindings.properties import PREFIX as DASHED
from penstock.events.bindings.pulsar import Values
from penstock.events.headers import CONTENT_TYPE, PREFIX, REPEATED
from penstock.events.media import CLOUDEVENTS
from penstock.events.reading import Level
from penstock.events.rules import CORE, REQUIRED, is_name
from penstock.events.v01 import CORE_01, VERSION
from penstock.pipeline.arrow.batch import STRING
from penstock.pipeline.arrow.bindings import Binding, PulsarRecords, owned_by
from penstock.pipeline.arrow.buffers import mask_of
from penstock.pipeline.arrow.certain import certainly_valid, texts_of
from penstock.pipeline.arrow.properties01 import is_bare, kinds_of, places_01
from penstock.pipeline.arrow.shapes import Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

__all__ = ["Columns", "columns_of"]


@dataclass(slots=True)
class Columns:
    """The attributes of the rows of a shape, and of which rows they are certain."""

    certain: Mask
    attributes: dict[str, pa.StringArray] = field(default_factory=dict)
    types: dict[str, pa.UInt8Array] = field(default_factory=dict)

    def add(self, name: str, texts: pa.StringArray, sound: Mask | None) -> None:
        """Take a column in, and note which of its texts are legal."""
        self.attributes[name] = texts
        self.certain &= certainly_valid(name, texts.fill_null("") if texts.null_count else texts)
        if sound is not None:
            self.certain &= sound
        if name == "datacontenttype":
            # Kafka 3: "prefixed with the CloudEvents media type (matched case-insensitively)".
            structured = pc.starts_with(texts, CLOUDEVENTS, ignore_case=True)
            self.certain &= ~mask_of(structured.fill_null(True))


def columns_of(
    shape: Shape, headers: pa.ListArray, binding: Binding, level: Level = Level.STRICT
) -> Columns | None:
    """Read the columns of a shape; None if its names, or what is asked of the binding, are not plain."""
    exactly = owned_by(binding)
    if not _is_plain(binding) or any(
        binding.is_own(name, level) and not exactly(name) for name in shape.names
    ):
        return None
    if isinstance(binding, PulsarRecords):
        places = places_01(shape.names)
        if places is not None:
            return _read_01(places, shape, headers)
        if any(name.startswith(DASHED) for name in shape.names):
            return None
    owned = _owned(shape.names)
    return None if owned is None else _read_headers(owned, shape, headers)


def _is_plain(binding: Binding) -> bool:
    if not isinstance(binding, PulsarRecords):
        return not binding.types
    asked = binding.pulsar
    # A8 (sniff) is about messages without any property: it changes nothing of those that have some.
    return asked.values is Values.AUTO and not (asked.bridged or asked.keep_case or asked.types)


def _owned(names: Sequence[str]) -> dict[str, int] | None:
    """Give where each attribute stands in a shape; None if the names alone are not plain binary mode."""
    owned: dict[str, int] = {}
    for position, name in enumerate(names):
        if name != CONTENT_TYPE and not name.startswith(PREFIX):
            continue
        attribute = "datacontenttype" if name == CONTENT_TYPE else name[len(PREFIX) :]
        # Kafka 3.2.1: content-type is the one header of datacontenttype; another that says the same is borne.
        attribute = REPEATED if name == REPEATED else attribute
        # core: each attribute at most once.
        if attribute in owned or not (is_name(attribute) or attribute == REPEATED):
            return None
        owned[attribute] = position
    if REPEATED in owned and "datacontenttype" not in owned:
        return None
    return owned if all(name in owned for name in REQUIRED) else None


def _read_headers(owned: Mapping[str, int], shape: Shape, headers: pa.ListArray) -> Columns:
    found = Columns(np.ones(len(shape.rows), dtype=bool))
    for name, position in owned.items():
        if name != REPEATED:
            found.add(name, *_column(headers, shape, position))
    if REPEATED in owned:
        again, _ = _column(headers, shape, owned[REPEATED])
        found.certain &= mask_of(pc.equal(again, found.attributes["datacontenttype"]))
    return found


def _read_01(places: Mapping[str, int], shape: Shape, headers: pa.ListArray) -> Columns:
    found = Columns(np.ones(len(shape.rows), dtype=bool))
    for name, position in places.items():
        texts, sound = _column(headers, shape, position)
        if name == "specversion":
            # 1.6: the value "0.1" becomes "1.0"; it is never copied.
            found.certain &= mask_of(pc.equal(texts, VERSION))
            texts = pa.repeat(pa.scalar("1.0", pa.utf8()), len(texts))
        found.add(name, texts, sound)
        if name in CORE_01:
            found.certain &= is_bare(texts)
        else:
            _add_kinds(name, texts, found)
    return found


def _add_kinds(name: str, texts: pa.StringArray, found: Columns) -> None:
    marks, certain = kinds_of(texts)
    plain = mask_of(pc.equal(marks, STRING))
    found.certain &= certain
    if name in CORE:
        found.certain &= plain
    elif not plain.all():
        found.types[name] = marks


def _column(headers: pa.ListArray, shape: Shape, position: int) -> tuple[pa.StringArray, Mask | None]:
    return texts_of(headers.values.field(1).take(pa.array(shape.starts + position)))
