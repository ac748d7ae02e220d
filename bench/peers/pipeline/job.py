"""The job of the bench as a lean Python user writes it: one record in, a structured event or nothing out."""

from __future__ import annotations

import os
from collections.abc import Iterable

import orjson

BOOTSTRAP = os.environ.get("BENCH_BOOTSTRAP", "")
SOURCE = os.environ.get("BENCH_SOURCE", "")
TARGET = os.environ.get("BENCH_TARGET", "")
GROUP = os.environ.get("BENCH_GROUP", "")
PRODUCER = {"linger.ms": 20, "batch.size": 262144, "acks": "all"}
HEADERS = [("content-type", b"application/cloudevents+json")]


def structured(headers: Iterable[tuple[str, bytes]], value: bytes) -> bytes | None:
    """Keep large orders, set the subject, write the JSON format."""
    event: dict[str, object] = {}
    for name, raw in headers:
        if name.startswith("ce_"):
            event[name[3:]] = raw.decode()
        elif name == "content-type":
            event["datacontenttype"] = raw.decode()
    if event.get("type") != "com.shop.order.placed":
        return None
    data = orjson.loads(value)
    if data["amount"] <= 100:
        return None
    event["subject"] = data["customer"]
    event["data"] = data
    return orjson.dumps(event)
