"""Every exception Penstock raises on purpose, as one tree; who is at fault is in the type.

PenstockError              what happened, where, why, and the next step
├── UsageError             the caller: a wrong word, flag or argument             exit 2
│   ├── ConfigError        a setting in penstock.yaml, the environment or a flag
│   ├── InvalidExpression  a filter, or an expression of it, that breaks its language
│   └── MissingExtra       a part of Penstock that is not installed
├── ContractError          the author of the AsyncAPI document
├── EventError             the producer of an event
│   ├── NotACloudEvent     the record does not claim to be a CloudEvent
│   ├── InvalidEvent       it claims to be one and breaks a rule
│   ├── UnsupportedFormat  it is in an event format that nobody registered here
│   └── CannotEncode       the event has something the target cannot carry
├── PipelineError          a route or pipeline that cannot be
│   ├── UnknownSchemas     a batch names schemas that the driver has to look up first
│   ├── UnsupportedPlan    an engine cannot do it; says which node stops it
│   └── JobFailed          a job that was running had to stop
├── WireError              bytes on a socket that break their protocol
│   └── RecordsError       records in a batch that cannot be taken; has Kafka's error code
├── ApiError               a Kafka client asked the gateway for what it does not get; has Kafka's error code
├── ClusterError           a broker or registry said no
│   ├── AccessDenied       ... because our role may not, or is nobody's
│   │   ├── PulsarDenied       a Pulsar broker; a PulsarRefused, too
│   │   └── KafkaDenied        a Kafka broker; a KafkaRefused, too
│   ├── TlsFailed          ... or there was no TLS with it: a certificate that does not fit
│   ├── RecordRefused      a topic does not take a record
│   ├── PulsarRefused      a Pulsar broker, with one of its own error codes
│   ├── KafkaRefused       a Kafka broker, with one of its own error codes
│   │   ├── OffsetOutOfRange   the log does not have the offset that was asked for
│   │   ├── MessageTooLarge    the topic does not take a batch of this size
│   │   └── ProducerFenced     a newer producer has the same transactional id
│   └── Unreachable        ... or said nothing                                    exit 5
├── Refused                we will not do it: dangerous                           exit 4
│   └── CheckpointMismatch the checkpoint belongs to something else
├── MachineError           this machine: Java, disk, ports, network, files
│   ├── JavaError          no Java that fits
│   ├── ArtifactError      a jar that is missing or corrupt
│   ├── PortTaken          somebody else listens there
│   ├── DiskSpaceError     not enough room to start safely
│   └── StartupError       a server did not become ready
└── InternalError          us: a bug in Penstock

Foreign exceptions are translated at the edge of the layer that meets them, with `raise ... from`.
Codes are stable: PK0xx usage, PK1xx machine, PK2xx contract, PK3xx events, PK4xx clusters,
PK5xx pipeline, PK6xx gateway, PK9xx us.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

__all__ = [
    "AccessDenied",
    "ApiError",
    "ArtifactError",
    "CannotEncode",
    "CheckpointMismatch",
    "ClusterError",
    "ConfigError",
    "ContractError",
    "DiskSpaceError",
    "EventError",
    "InternalError",
    "InvalidEvent",
    "InvalidExpression",
    "JavaError",
    "JobFailed",
    "KafkaDenied",
    "KafkaRefused",
    "MachineError",
    "MessageTooLarge",
    "MissingExtra",
    "NotACloudEvent",
    "OffsetOutOfRange",
    "PenstockError",
    "PipelineError",
    "PortTaken",
    "ProducerFenced",
    "PulsarDenied",
    "PulsarRefused",
    "RecordRefused",
    "RecordsError",
    "Refused",
    "StartupError",
    "TlsFailed",
    "UnknownSchemas",
    "Unreachable",
    "UnsupportedFormat",
    "UnsupportedPlan",
    "UsageError",
    "WireError",
]


class PenstockError(Exception):
    """Something Penstock foresaw; `what` is one line, the rest is for the person who must act."""

    code: ClassVar[str] = "PK000"
    exit_code: ClassVar[int] = 1

    def __init__(
        self, what: str, *, where: str | None = None, why: str | None = None, next: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.next = next

    def __reduce__(self) -> tuple[object, ...]:
        """Survive a pickle, whatever arguments a subclass takes: errors come back from Spark's workers."""
        return _restore, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        """Give the whole story on one line, for logs; the command line prints it as a block."""
        parts = [self.what]
        parts += [f"at {self.where}"] if self.where else []
        parts += [self.why] if self.why else []
        parts += [f"next: {self.next}"] if self.next else []
        return "; ".join(parts)


def _restore(kind: type[PenstockError], args: tuple[object, ...], fields: dict[str, object]) -> PenstockError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class UsageError(PenstockError):
    """The caller used a wrong word, flag or argument."""

    code = "PK001"
    exit_code = 2


class ConfigError(UsageError):
    """A setting in penstock.yaml, in the environment or in a flag cannot be used."""

    code = "PK002"


class MissingExtra(UsageError):
    """A part of Penstock that this installation does not have."""

    code = "PK003"

    def __init__(self, extra: str, module: str, *, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the Python package {module}, which is not installed",
            next=f"pip install 'penstock[{extra}]'",
        )
        self.extra = extra
        self.module = module


class InvalidExpression(UsageError):
    """A filter or an expression breaks the rules of its language; `position` counts characters from 0."""

    code = "PK005"

    def __init__(
        self,
        what: str,
        *,
        path: str | None = None,
        position: int | None = None,
        why: str | None = None,
        next: str | None = None,
    ) -> None:
        column = None if position is None else f"column {position + 1}"
        super().__init__(what, where=", ".join(filter(None, (path, column))) or None, why=why, next=next)
        self.path = path
        self.position = position


class ContractError(PenstockError):
    """The AsyncAPI document says something that cannot be."""

    code = "PK200"


class EventError(PenstockError):
    """The producer of an event broke a rule of CloudEvents or of its binding."""

    code = "PK300"


class NotACloudEvent(EventError):
    """The record does not claim to be a CloudEvent: no marker of any mode is there."""

    code = "PK301"


class InvalidEvent(EventError):
    """The record claims to be a CloudEvent and breaks a rule; attribute, clause and fix say which."""

    code = "PK302"

    def __init__(
        self, what: str, *, attribute: str | None = None, clause: str | None = None, fix: str | None = None
    ) -> None:
        super().__init__(what, where=attribute, why=clause, next=fix)
        self.attribute = attribute
        self.clause = clause
        self.fix = fix


class UnsupportedFormat(EventError):
    """The event is in a format that nobody registered; `record` is what came, to be forwarded as it is."""

    code = "PK303"

    def __init__(self, media_type: str, *, record: object = None, next: str | None = None) -> None:
        super().__init__(
            f"no event format is registered for {media_type}",
            next=next or "register a format for it, or forward the record unchanged",
        )
        self.media_type = media_type
        self.record = record


class CannotEncode(EventError):
    """The event holds something that the chosen binding, mode or format cannot carry."""

    code = "PK304"


class PipelineError(PenstockError):
    """The author of a pipeline asks for a route that cannot be."""

    code = "PK500"


class UnsupportedPlan(PipelineError):
    """An engine cannot do a plan exactly; `stops` are the parts that stop it, as text."""

    code = "PK501"

    def __init__(self, engine: str, stops: tuple[str, ...]) -> None:
        super().__init__(
            f"{engine} cannot do this plan",
            why="; ".join(stops),
            next="use another engine, or write the expression without that part",
        )
        self.engine = engine
        self.stops = stops


class JobFailed(PipelineError):
    """A job that was running had to stop: a topic, a cluster or a worker failed for good."""

    code = "PK503"


class UnknownSchemas(PipelineError):
    """A batch names schemas by ids that nobody has looked up yet; `tokens` are those ids as text."""

    code = "PK504"

    def __init__(self, operation: str, tokens: Iterable[str]) -> None:
        self.operation = operation
        self.tokens = tuple(sorted(tokens)[:100])
        super().__init__(
            f"a batch names schemas that are not known yet <schemas of {operation}: {','.join(self.tokens)}>",
            next="the job looks them up in the registry and runs the batch again",
        )


class WireError(PenstockError):
    """Bytes from a socket or a log break the rules of their protocol."""

    code = "PK410"


class RecordsError(WireError):
    """Records in a Kafka batch cannot be taken; `error_code` is the number that answers the client."""

    code = "PK411"

    def __init__(
        self, what: str, *, error_code: int, where: str | None = None, why: str | None = None
    ) -> None:
        super().__init__(what, where=where, why=why)
        self.error_code = error_code


class ApiError(PenstockError):
    """A Kafka client asked the gateway for something that it does not get; `error_code` is Kafka's."""

    code = "PK600"

    def __init__(self, what: str, *, error_code: int) -> None:
        super().__init__(what)
        self.error_code = error_code


class ClusterError(PenstockError):
    """A broker or registry refused what was asked of it."""

    code = "PK400"


class AccessDenied(ClusterError):
    """A cluster knows who asked, or does not, and does not let them."""

    code = "PK407"


class TlsFailed(ClusterError):
    """There is no TLS with a server: its certificate does not fit, or one side does not speak TLS."""

    code = "PK408"


class RecordRefused(ClusterError):
    """A topic does not take a record, whoever sends it again; `record` is that one."""

    code = "PK409"

    def __init__(self, cause: ClusterError, record: object, *, next: str | None = None) -> None:
        super().__init__(cause.what, where=cause.where, why=cause.why, next=next or cause.next)
        self.record = record


class PulsarRefused(ClusterError):
    """A Pulsar broker refused; `server_error` is its code, `retriable` whether waiting can help."""

    code = "PK402"

    def __init__(
        self,
        what: str,
        *,
        server_error: int,
        retriable: bool,
        where: str | None = None,
        why: str | None = None,
        next: str | None = None,
    ) -> None:
        super().__init__(what, where=where, why=why, next=next)
        self.server_error = server_error
        self.retriable = retriable


class PulsarDenied(AccessDenied, PulsarRefused):
    """A Pulsar broker does not know who asked, or does not let them."""


class KafkaRefused(ClusterError):
    """A Kafka broker refused; `error_code` is its number, `retriable` whether waiting can help."""

    code = "PK403"

    def __init__(
        self,
        what: str,
        *,
        error_code: int,
        retriable: bool = False,
        where: str | None = None,
        why: str | None = None,
        next: str | None = None,
    ) -> None:
        super().__init__(what, where=where, why=why, next=next)
        self.error_code = error_code
        self.retriable = retriable


class KafkaDenied(AccessDenied, KafkaRefused):
    """A Kafka broker does not know who asked, or does not let them."""


class OffsetOutOfRange(KafkaRefused):
    """A log does not have an offset any more, or not yet; it has `log_start` to `log_end`."""

    code = "PK404"

    def __init__(
        self, topic: str, partition: int, *, offset: int, log_start: int, log_end: int, error_code: int = 1
    ) -> None:
        super().__init__(
            f"offset {offset} is not in the log, which has {log_start} to {log_end}",
            error_code=error_code,
            where=f"{topic}-{partition}",
            next="go on at one of its ends, if the records between may be lost",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


class MessageTooLarge(KafkaRefused):
    """A topic does not take a batch of this size."""

    code = "PK405"


class ProducerFenced(KafkaRefused):
    """A newer producer has the same transactional id: this one must stop and write no more."""

    code = "PK406"


class Unreachable(ClusterError):
    """A broker or registry did not answer."""

    code = "PK401"
    exit_code = 5


class Refused(PenstockError):
    """Penstock will not do this unless the dangerous part is allowed by name."""

    code = "PK004"
    exit_code = 4


class CheckpointMismatch(Refused):
    """A checkpoint of another topic, cluster or engine: to go on from it would skip or repeat records."""

    code = "PK502"


class MachineError(PenstockError):
    """Something about this machine: Java, disk, ports, network, files."""

    code = "PK100"


class JavaError(MachineError):
    """No Java that fits was found, or the one named does not fit."""

    code = "PK101"


class ArtifactError(MachineError):
    """A jar of a lock is missing or is not what the lock says."""

    code = "PK102"


class PortTaken(MachineError):
    """A fixed port is in use by somebody else."""

    code = "PK103"


class DiskSpaceError(MachineError):
    """Too little free disk to start a server that would turn read-only or lose data."""

    code = "PK104"


class StartupError(MachineError):
    """A server did not become ready; its last log lines are in `why`."""

    code = "PK105"


class InternalError(PenstockError):
    """A bug in Penstock itself."""

    code = "PK900"
