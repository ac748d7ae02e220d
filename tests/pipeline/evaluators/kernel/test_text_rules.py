"""What the kernel is told about a text: the verdicts of `penstock.events`."""

from __future__ import annotations

import pytest

from penstock.pipeline.evaluators.kernel.text_rules import classify
from penstock.wire import routing_layout as at


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"application/json", at.J_LEGAL | at.J_JSON),
        (b"image/svg+JSON; v=1", at.J_LEGAL | at.J_JSON),
        (b"text/plain", at.J_LEGAL | at.J_TEXT),
        (b"text/plain; charset=iso-8859-1", at.J_LEGAL | at.J_CHARSET),
        (b"image/png", at.J_LEGAL),
        (b"application/cloudevents+json; charset=UTF-8", at.J_LEGAL | at.J_STRUCTURED),
        (b"application/cloudevents-batch+json", at.J_LEGAL | at.J_OTHER),
        (b"application/cloudevents+unknown", at.J_LEGAL | at.J_OTHER),
        (b"nonsense", 0),
        (b"text/\xff", 0),
    ],
)
def test_media_types(text: bytes, expected: int) -> None:
    assert classify(at.K_MEDIA_TYPE, text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "legal"),
    [
        (at.K_SOURCE, b"urn:a:b", True),
        (at.K_SOURCE, b"//host:80/p?q#f", True),
        (at.K_SOURCE, b"a b", False),
        (at.K_SCHEMA, b"https://x.example/s", True),
        (at.K_SCHEMA, b"/relative", False),
    ],
)
def test_references(kind: int, text: bytes, legal: bool) -> None:
    assert bool(classify(kind, text) & at.J_LEGAL) is legal
