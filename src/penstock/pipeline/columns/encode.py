"""Event columns to the value and headers of a Kafka record, in both modes (spec 000, JSON format).

Data is spliced into JSON as it came only where its text was read as JSON to the last byte; any other data is
a string or base64, so what is written is always JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.events.formats import FORMATS
from penstock.events.headers import CONTENT_TYPE, PREFIX, header_of
from penstock.events.rules import CORE
from penstock.pipeline.columns.base64 import base64_text
from penstock.pipeline.columns.binding import Binding
from penstock.pipeline.columns.decode import is_own
from penstock.pipeline.columns.jsontext import says_json

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Written", "binary", "structured"]

Attributes = Mapping[str, "Column"]
# media.py: types of characters, and the charsets in which they are written.
_TEXT: Final = r"(?i)\A(?:text/|[^;]*(?:[+/]xml|/javascript|/x-www-form-urlencoded|[+/]yaml)[ \t]*(?:;|\z))"
_CHARSET: Final = r""";[ \t]*(?i:charset)="?([!#$%&'*+\-.0-9A-Z^_`a-z{|}~]+)"?"""
_ASCII: Final = r"\A[\x00-\x7f]*+\z"


@dataclass(frozen=True, slots=True)
class Written:
    """The parts of a record that an event becomes; its key is the route's."""

    value: Column
    headers: Column


def binary(attributes: Attributes, binding: Binding) -> Written:
    """Write binary mode; what the route does not know of is passed on from the record's headers."""
    rest = F.filter(_headers(), lambda header: _is_rest(header, attributes) | ~is_own(header["key"]))
    return Written(F.col(binding.data), F.concat(_own(attributes), rest))


def _headers() -> Column:
    return F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))


def _own(attributes: Attributes) -> Column:
    pairs = ((header_of(name), attributes[name]) for name in _in_order(attributes))
    return F.array_compact(F.array(*(F.when(text.isNotNull(), _pair(name, text)) for name, text in pairs)))


def _in_order(names: Iterable[str]) -> list[str]:
    """Give core first, then by name, as every engine writes them."""
    return [name for name in CORE if name in names] + sorted(name for name in names if name not in CORE)


def _pair(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))


def _is_rest(header: Column, attributes: Attributes) -> Column:
    """Tell whether a header is an attribute that the route does not know of; a null one is absent."""
    known = [header_of(name) for name in attributes]
    return is_own(header["key"]) & ~header["key"].isin(known) & header["value"].isNotNull()


def structured(attributes: Attributes, binding: Binding) -> Written:
    """Write the JSON format; `unreadable` of the binding must be known for every event."""
    marker = _pair(CONTENT_TYPE, F.lit(FORMATS.named("json").media_type))
    foreign = F.filter(_headers(), lambda header: ~is_own(header["key"]))
    fields = (attributes[name].alias(name) for name in _in_order(attributes))
    # to_json leaves nulls out: an attribute that is not there is not written.
    head = F.to_json(F.struct(*fields))
    head = F.substring(head, F.lit(1), F.char_length(head) - 1)
    value = F.concat(head, _rest_members(attributes), _data_member(binding, attributes), F.lit("}"))
    return Written(value.cast("binary"), F.concat(F.array(marker), foreign))


def _rest_members(attributes: Attributes) -> Column:
    rest = F.filter(_headers(), lambda header: _is_rest(header, attributes))
    members = F.transform(rest, _member)
    return F.array_join(members, "")


def _member(header: Column) -> Column:
    # The name of an attribute has letters and digits only.
    name = F.substring(header["key"], len(PREFIX) + 1, 2**31 - 1)
    return F.concat(F.lit(',"'), name, F.lit('":'), _quoted(header["value"].cast("string")))


def _quoted(text: Column) -> Column:
    """Write a text as a JSON string: the only element of an array, without its brackets."""
    array = F.to_json(F.array(text))
    return F.substring(array, F.lit(2), F.char_length(array) - 2)


def _data_member(binding: Binding, attributes: Attributes) -> Column:
    """Choose as the JSON format of `penstock.events`: JSON as it is, characters as a string, else base64."""
    data, media = F.col(binding.data), attributes["datacontenttype"]
    text = _characters(data, media)
    spliced = F.coalesce(says_json(media), F.lit(False)) & ~F.col(binding.unreadable)
    return (
        F.when(data.isNull(), "")
        .when(spliced, F.concat(F.lit(',"data":'), data.cast("string")))
        .when(text.isNotNull(), F.concat(F.lit(',"data":'), _quoted(text)))
        .otherwise(F.concat(F.lit(',"data_base64":"'), base64_text(data), F.lit('"')))
    )


def _characters(data: Column, media: Column) -> Column:
    """Give data of a text type as a string; null where it must be carried as bytes."""
    named = F.regexp_extract(media, _CHARSET, 1)
    charset = F.when(named == "", "utf-8").otherwise(F.lower(named))
    text = data.cast("string")
    readings = {
        "utf-8": F.when(F.is_valid_utf8(text), text),
        "utf8": F.when(F.is_valid_utf8(text), text),
        "us-ascii": F.when(text.rlike(_ASCII) & F.is_valid_utf8(text), text),
        "iso-8859-1": F.decode(data, "ISO-8859-1"),
    }
    chosen = reduce(
        lambda rest, known: F.when(charset == known, readings[known]).otherwise(rest),
        readings,
        F.lit(None).cast("string"),
    )
    return F.when(media.rlike(_TEXT), chosen)
