"""The fast way of every decoder says what the thorough one says, also after it has met many valid events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CannotEncode, EventError, InvalidEvent
from penstock.events import CloudEvent, HttpBinding, HttpMessage, KafkaBinding, Level, Mode, PulsarBinding
from penstock.events.bindings import kafka as kafka_module
from penstock.events.bindings.pulsar import Profile
from penstock.events.formats import FORMATS
from penstock.record import KafkaRecord, PulsarMessage

EVENT = CloudEvent(
    {
        "id": "1",
        "source": "/shop",
        "type": "order.placed",
        "time": "2031-05-06T07:08:09Z",
        "datacontenttype": "application/json",
        "subject": "x",
        "hop": 5,
    },
    b'{"a": 1}',
)
NAMES = ["id", "source", "type", "time", "datacontenttype", "subject", "specversion", "hop", "Hop", "a-b", ""]
TEXTS = [
    "",
    "1",
    "1.0",
    "0.3",
    "1.1",
    "x y",
    "\n",
    "\ufffe",
    "\x7f",
    "%zz",
    "text/plain",
    "application/cloudevents+json",
    "application/cloudevents-batch+json",
    "nonsense",
    "2031-02-30T00:00:00Z",
    "2031-05-06T23:59:60Z",
    "0000-01-01T00:00:00Z",
    "99999",
    "ü",
]
TEXT = st.sampled_from(TEXTS) | st.text(max_size=3)


def outcome(work: Callable[[], CloudEvent]) -> object:
    """Give the event with its types, or the kind of the error."""
    try:
        event = work()
    except EventError as exc:
        return type(exc)
    return event.attributes, dict(event.types), event.data_bytes, type(event.data)


def thorough(read: Callable[[Any, Level], Any], given: Any) -> object:
    def work() -> CloudEvent:
        reading = read(given, Level.STRICT)
        assert reading.event is not None
        return reading.event

    return outcome(work)


def pairs_with_one_thing_wrong(own: tuple[tuple[str, Any], ...], wrap: Callable[[str], Any]) -> Any:
    """Change, remove, repeat, rename or add one pair."""
    at = st.integers(0, len(own) - 1)
    values = TEXT.map(wrap)

    def changed(n: int, value: Any) -> Any:
        return (*own[:n], (own[n][0], value), *own[n + 1 :])

    def repeated(n: int, value: Any) -> Any:
        return (*own, (own[n][0], value))

    prefix = own[0][0].removesuffix("id").removesuffix("ID").removesuffix("Event")
    names = st.sampled_from(NAMES).map(lambda name: prefix + name) | st.sampled_from(
        ["content-type", "app", "ce_", "CE-", "Content-Type", "ce_ID"]
    )
    return st.one_of(
        st.builds(changed, at, values),
        at.map(lambda n: own[:n] + own[n + 1 :]),
        at.map(lambda n: (*own, own[n])),
        st.builds(repeated, at, values),
        st.builds(lambda n, name: (*own[:n], (name, own[n][1]), *own[n + 1 :]), at, names),
        st.builds(lambda name, value: (*own, (name, value)), names, values),
        st.permutations(own).map(tuple),
    )


PAYLOADS = st.sampled_from([None, b"", b"{", b'{"a":1}', b"\xff", b"null"])


def bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("mode", [Mode.BINARY, Mode.STRUCTURED])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_kafka(mode: Mode, data: st.DataObject) -> None:
    binding = KafkaBinding(mode=mode)
    good = binding.encode(EVENT)
    for _ in range(3):
        binding.decode(good)
    headers = data.draw(pairs_with_one_thing_wrong(good.headers, bytes_of))
    values = PAYLOADS | st.just(good.value)
    for record in (
        KafkaRecord(headers=headers, value=good.value),
        KafkaRecord(headers=good.headers, value=data.draw(values)),
        KafkaRecord(headers=(*good.headers[1:], (good.headers[0][0], None)), value=good.value),
    ):
        expected = thorough(binding.read, record)
        assert outcome(lambda record=record: binding.decode(record)) == expected
        assert outcome(lambda record=record: KafkaBinding().decode(record)) == expected


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("mode", [Mode.BINARY, Mode.STRUCTURED])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_pulsar(profile: Profile, mode: Mode, data: st.DataObject) -> None:
    binding = PulsarBinding(profile=profile, mode=mode)
    good = binding.encode(EVENT)
    for _ in range(3):
        binding.decode(good)
    properties = data.draw(pairs_with_one_thing_wrong(good.properties, str))
    for message in (
        PulsarMessage(properties=properties, payload=good.payload),
        PulsarMessage(properties=good.properties, payload=data.draw(PAYLOADS)),
    ):
        assert outcome(lambda m=message: binding.decode(m)) == thorough(binding.read, message)


@pytest.mark.parametrize("mode", [Mode.BINARY, Mode.STRUCTURED])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_http(mode: Mode, data: st.DataObject) -> None:
    binding = HttpBinding(mode=mode)
    good = binding.encode(EVENT)
    for _ in range(3):
        binding.decode(good)
    headers = data.draw(pairs_with_one_thing_wrong(good.headers, str))
    for message in (
        HttpMessage(headers=headers, body=good.body),
        HttpMessage(headers=good.headers, body=data.draw(PAYLOADS)),
    ):
        assert outcome(lambda m=message: binding.decode(m)) == thorough(binding.read, message)


MEMBERS = [
    '"id":""',
    '"id":"1","id":"1"',
    '"hop":2147483648',
    '"hop":-2147483649',
    '"hop":2147483647',
    '"hop":1.0',
    '"hop":1e2',
    '"hop":true',
    '"hop":null',
    '"hop":{}',
    '"Hop":1',
    '"time":"2031-02-30T00:00:00Z"',
    '"data":1,"data_base64":"AA=="',
    '"data_base64":"AA"',
    '"data_base64":"AA==\\n"',
    '"data":NaN',
    '"data":1e999',
    '"specversion":"0.3"',
    '"specversion":1.0',
    '"type":"\\ud800"',
    '"source":"%zz"',
    '"datacontenttype":"nonsense"',
    '"datacontenttype":"text/plain","data":1',
]


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("first", [True, False])
def test_json(member: str, first: bool) -> None:
    form = FORMATS.named("json")
    core = {"specversion": '"1.0"', "id": '"1"', "source": '"/s"', "type": '"t"', "data": "1"}
    for _ in range(3):
        form.decode(("{" + ",".join(f'"{n}":{v}' for n, v in core.items()) + "}").encode())
    taken = {name for name in core if f'"{name}"' in member}
    rest = [f'"{name}":{value}' for name, value in core.items() if name not in taken]
    raw = ("{" + ",".join([member, *rest] if first else [*rest, member]) + "}").encode()
    for given_raw in (raw, raw + b" ", raw + b"x", b"\xef\xbb\xbf" + raw, raw.replace(b":", b" : ")):
        assert outcome(lambda r=given_raw: form.decode(r)) == thorough(form.read, given_raw)
        record = KafkaRecord(headers=(("content-type", form.marker),), value=given_raw)
        assert outcome(lambda r=record: KafkaBinding().decode(r)) == thorough(KafkaBinding().read, record)


def test_hostile_content_types_are_not_kept_without_a_bound() -> None:
    for number in range(2 * kafka_module._MEMORY):
        headers = (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/s"), ("ce_type", b"t"))
        record = KafkaRecord(headers=(*headers, ("content-type", b"text/x-%d" % number)), value=b"")
        assert KafkaBinding().decode(record).datacontenttype == f"text/x-{number}"
    assert len(kafka_module._opaque) <= kafka_module._MEMORY
    formats = FORMATS
    for number in range(200):
        formats.get(f"application/cloudevents+json; x={number}")
    assert len(formats._by_media_type) <= 64


def test_an_empty_pulsar_payload_is_empty_and_not_absent() -> None:
    good = PulsarBinding().encode(CloudEvent({"id": "1", "source": "/s", "type": "t"}, b""))
    assert good.payload == b""
    assert PulsarBinding().decode(good).data == b""


def test_an_empty_key_is_a_key() -> None:
    plain = CloudEvent({"id": "1", "source": "/s", "type": "t"})
    assert KafkaBinding(key_mapper=lambda event: "mapped").encode(plain, key=b"").key == b""
    assert PulsarBinding(key_mapper=lambda event: "mapped").encode(plain, key="").key == ""


def test_versions_are_not_mixed_in_one_batch() -> None:
    one = b'{"specversion":"%s","id":"1","source":"/s","type":"t"}'
    headers = (("Content-Type", "application/cloudevents-batch+json"),)
    for versions, good in (((b"1.0", b"1.0"), True), ((b"0.3", b"0.3"), True), ((b"0.3", b"1.0"), False)):
        body = b"[" + b",".join(one % version for version in versions) + b"]"
        (first, *_) = HttpBinding().read_batch(HttpMessage(headers=headers, body=body), Level.FORENSIC)
        assert (first.event is not None) is good


def test_a_content_type_that_http_cannot_carry() -> None:
    event = CloudEvent({"id": "1", "source": "/s", "type": "t", "datacontenttype": 'text/plain; a="ü"'}, b"")
    with pytest.raises(CannotEncode, match="ASCII"):
        HttpBinding().encode(event)


@pytest.mark.parametrize("mode", [Mode.BINARY, Mode.STRUCTURED])
def test_a_second_content_type_is_refused(mode: Mode) -> None:
    good = HttpBinding(mode=mode).encode(EVENT)
    for second in ("text/plain", "application/json"):
        twice = HttpMessage(headers=(*good.headers, ("CONTENT-TYPE", second)), body=good.body)
        with pytest.raises(InvalidEvent, match="repeated"):
            HttpBinding().decode(twice)
        assert HttpBinding().read(twice, Level.LENIENT).event is not None
