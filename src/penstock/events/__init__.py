"""What an event is: CloudEvents in every binding, mode and format, and the Cloud-Native event API."""

from __future__ import annotations

from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Absent, Data, Json, absent
from penstock.events.reading import Finding, Level, Mode, Reading, Severity, Verdict
from penstock.events.types import AttributeType, AttributeValue

__all__ = [
    "Absent",
    "AttributeType",
    "AttributeValue",
    "CloudEvent",
    "Data",
    "Finding",
    "Json",
    "Level",
    "Mode",
    "Reading",
    "Severity",
    "Verdict",
    "absent",
]
