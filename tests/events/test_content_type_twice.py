"""`ce_datacontenttype` beside `content-type`, as one SDK writes it: equal is fine, different is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.errors import InvalidEvent
from penstock.events import CloudEvent, HttpBinding, KafkaBinding, Level, PulsarBinding
from penstock.events.bindings.http import HttpMessage
from penstock.record import KafkaRecord, PulsarMessage

Pairs = list[tuple[str, str]]
REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def kafka(*more: tuple[str, str], level: Level | None = None) -> CloudEvent:
    pairs = [*((f"ce_{name}", text) for name, text in REQUIRED.items()), *more, ("app", "x")]
    record = KafkaRecord(value=b"{}", headers=tuple((name, text.encode()) for name, text in pairs))
    if level is None:
        return KafkaBinding().decode(record)
    event = KafkaBinding().read(record, level).event
    assert event is not None
    return event


def pulsar(*more: tuple[str, str]) -> CloudEvent:
    pairs = [*((f"ce_{name}", text) for name, text in REQUIRED.items()), *more]
    return PulsarBinding().decode(PulsarMessage(payload=b"{}", properties=tuple(pairs)))


def http(*more: tuple[str, str]) -> CloudEvent:
    pairs = [*((f"ce-{name}", text) for name, text in REQUIRED.items()), *more]
    headers = tuple((name.replace("ce_", "ce-"), text) for name, text in pairs)
    return HttpBinding().decode(HttpMessage(headers=headers, body=b"{}"))


def strictly(*more: tuple[str, str]) -> CloudEvent:
    return kafka(*more, level=Level.STRICT)


READERS = [kafka, strictly, pulsar, http]
Reader = Callable[..., CloudEvent]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("again", ["application/json", "Application/JSON"])
def test_the_same_media_type_twice_is_an_event(read: Reader, again: str, turned: bool) -> None:
    pairs = [("content-type", "application/json"), ("ce_datacontenttype", again)]
    for _ in range(40):  # often enough for what is learnt about shapes of headers
        event = read(*(reversed(pairs) if turned else pairs))
        assert event.attributes == {**REQUIRED, "datacontenttype": "application/json"}
        assert event.data == b"{}"


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("turned", [False, True])
def test_two_media_types_are_refused(read: Reader, turned: bool) -> None:
    pairs = [("content-type", "application/json"), ("ce_datacontenttype", "text/plain")]
    with pytest.raises(InvalidEvent, match="datacontenttype") as refused:
        read(*(reversed(pairs) if turned else pairs))
    assert refused.value.attribute == "datacontenttype"


@pytest.mark.parametrize("turned", [False, True])
def test_lenient_takes_content_type_of_two(turned: bool) -> None:
    pairs = [("content-type", "application/json"), ("ce_datacontenttype", "text/plain")]
    event = kafka(*(reversed(pairs) if turned else pairs), level=Level.LENIENT)
    assert event.datacontenttype == "application/json"


def test_alone_it_is_refused_and_lenient_takes_it() -> None:
    alone = ("ce_datacontenttype", "text/plain")
    with pytest.raises(InvalidEvent, match="stands for content-type") as refused:
        kafka(alone)
    assert "send it as content-type" in str(refused.value)
    assert kafka(alone, level=Level.LENIENT).datacontenttype == "text/plain"


def test_three_times_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="is repeated"):
        kafka(*[("content-type", "text/plain"), *[("ce_datacontenttype", "text/plain")] * 2])


def test_dashed_names_of_pulsar_with_content_type() -> None:
    own = tuple((f"CE-{name}", text) for name, text in REQUIRED.items())
    both = (("CE-DataContentType", "text/plain"), ("content-type", "text/plain"))
    assert PulsarBinding().decode(PulsarMessage(properties=own + both)).datacontenttype == "text/plain"
    other = (("CE-DataContentType", "text/html"), ("content-type", "text/plain"))
    with pytest.raises(InvalidEvent, match="differs from content-type"):
        PulsarBinding().decode(PulsarMessage(properties=own + other))
