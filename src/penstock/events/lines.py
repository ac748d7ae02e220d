"""Records as JSON lines: a form for files and pipes in which every byte survives.

    Kafka   {"headers": [["ce_id", "1"], ...], "key": ..., "value": ..., "topic": "orders", "partition": 0,
             "offset": 0, "timestamp": 0}, the last four where they are known
    Pulsar  {"properties": [["CE-EventID", "1"], ...], "key": ..., "ordering_key": ..., "payload": ...}
    HTTP    {"headers": [["ce-id", "1"], ...], "body": ...}

Bytes are a string if they are UTF-8, {"base64": "..."} if not, null if there are none. The envelopes
of `kcat -J` are read too: their headers are one flat list of names and values, their value is `payload`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.errors import UsageError
from penstock.events.bindings.http import HttpMessage
from penstock.events.jsontext import loads
from penstock.events.types import read_base64, write_base64
from penstock.record import KafkaRecord, PulsarMessage

__all__ = ["read_http", "read_kafka", "read_line", "read_pulsar", "write_record"]

Line = Mapping[str, Any]
_ORIGIN = ("topic", "partition", "offset", "timestamp")
_BASE64 = "base64"
_INT32, _INT64 = range(2**31), range(2**63)


def read_line(text: bytes) -> Line:
    """Parse one line; UsageError if it is not a JSON object."""
    try:
        line = loads(text)
    except ValueError as exc:
        raise UsageError(f"not a JSON line: {exc}", next="give one JSON object per line") from exc
    if not isinstance(line, dict):
        raise UsageError("a line is not a JSON object", next="give one JSON object per line")
    return line


def read_kafka(line: Line) -> KafkaRecord:
    """Read a Kafka record, ours or kcat's.

    >>> read_kafka({"headers": ["ce_id", "1"], "payload": "x", "tstype": "create", "ts": 5}).headers
    (('ce_id', b'1'),)
    """
    value = line["payload"] if "payload" in line and "value" not in line else line.get("value")
    return KafkaRecord(
        value=_bytes(value, "value"),
        key=_bytes(line.get("key"), "key"),
        headers=tuple((name, _bytes(item, name)) for name, item in _pairs(line, "headers")),
        topic=_of(line, "topic", str),
        partition=_number(line, "partition", _INT32),
        offset=_number(line, "offset", _INT64),
        # -1 is Kafka's own word for a record without a time.
        timestamp=_number(line, "timestamp" if "timestamp" in line else "ts", range(-1, 2**63)),
    )


def read_pulsar(line: Line) -> PulsarMessage:
    """Read a Pulsar message."""
    key = line.get("key")
    flagged = isinstance(key, dict)
    if flagged:
        _bytes(key, "key")  # it is kept as base64, which it has to be
    return PulsarMessage(
        payload=_bytes(line.get("payload"), "payload"),
        key=key[_BASE64] if isinstance(key, dict) else _of(line, "key", str),
        key_is_base64=flagged,
        ordering_key=_bytes(line.get("ordering_key"), "ordering_key"),
        properties=tuple((name, _string(value, name)) for name, value in _pairs(line, "properties")),
        event_time=_number(line, "event_time", range(2**64)),
        topic=_of(line, "topic", str),
    )


def read_http(line: Line) -> HttpMessage:
    """Read an HTTP message."""
    headers = tuple((name, _string(value, name)) for name, value in _pairs(line, "headers"))
    return HttpMessage(headers=headers, body=_bytes(line.get("body"), "body"))


def write_record(record: KafkaRecord | PulsarMessage | HttpMessage) -> str:
    """Write any of the three as one line."""
    if isinstance(record, KafkaRecord):
        line: dict[str, Any] = {
            "headers": [[name, _json(value)] for name, value in record.headers],
            "key": _json(record.key),
            "value": _json(record.value),
        }
        line |= {name: getattr(record, name) for name in _ORIGIN if getattr(record, name) is not None}
    elif isinstance(record, PulsarMessage):
        line = {
            "properties": [list(item) for item in record.properties],
            "key": {_BASE64: record.key} if record.key_is_base64 else record.key,
            "payload": _json(record.payload),
        }
        if record.ordering_key is not None:
            line["ordering_key"] = _json(record.ordering_key)
        if record.event_time is not None:
            line["event_time"] = record.event_time
    else:
        line = {"headers": [list(item) for item in record.headers], "body": _json(record.body)}
    return json.dumps(line, ensure_ascii=False)


def _json(raw: bytes | None) -> Any:
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {_BASE64: write_base64(raw)}


def _bytes(value: Any, name: str) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    if isinstance(value, dict) and value.keys() == {_BASE64} and isinstance(value[_BASE64], str):
        try:
            return read_base64(value[_BASE64])
        except ValueError as exc:
            raise UsageError(f"{name}: {exc}") from exc
    raise UsageError(
        f"{name} is neither a string, null nor {{'base64': ...}}", next="quote JSON data as a string"
    )


def _string(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    raise UsageError(f"{name} is not a string")


def _pairs(line: Line, member: str) -> list[tuple[str, Any]]:
    """Read pairs from a list of pairs, from kcat's flat list, or from an object."""
    given = line.get(member)
    given = [] if given is None else given
    if isinstance(given, dict):
        return list(given.items())
    if isinstance(given, list) and given and all(item is None or isinstance(item, str) for item in given):
        given = [given[at : at + 2] for at in range(0, len(given), 2)]
    if not isinstance(given, list) or not all(map(_is_pair, given)):
        raise UsageError(f"{member} is not a list of [name, value] pairs")
    return [(name, value) for name, value in given]


def _is_pair(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)


def _of(line: Line, name: str, kind: type) -> Any:
    value = line.get(name)
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    raise UsageError(f"{name} is not a {kind.__name__}")


def _number(line: Line, name: str, bounds: range) -> int | None:
    value = _of(line, name, int)
    if value is None or value in bounds:
        return value  # type: ignore[no-any-return]
    raise UsageError(f"{name} is out of range", next=f"give {bounds.start} to {bounds.stop - 1}")
