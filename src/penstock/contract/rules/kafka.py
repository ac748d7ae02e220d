"""Rules of the Kafka bindings that concern more than one field: versions, registry, topic settings."""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

VENDOR_WITHOUT_URL = Rule(
    id="PK280",
    severity=Severity.ERROR,
    message="schemaRegistryVendor is given without schemaRegistryUrl",
    why="A vendor without an address names a registry that nobody can call.",
    fix="add schemaRegistryUrl, or remove schemaRegistryVendor",
    clause="Kafka bindings, Server Binding Object: MUST NOT be specified without schemaRegistryUrl",
)
NO_REGISTRY = Rule(
    id="PK281",
    severity=Severity.ERROR,
    message="{fields} given, but {servers} without schemaRegistryUrl",
    why="The fields tell how ids of a schema registry travel; on such a server there is no registry.",
    fix="add bindings.kafka.schemaRegistryUrl to the server, or let the channel name its servers",
    clause="Kafka bindings, Message Binding Object: MUST NOT be specified if schemaRegistryUrl is not "
    "specified at the Server level",
)
UNUSED_REGISTRY_FIELD = Rule(
    id="PK282",
    severity=Severity.WARNING,
    message="{field} is given on a message that no channel uses",
    why="Components have no effect until something refers to them, so nothing says which registry is meant.",
    fix="use the message in a channel, or remove it",
    clause="AsyncAPI 3, Components Object",
)
NO_SERVER = Rule(
    id="PK292",
    severity=Severity.WARNING,
    message="{fields} given, but the document defines no server",
    why="The fields tell how ids of a schema registry travel; which registry that is, a server would say.",
    fix="add a server with bindings.kafka.schemaRegistryUrl if this document is to be used by itself",
    clause="Kafka bindings, Message Binding Object: MUST NOT be specified if schemaRegistryUrl is not "
    "specified at the Server level",
)
NO_ID_LOCATION = Rule(
    id="PK299",
    severity=Severity.WARNING,
    message="message {message} is Avro beside a schema registry, and nothing says where its schema id is",
    why="It is read and written as bare Avro. A serializer of Confluent or Apicurio puts the id before it, "
    "and every record of that kind would be a dead letter.",
    fix="add bindings.kafka with schemaIdLocation: payload and schemaIdPayloadEncoding: confluent, or with "
    "schemaIdLocation: header; or x-penstock-schema-id-bytes: 0 to the message if there is no id",
    clause="Kafka bindings, Message Binding Object: schemaIdLocation",
)
LATEST_VERSION = Rule(
    id="PK283",
    severity=Severity.WARNING,
    message="bindingVersion 'latest' is read as {version}",
    why="What is latest changes; the next version of the binding would change the meaning of this document.",
    fix="write bindingVersion: '{version}'",
    clause="Kafka bindings: if omitted, latest MUST be assumed",
)
UNKNOWN_BINDING_VERSION = Rule(
    id="PK284",
    severity=Severity.ERROR,
    message="bindingVersion '{found}' of the {protocol} binding is not known",
    why="Its fields may mean something else, so the binding is not read at all.",
    fix="use one of {wanted}",
    clause="Kafka bindings 0.3.0 to 0.5.0, Pulsar bindings 0.1.0",
)
MIXED_VERSIONS = Rule(
    id="PK285",
    severity=Severity.INFO,
    message="the Kafka bindings of this document are written in versions {versions}",
    why="Each object is read by its own version, so the same field may be allowed here and refused there.",
    fix="use one version everywhere",
    clause="Kafka bindings: bindingVersion belongs to each object",
)
UNKNOWN_TOPIC_SETTING = Rule(
    id="PK286",
    severity=Severity.WARNING,
    message="{field} is not a topic setting that Kafka 4 knows",
    why="Additional settings are allowed in the document, but the broker would refuse this one when applied.",
    fix="correct the name, or remove it",
    clause="Kafka bindings, TopicConfiguration Object: optional additional properties",
)
EMPTY_CLEANUP = Rule(
    id="PK287",
    severity=Severity.WARNING,
    message="cleanup.policy is an empty list",
    why="What an empty policy means depends on the broker's version: nothing is cleaned, or it is refused.",
    fix="write [delete], [compact] or both",
    clause="Kafka bindings, TopicConfiguration Object",
)
REPEATED_CLEANUP = Rule(
    id="PK288",
    severity=Severity.WARNING,
    message="cleanup.policy names {found} more than once",
    why="The repetition has no effect; it is read once.",
    fix="name it once",
    clause="Kafka bindings, TopicConfiguration Object",
)
ENCODING_UNUSED = Rule(
    id="PK289",
    severity=Severity.WARNING,
    message="schemaIdPayloadEncoding has no effect, because schemaIdLocation is header",
    why="The encoding describes the bytes before the payload, and there are none when the id is in a header.",
    fix="remove schemaIdPayloadEncoding",
    clause="Kafka bindings, Message Binding Object: when schema id is encoded in payload",
)
WIDTH_UNCLEAR = Rule(
    id="PK290",
    severity=Severity.WARNING,
    message="schemaIdPayloadEncoding '{found}' does not say how many bytes the id has: {read_as}",
    why="Apicurio 2 and 3 use the words legacy and default for opposite widths, other words are free text; "
    "a reader that guesses wrong reads garbage.",
    fix="write '4' or '8', or x-penstock-schema-id-bytes on the message",
    clause="Kafka bindings, Message Binding Object: number of bytes or vendor specific values",
)
UNKNOWN_STRATEGY = Rule(
    id="PK291",
    severity=Severity.WARNING,
    message="the lookup strategy '{found}' is not known for {vendor}",
    why="Subjects cannot be named by it, so schemas of this message cannot be registered.",
    fix="use one of {wanted}",
    clause="Kafka bindings, Message Binding Object: freeform string",
)
NO_CONSTANT = Rule(
    id="PK264",
    severity=Severity.WARNING,
    message="no single {field} can be derived from its schema",
    why="A program that runs this operation must know the name; the schema allows many or says nothing.",
    fix="write {{type: string, const: <name>}}",
    clause="Kafka bindings, Operation Binding Object",
)
BINDING_OFF_PROTOCOL = Rule(
    id="PK242",
    severity=Severity.WARNING,
    message="a {protocol} binding is given, but {where} speaks {found}",
    why="The binding has no effect there; either the protocol or the binding is not what was meant.",
    fix="correct the protocol, or use the binding of {found}",
    clause="AsyncAPI 3, Server Bindings Object",
)

INSYNC_ABOVE_REPLICAS = Rule(
    id="PK263",
    severity=Severity.WARNING,
    message="min.insync.replicas is {found}, but the topic has replicas {replicas}{environment}",
    why="So many replicas can never be in sync: every write with acks=all is refused.",
    fix="lower min.insync.replicas to {replicas} or less, or raise replicas",
    clause="Apache Kafka, topic configuration min.insync.replicas",
)

RULES = (
    INSYNC_ABOVE_REPLICAS,
    BINDING_OFF_PROTOCOL,
    NO_CONSTANT,
    VENDOR_WITHOUT_URL,
    NO_REGISTRY,
    UNUSED_REGISTRY_FIELD,
    LATEST_VERSION,
    UNKNOWN_BINDING_VERSION,
    MIXED_VERSIONS,
    UNKNOWN_TOPIC_SETTING,
    EMPTY_CLEANUP,
    REPEATED_CLEANUP,
    ENCODING_UNUSED,
    WIDTH_UNCLEAR,
    UNKNOWN_STRATEGY,
    NO_SERVER,
    NO_ID_LOCATION,
)
