"""Properties of profile 0.1 (spec 002) as columns of 1.0 events, and back, where everything is certain.

Names go by the table of `events.v01`, values are bare text (A4); what is quoted, relative, repeated or
spelled in another way is left to `penstock.events`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.bindings.properties import EXTENSION_PREFIX, PREFIX
from penstock.events.headers import CONTENT_TYPE
from penstock.events.headers import PREFIX as SCORED
from penstock.events.rules import CORE, REQUIRED, is_name
from penstock.events.v01 import CORE_01, NAMES, UNDEFINED_NAMES, VERSION
from penstock.pipeline.arrow.batch import BOOLEAN, INTEGER, STRING, EventColumns
from penstock.pipeline.arrow.buffers import mask_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

__all__ = ["can_be_01", "is_bare", "kinds_of", "pairs_01", "places_01"]

# A1: the first letter is capitalised.
_TO_01: Final[Mapping[str, str]] = {
    new: f"{PREFIX}{old[:1].upper()}{old[1:]}" for new, old in CORE_01.items()
}
_TO_10: Final[Mapping[str, str]] = {name: attribute for attribute, name in _TO_01.items()}
_NUMBER, _INTEGER = r"^-?[0-9]+$", r"^(?:0|-?[1-9][0-9]{0,8})$"
# No array at import: making one lets Arrow import pandas, which the driver of a job does without.
_BOOLEANS: Final = ("true", "false")
_ODD: Final = ("schemaurl", NAMES, UNDEFINED_NAMES)
"""Extensions that stand for something else in 0.1."""


def places_01(names: Sequence[str]) -> dict[str, int] | None:
    """Give where each 1.0 attribute stands in a shape; None if the names alone are not plain 0.1."""
    found: dict[str, int] = {}
    for position, name in enumerate(names):
        if not name.startswith((PREFIX, SCORED)) and name != CONTENT_TYPE:
            continue
        attribute = _TO_10.get(name) or _extension(name)
        if attribute is None or attribute in found:
            return None
        found[attribute] = position
    return found if all(name in found for name in REQUIRED) else None


def _extension(name: str) -> str | None:
    # A2: lower-case in 1.0, whatever the case was; a core name other than subject has a property of its own.
    attribute = name.removeprefix(EXTENSION_PREFIX).lower()
    legal = name.startswith(EXTENSION_PREFIX) and is_name(attribute) and attribute not in _ODD
    return attribute if legal and (attribute == "subject" or attribute not in (*CORE, *CORE_01)) else None


def is_bare(texts: pa.StringArray) -> Mask:
    """Say which texts are taken as they are (A4: a text that begins with a quote may be JSON)."""
    return ~mask_of(pc.starts_with(texts, '"'))


def kinds_of(texts: pa.StringArray) -> tuple[pa.UInt8Array, Mask]:
    """Say as what bare texts of an extension are read (A4), and of which that is certain."""
    number, integer = (mask_of(pc.match_substring_regex(texts, pattern)) for pattern in (_NUMBER, _INTEGER))
    boolean = mask_of(pc.is_in(texts, pa.array(_BOOLEANS)))
    marks = np.select([boolean, integer], [BOOLEAN, INTEGER], STRING).astype(np.uint8)
    return pa.array(marks), is_bare(texts) & (~number | integer)


def can_be_01(events: EventColumns) -> Mask:
    """Say of which events every value is written bare, under its own name."""
    # An implied application/json is made explicit by the binding.
    certain = ~mask_of(events.data_is_json)
    for name, texts in events.attributes.items():
        if name in _ODD:
            certain &= mask_of(texts.is_null())
        elif name in CORE_01:
            certain &= is_bare(texts)
        else:
            certain &= _reads_the_same(texts, events.types.get(name))
    return certain


def _reads_the_same(texts: pa.StringArray, marks: pa.UInt8Array | None) -> Mask:
    """Say which values a reader takes for the type that they have."""
    kinds, certain = kinds_of(texts)
    wanted: pa.Array | pa.Scalar = pa.scalar(STRING, pa.uint8()) if marks is None else marks
    return (certain & mask_of(pc.equal(kinds, wanted))) | mask_of(texts.is_null())


def pairs_01(events: EventColumns) -> list[tuple[str, pa.BinaryArray]]:
    """Give properties with their values, core first."""
    columns = dict(events.attributes)
    # 1.6: the version is rewritten, never copied.
    columns["specversion"] = pa.repeat(pa.scalar(VERSION, pa.utf8()), events.rows)
    names = events.names()
    core = [(_TO_01[name], name) for name in names if name in CORE_01]
    extensions = [
        (f"{EXTENSION_PREFIX}{name[:1].upper()}{name[1:]}", name) for name in names if name not in CORE_01
    ]
    chosen = [pair for pair in (*core, *extensions) if pair[1] not in _ODD]
    return [(written, columns[name].cast(pa.binary())) for written, name in chosen]
