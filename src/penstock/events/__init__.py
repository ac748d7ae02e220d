"""What an event is: CloudEvents in every binding, mode and format, and the Cloud-Native event API."""

from __future__ import annotations

from penstock.events.batch import EventBatch
from penstock.events.bindings.http import HttpBinding, HttpMessage
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.bindings.key import KeyMapper, partitionkey
from penstock.events.bindings.pulsar import Profile, PulsarBinding, Values
from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Absent, Data, Json, absent
from penstock.events.event import Event
from penstock.events.event_type import EventType
from penstock.events.formats import FORMATS, Format, Formats
from penstock.events.outcomes import Dead, Drop, Emit, Retry
from penstock.events.reading import Finding, Level, Mode, Reading, Severity, Verdict
from penstock.events.types import AttributeType, AttributeValue

__all__ = [
    "FORMATS",
    "Absent",
    "AttributeType",
    "AttributeValue",
    "CloudEvent",
    "Data",
    "Dead",
    "Drop",
    "Emit",
    "Event",
    "EventBatch",
    "EventType",
    "Finding",
    "Format",
    "Formats",
    "HttpBinding",
    "HttpMessage",
    "Json",
    "KafkaBinding",
    "KeyMapper",
    "Level",
    "Mode",
    "Profile",
    "PulsarBinding",
    "Reading",
    "Retry",
    "Severity",
    "Values",
    "Verdict",
    "absent",
    "partitionkey",
]
