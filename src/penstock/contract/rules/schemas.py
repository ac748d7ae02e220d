"""Rules about schemas and what must fit them: payloads, headers, keys, examples.

The checks compile JSON Schema draft 07 with jsonschema-rs and parse Avro with fastavro.
"""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

EXAMPLE_BREAKS_SCHEMA = Rule(
    id="PK270",
    severity=Severity.ERROR,
    message="example does not fit the {part} schema: {problem}",
    why="An example that breaks its own schema misleads everybody who copies it.",
    fix="correct the example or the schema",
    clause="AsyncAPI 3, Message Example Object",
)
BAD_JSON_SCHEMA = Rule(
    id="PK271",
    severity=Severity.ERROR,
    message="the schema is not valid JSON Schema draft 07: {problem}",
    why="No event can be checked against a schema that does not compile.",
    fix="correct the schema at this place",
    clause="AsyncAPI 3, Schema Object; JSON Schema draft 07",
)
BAD_AVRO = Rule(
    id="PK272",
    severity=Severity.ERROR,
    message="the schema is not valid Avro: {problem}",
    why="No event can be read or written with it. A type may be defined in another Avro file: in the same "
    "folder, or one to which the document refers.",
    fix="correct the schema",
    clause="Avro 1.9, Schema Declaration",
)
NO_FORMAT_VERSION = Rule(
    id="PK273",
    severity=Severity.WARNING,
    message="schemaFormat {found} has no version, it is read as {read_as}",
    why="Other tools treat a format without a version as unknown and do not look inside.",
    fix="write {read_as}",
    clause="AsyncAPI 3, Schema formats table",
)
UNKNOWN_FORMAT = Rule(
    id="PK274",
    severity=Severity.WARNING,
    message="schemaFormat {found} is not known, the schema is carried and not checked",
    why="Penstock reads AsyncAPI schemas, JSON Schema draft 07, Avro and Protobuf.",
    fix="use one of these formats if events must be checked",
    clause="AsyncAPI 3, Schema formats table",
)
HEADERS_NOT_OBJECT = Rule(
    id="PK275",
    severity=Severity.ERROR,
    message="the headers schema must describe an object",
    why="Headers are names with values; a schema of another type can never fit.",
    fix="write type: object and list the headers under properties",
    clause="AsyncAPI 3, Message Object: headers MUST be a map of key-value pairs",
)
PROTOBUF_NOT_TEXT = Rule(
    id="PK276",
    severity=Severity.ERROR,
    message="a Protobuf schema must be a text, here it is {found}",
    why="Protobuf definitions have no JSON form; the .proto source is written as one text.",
    fix="write the .proto source as a block text (schema: |)",
    clause="AsyncAPI 3, Multi Format Schema Object",
)

RULES = (
    EXAMPLE_BREAKS_SCHEMA,
    BAD_JSON_SCHEMA,
    BAD_AVRO,
    NO_FORMAT_VERSION,
    UNKNOWN_FORMAT,
    HEADERS_NOT_OBJECT,
    PROTOBUF_NOT_TEXT,
)
