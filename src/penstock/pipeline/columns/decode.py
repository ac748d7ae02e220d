r"""Kafka records to event columns: the headers of binary mode, by position, without lambdas (spec 000).

Columns say *event* only where `penstock.events` does, and reject only what it rejects. Of a few records they
cannot tell, and those have the code `undecided`: structured events, whose data would lose its bytes; two
content types, of which the binding takes the last; header names with line breaks or of more than 8 KiB, which
one regular expression could not keep apart or read in time; broken attributes beside a null header, which is
absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.events.formats import FORMATS
from penstock.events.headers import CONTENT_TYPE, PREFIX, header_of
from penstock.events.media import BATCH, CLOUDEVENTS
from penstock.events.rules import CORE, REQUIRED
from penstock.pipeline.columns.binding import Binding
from penstock.pipeline.columns.jsontext import SPACE
from penstock.pipeline.columns.legal import ILLEGAL, LONGEST_MEDIA_TYPE, is_legal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["CODE", "REASON", "binding_of", "decode", "is_own", "needed_extensions"]

CODE, REASON = "_code", "_reason"
_REASONS: Final = {
    "undecided": "columns cannot judge this record; restore it and read it in micro-batches",
    "unsupported-format": "no event format is registered for the content type",
    "not-a-cloudevent": "the record has no CloudEvents header and no CloudEvents content-type",
}
_LONGEST_NAMES: Final = 8192
_HEADERS, _NAMES, _VALUES, _JOINED = "_headers", "_names", "_values", "_joined"
_HEADER_TYPE: Final = "array<struct<key:string,value:binary>>"

# All names behind each other, each between line breaks.
_CLAIMS: Final = rf"\n{PREFIX}"
# The binding takes the last of several for its decision whether the record is structured.
_TWO_CONTENT_TYPES: Final = rf"(?s)\n{CONTENT_TYPE}\n(?:.*\n)?{CONTENT_TYPE}\n"
# core, Naming: lower-case letters or digits; Kafka 3.2.1: datacontenttype has a header of its own.
_BAD_NAME: Final = rf"\n{PREFIX}(?:(?![a-z0-9]+\n)|data(?:contenttype)?\n)"
_REPEATED: Final = rf"(?s)\n({PREFIX}[a-z0-9]+|{CONTENT_TYPE})\n(?:.*\n)?\1\n"
_KNOWN_FORMAT: Final = rf"(?i)\A{CLOUDEVENTS}\+(?:{'|'.join(each.name for each in FORMATS)}){SPACE}(?:;|\z)"


def needed_extensions(names: Iterable[str]) -> tuple[str, ...]:
    """Give the extensions among some attributes that a decoder must find, in a fixed order."""
    # partitionkey has a rule of its own, so it is always looked at.
    return tuple(sorted({"partitionkey", *names} - set(CORE)))


def binding_of(extensions: Iterable[str]) -> Binding:
    """Say where a plan finds its event in a frame that was decoded with these extensions."""
    columns = {name: f"_ext_{name}" for name in extensions}
    return Binding(columns=columns, extensions=None)


def is_own(name: Column) -> Column:
    """Tell whether a header belongs to CloudEvents."""
    return F.startswith(name, F.lit(PREFIX)) | (name == CONTENT_TYPE)


def decode(frame: DataFrame, extensions: Iterable[str] = ()) -> DataFrame:
    """Add the event columns to Kafka's, and code and reason of what is no event; both null: an event."""
    found = binding_of(needed_extensions(extensions))
    headers = F.coalesce(F.col("headers"), F.array().cast(_HEADER_TYPE))
    # Each step is a projection of its own: Spark computes a column once that the next step uses often.
    frame = frame.withColumn(_HEADERS, headers)
    frame = frame.withColumns({_NAMES: F.col(f"{_HEADERS}.key"), _VALUES: F.col(f"{_HEADERS}.value")})
    names = {**{name: name for name in CORE}, **found.columns}
    attributes = {column: _header(header_of(name)).cast("string") for name, column in names.items()}
    joined = F.concat(F.lit("\n"), F.array_join(_NAMES, "\n"), F.lit("\n"))
    frame = frame.withColumns(attributes | {_JOINED: joined, "data": F.col("value")})
    frame = frame.withColumn(REASON, _problem(found))
    frame = frame.withColumn(CODE, _code())
    return frame.withColumn(REASON, _reason()).drop(_HEADERS, _NAMES, _VALUES, _JOINED)


def _header(name: str) -> Column:
    # Positions count from 1 and 0 means none: get gives null for -1.
    return F.get(F.col(_VALUES), (F.array_position(F.col(_NAMES), name) - 1).cast("int"))


def _code() -> Column:
    """Ask in the order of the binding: structured or not, ours or not, valid or not."""
    media, joined = F.col("datacontenttype"), F.col(_JOINED)
    media = F.coalesce(media, F.lit(""))
    structured = media.rlike(rf"(?i)\A{CLOUDEVENTS}")
    return (
        F.when(_is_odd(joined, media), "undecided")
        # Kafka 1.3: no batches; 3: a format that nobody registered; 3.3.2: structured mode has a value.
        .when(media.rlike(rf"(?i)\A{BATCH}"), "invalid-event")
        .when(structured & ~media.rlike(_KNOWN_FORMAT), "unsupported-format")
        .when(structured & F.col("value").isNull(), "invalid-event")
        .when(structured, "undecided")
        .when(F.col(REASON).isNull(), None)
        .when(_some_null(), "undecided")
        .when(joined.rlike(_CLAIMS), "invalid-event")
        .otherwise("not-a-cloudevent")
    )


def _is_odd(joined: Column, media: Column) -> Column:
    breaks = F.char_length(joined) - F.char_length(F.translate(joined, "\n", ""))
    return (
        (F.octet_length(joined) > _LONGEST_NAMES)
        | (breaks != F.greatest(F.size(_NAMES), F.lit(1)) + 1)
        | (F.char_length(media) > LONGEST_MEDIA_TYPE)
        | joined.rlike(_TWO_CONTENT_TYPES)
    )


def _some_null() -> Column:
    """Tell whether a header is null: then a join that writes nulls as a letter is longer than one without."""
    texts = F.col(_VALUES).cast("array<string>")
    return F.octet_length(F.array_join(texts, ",", "x")) > F.octet_length(F.array_join(texts, ","))


def _problem(found: Binding) -> Column:
    """Give the first rule that the headers break as binary mode; null: none."""
    return F.coalesce(*(F.when(test, F.lit(text)) for test, text in _tests(found)))


def _tests(found: Binding) -> Iterator[tuple[Column, str]]:
    joined = F.col(_JOINED)
    for name in REQUIRED:
        yield F.col(name).isNull(), f"{name} is missing"
    yield joined.rlike(_BAD_NAME), "a header has a name that no attribute can have"
    yield _is_repeated(joined), "a header is repeated"
    yield ~_sound_texts(), "an attribute is not UTF-8, or holds a character that CloudEvents forbids"
    for name in (*CORE, *found.columns):
        text = found.attribute(name)
        yield text.isNotNull() & ~is_legal(name, text), f"{name} is not legal"


def _is_repeated(joined: Column) -> Column:
    doubled = F.size(F.array_distinct(_NAMES)) < F.size(_NAMES)
    return F.when(doubled & (F.octet_length(joined) <= _LONGEST_NAMES), joined.rlike(_REPEATED)).otherwise(
        doubled
    )


def _sound_texts() -> Column:
    """Tell whether all attributes are legal text; foreign headers, which are bytes, are looked at last."""
    everything = F.array_join(F.col(_VALUES).cast("array<string>"), " ")
    own = F.filter(F.col(_HEADERS), lambda header: is_own(header["key"]))
    texts = F.transform(own, lambda header: header["value"].cast("string"))
    return F.when(_is_sound(everything), True).otherwise(_is_sound(F.array_join(texts, " ")))


def _is_sound(text: Column) -> Column:
    return F.is_valid_utf8(text) & ~text.rlike(ILLEGAL)


def _reason() -> Column:
    """Give a sentence for each code; what breaks a rule of binary mode has that rule already."""
    code, reason = F.col(CODE), F.when(F.col(CODE).isNotNull(), F.col(REASON))
    for known, text in _REASONS.items():
        reason = F.when(code == known, text).otherwise(reason)
    return F.coalesce(reason, F.when(code.isNotNull(), "the content type does not fit Kafka or the value"))
