"""The rules of pipeline.yaml, as rows like those of the contract."""

from __future__ import annotations

from penstock.contract.finding import Rule, Severity

__all__ = ["RULES"]


def _rule(id: str, message: str, why: str, fix: str, severity: Severity = Severity.ERROR) -> Rule:
    return Rule(id=id, severity=severity, message=message, why=why, fix=fix, clause="pipeline.yaml")


NO_CONTRACT = _rule(
    "PK510",
    "the contract {path} cannot be used: {problem}",
    "Routes go from one operation of a contract to others; without it they mean nothing.",
    "name an AsyncAPI document that penstock validate finds no error in",
)
UNKNOWN_OPERATION = _rule(
    "PK511",
    "the contract has no operation {operation}",
    "A route receives and sends by operations of the contract.",
    "use one of: {known}",
)
WRONG_ACTION = _rule(
    "PK512",
    "operation {operation} has the action {found}, here {wanted} is needed",
    "A route receives by an operation with action receive and sends by one with action send.",
    "use one of: {known}",
)
BAD_EXPRESSION = _rule(
    "PK513",
    "{field}: {problem}",
    "The expression is checked before anything runs, by the rules of docs/pipeline/expressions.md.",
    "correct the expression",
)
TWO_CONDITIONS = _rule(
    "PK514",
    "a route has one condition, here {found} stand side by side",
    "where, filter, cesql and sql each say which events the route takes.",
    "keep one of them; where can say what the others say",
)
LOOP = _rule(
    "PK515",
    "route {route} {kind} to {topic}, which leads back to what it receives from: {circle}",
    "A record would travel in a circle for ever; a dead letter grows with each round.",
    "name another channel in one of these places",
)
NO_DEAD_LETTERS = _rule(
    "PK516",
    "records of {channel} that cannot be processed have nowhere to go",
    "Nothing is dropped silently: what fails before or in a route is written to a dead-letter channel.",
    "give the route delivery.deadLetterSink, or the channel x-penstock-dead-letter in the contract",
)
UNKNOWN_CHANNEL = _rule(
    "PK517",
    "the contract has no channel {channel}",
    "Dead letters and unknown formats go to a channel of the contract.",
    "use one of: {known}",
)
BAD_FUNCTION = _rule(
    "PK518",
    "{name} does not name a function",
    "A function is named by its module and its name, as Python imports it.",
    "write it as package.module:function",
)
BAD_DURATION = _rule(
    "PK519",
    "{found} is not a duration",
    "Durations are written as in ISO 8601, so that they mean the same everywhere.",
    "write it like PT0.2S, PT5S or PT1M",
)
CONTRADICTION = _rule(
    "PK520",
    "route {route}: {problem}",
    "The parts of a route contradict each other or the rules of CloudEvents.",
    "change one of them",
)
NO_ROUTES = _rule(
    "PK521",
    "the pipeline has no routes",
    "A pipeline without routes would read nothing and write nothing.",
    "add a route under routes",
)
DISAGREEMENT = _rule(
    "PK522",
    "route {route} says {field}: {found}, another route of {topic} says {other}",
    "A topic is read and held against the contract once, before any route.",
    "say it in one of the routes, or the same in all",
)
NO_TARGET_FORMAT = _rule(
    "PK523",
    "operation {operation} cannot be written: {problem}",
    "What a route writes is what the contract says of the target's messages.",
    "change the message in the contract, or send by another operation",
)
NO_FUNCTION = _rule(
    "PK524",
    "{name} cannot be called: {problem}",
    "A function is looked for in the folder of the pipeline and on PYTHONPATH; its file is read, not run.",
    "define the function there, or correct its name",
)
DOUBTFUL_SQL = _rule(
    "PK525",
    "sql: {problem}",
    "What stands under sql is read by Spark itself when the job starts; it does not look like SQL of Spark.",
    "correct the expression, or leave it if Spark takes it",
    Severity.WARNING,
)
BAD_NAME = _rule(
    "PK526",
    "{found} is no name of a pipeline",
    "The name is part of the names of consumer groups.",
    "use at most 100 letters, digits, dots, hyphens and underscores",
)
NO_FILE_SYSTEM = _rule(
    "PK527",
    "checkpoint: {found} is on no file system that Spark could write",
    "A checkpoint is a folder: local or mounted, or on a file system of Hadoop.",
    "name a folder without a scheme, or one like hdfs://host:8020/folder or s3a://bucket/folder",
)
NO_KEY = _rule(
    "PK528",
    "route {route} may send records without a key to {topic}, which is compacted",
    "A compacted topic takes no record without a key: each would be a dead letter with the code no-key.",
    "give the route a key, such as key: subject; or declare the key of the messages that it receives",
    Severity.WARNING,
)
SMALLER_TARGET = _rule(
    "PK529",
    "route {route}: {topic} takes {found} bytes at a time, {source} takes {other}",
    "A record that is larger than max.message.bytes of the target is a dead letter with the code too-large.",
    "give the target at least as much as the source",
    Severity.WARNING,
)
TIGHT_TIME = _rule(
    "PK530",
    "route {route}: {topic} has {setting}: {found}",
    "A record has the time at which it is written. If the broker's clock is further away than that, or a "
    "batch waits longer, it is a dead letter with the code timestamp-out-of-bounds.",
    "allow at least {wanted} ms, or set message.timestamp.type: LogAppendTime",
    Severity.WARNING,
)
COMPACTED_LETTERS = _rule(
    "PK531",
    "the dead letters of route {route} go to channel {channel}, which is compacted",
    "A letter has the key of its record: of two letters with one key the older one is removed.",
    "use a channel with cleanup.policy: [delete]",
    Severity.WARNING,
)
NO_KERBEROS = _rule(
    "PK532",
    "route {route}: server {server} wants GSSAPI (Kerberos), which no engine speaks to Kafka",
    "The login would fail when the job starts; HDFS and YARN with Kerberos are reached by Spark itself.",
    "use SCRAM, PLAIN, OAUTHBEARER or client certificates: in the contract, or for this server in a context",
)
NO_CONNECT = _rule(
    "PK533",
    "a pipeline does not run over Spark Connect: its queries need the driver's own Java",
    "SPARK_REMOTE, SPARK_API_MODE or SPARK_CONNECT_MODE_ENABLED asks for Spark Connect, whose sessions have "
    "no Java that a query could be planned in.",
    "unset these variables and name a cluster with --master, or run --engine loop, which needs no Spark",
    Severity.WARNING,
)
FORMER_ENGINE = _rule(
    "PK534",
    "engine: {found} means spark now",
    "Every route runs on one path, in Spark's tasks or in a loop without Spark; which evaluator decides its "
    "records, kernel or reference, is found by itself, and penstock routes --explain shows it.",
    "write engine: spark, or leave it out",
    Severity.INFO,
)

RULES = (
    NO_CONTRACT,
    UNKNOWN_OPERATION,
    WRONG_ACTION,
    BAD_EXPRESSION,
    TWO_CONDITIONS,
    LOOP,
    NO_DEAD_LETTERS,
    UNKNOWN_CHANNEL,
    BAD_FUNCTION,
    BAD_DURATION,
    CONTRADICTION,
    NO_ROUTES,
    DISAGREEMENT,
    NO_TARGET_FORMAT,
    NO_FUNCTION,
    DOUBTFUL_SQL,
    BAD_NAME,
    NO_FILE_SYSTEM,
    NO_KEY,
    SMALLER_TARGET,
    TIGHT_TIME,
    COMPACTED_LETTERS,
    NO_KERBEROS,
    NO_CONNECT,
    FORMER_ENGINE,
)
