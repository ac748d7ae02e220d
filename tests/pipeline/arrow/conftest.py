"""Records as topics really hold them: mostly plain, some nasty."""

from __future__ import annotations

import json

import pytest
from hypothesis import strategies as st

from penstock.record import KafkaRecord

_NAMES = [
    *("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_subject", "content-type"),
    *("ce_dataschema", "ce_partitionkey", "ce_traceparent", "ce_n"),
    *("ce_", "ce_myExt", "ce_datacontenttype", "CE_ID", "Content-Type", "ce-id", "traceparent", "app", "app"),
]
_TEXTS = [
    *(b"1.0", b"0.3", b"1.1", b"", b"5", b"x", b"true", b"/shop/orders", b"urn:a:b", b"//host/p?q#f", b"a b"),
    *(
        b"2026-02-28T23:59:59Z",
        b"2026-02-29T00:00:00Z",
        b"2024-02-29T00:00:00+05:30",
        b"2026-01-01T24:00:00Z",
    ),
    *(b"2026-01-01t00:00:00.123456789z", b"1990-12-31T23:59:60Z", b"not a time"),
    *("grüße 😀".encode(), b'with "quotes" and \\', b"a\nb", b"\x7f", "\ufffe".encode(), b"\xff\xfe", None),
    *(
        b"application/json",
        b"Application/JSON; charset=utf-8",
        b"text/plain",
        b"application/octet-stream",
        b"nonsense",
    ),
    *(b"application/cloudevents+json", b"application/cloudevents-batch+json", b"application/cloudevents+xml"),
]
_PLAIN = {
    "ce_specversion": b"1.0",
    "ce_id": b"id-1",
    "ce_source": b"/shop",
    "ce_type": b"order.placed",
    "ce_time": b"2026-01-01T10:00:00.5Z",
    "ce_subject": b"customer",
    "content-type": b"application/json",
    "ce_traceparent": b"00-ab-cd-01",
}
_VALUES = [
    None,
    b"",
    b"{}",
    b'{"a": 1.10}',
    b'"text"',
    b"null",
    b"{",
    b'{"a":1,"a":2}',
    b"\xff",
    b"[1] garbage",
]


def _structured(members: dict[str, object]) -> bytes:
    return json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t"} | members).encode()


_EVENTS = [
    _structured({}),
    _structured({"data": {"a": 1}, "n": 5, "b": True, "time": "2026-01-01T00:00:00Z"}),
    _structured({"data": None, "datacontenttype": "application/json"}),
    _structured({"data_base64": "AAEC", "subject": 'quo"te'}),
    _structured({"data": "text", "datacontenttype": "text/plain"}),
    _structured({"n": 1.5}),
    b'{"specversion":"1.0","id":"1","id":"2","source":"/s","type":"t"}',
    b"{",
]


@st.composite
def _plain_record(draw: st.DrawFn) -> KafkaRecord:
    optional = [name for name in _PLAIN if name not in ("ce_specversion", "ce_id", "ce_source", "ce_type")]
    left_out = draw(st.sets(st.sampled_from(optional), max_size=3))
    headers = [(name, raw) for name, raw in _PLAIN.items() if name not in left_out]
    for _ in range(draw(st.integers(0, 2))):
        headers.insert(
            draw(st.integers(0, len(headers))), ("app", draw(st.sampled_from([b"x", b"\xff", None])))
        )
    if draw(st.booleans()):
        spot = draw(st.integers(0, len(headers) - 1))
        headers[spot] = (headers[spot][0], draw(st.sampled_from(_TEXTS)))
    return KafkaRecord(value=draw(st.sampled_from(_VALUES)), headers=tuple(headers))


_nasty_record = st.builds(
    KafkaRecord,
    value=st.sampled_from([*_VALUES, *_EVENTS]) | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(_TEXTS)), max_size=9).map(tuple),
)
_structured_record = st.builds(
    KafkaRecord,
    value=st.sampled_from([*_EVENTS, None]),
    headers=st.sampled_from(
        [
            (("content-type", b"application/cloudevents+json; charset=UTF-8"),),
            (("content-type", b"Application/CloudEvents+JSON"), ("ce_id", b"other"), ("app", b"x")),
        ]
    ),
)


@pytest.fixture(scope="session")
def batches() -> st.SearchStrategy[list[KafkaRecord]]:
    """Batches of records: plain, nasty and structured ones mixed."""
    return st.lists(_plain_record() | _nasty_record | _structured_record, min_size=1, max_size=40)
