"""Event formats: a table from media type to format, which a user can extend.

>>> FORMATS.get("Application/CloudEvents+JSON; charset=UTF-8").name
'json'
"""

from __future__ import annotations

from penstock.events.formats.avro import AvroFormat
from penstock.events.formats.format import Format, Formats
from penstock.events.formats.json import JsonFormat
from penstock.events.formats.protobuf import ProtobufFormat

__all__ = ["FORMATS", "AvroFormat", "Format", "Formats", "JsonFormat", "ProtobufFormat"]

FORMATS = Formats(JsonFormat(), AvroFormat(), ProtobufFormat())
"""The formats that bindings use unless told otherwise."""
