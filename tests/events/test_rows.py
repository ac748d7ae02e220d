"""The behaviour list of CloudEvents as one table: input, expected, clause (rows 1 to 82).

Rows 68, 70, 71, 87 and 88 belong to the pipeline, 83 to 86 to CESQL and the filters.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.errors import CannotEncode, InvalidEvent, NotACloudEvent, PenstockError, UnsupportedFormat
from penstock.events import (
    AttributeType,
    CloudEvent,
    Formats,
    HttpBinding,
    HttpMessage,
    Json,
    KafkaBinding,
    Level,
    Mode,
    PulsarBinding,
    Reading,
    Severity,
    Verdict,
    absent,
    partitionkey,
)
from penstock.events.formats import JsonFormat
from penstock.record import KafkaRecord, PulsarMessage

REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
STRUCTURED = "application/cloudevents+json"
KAFKA, JSON, PULSAR = KafkaBinding(), JsonFormat(), PulsarBinding()
KAFKA_STRUCTURED = KafkaBinding(mode=Mode.STRUCTURED)


def record(
    more: dict[str, str | bytes | None] | None = None, value: bytes | None = b"x", without: str = ""
) -> KafkaRecord:
    """A binary-mode record with the required headers, changed by header name."""
    headers: dict[str, Any] = {f"ce_{name}": text for name, text in REQUIRED.items() if name != without}
    headers |= more or {}
    pairs = [(name, text.encode() if isinstance(text, str) else text) for name, text in headers.items()]
    return KafkaRecord(value=value, headers=tuple(pairs))


def envelope(**members: Any) -> bytes:
    """A JSON event with the required members, changed by name."""
    return json.dumps({**REQUIRED, **members}, ensure_ascii=False).encode()


def structured(value: bytes | None, content_type: str = STRUCTURED, **headers: str) -> KafkaRecord:
    pairs = {"content-type": content_type, **headers}
    return KafkaRecord(value=value, headers=tuple((n, t.encode()) for n, t in pairs.items()))


def event(data: Any = absent, **attributes: Any) -> CloudEvent:
    return CloudEvent({**REQUIRED, **attributes}, data)


def changed(name: str, text: str) -> CloudEvent:
    return CloudEvent({**REQUIRED, name: text})


def pulsar(payload: bytes | None = b"x", **properties: str) -> PulsarMessage:
    core = {
        "CE-CloudEventsVersion": "0.1",
        "CE-EventID": "1",
        "CE-EventType": "t",
        "CE-Source": "/s",
    }
    spelled = {name.replace("_", "-"): text for name, text in properties.items()}
    return PulsarMessage(payload=payload, properties=tuple((core | spelled).items()))


def bare(payload: bytes) -> PulsarMessage:
    return PulsarMessage(payload=payload)


def outcome(run: Callable[..., Any], *values: Any) -> Any:
    """The result, or the class of the typed error."""
    try:
        return run(*values)
    except PenstockError as error:
        return type(error)


def levels(read: Callable[[Level], Reading]) -> tuple[str, str]:
    """What strict does, and the verdict of forensic (which judges as lenient does)."""
    strict = outcome(lambda: read(Level.STRICT).verdict.value)
    return strict if isinstance(strict, str) else strict.__name__, read(Level.FORENSIC).verdict.value


def kafka_levels(rec: KafkaRecord, **options: Any) -> tuple[str, str]:
    return levels(lambda level: KafkaBinding(**options).read(rec, level))


def json_levels(raw: bytes) -> tuple[str, str]:
    return levels(lambda level: JSON.read(raw, level))


def header(rec: KafkaRecord, name: str) -> bytes | None:
    return dict(rec.headers).get(name)


def warnings(reading: Reading) -> list[str | None]:
    return [finding.attribute for finding in reading.findings if finding.severity is Severity.WARNING]


def members(raw: bytes | None) -> dict[str, Any]:
    assert raw is not None
    parsed = json.loads(raw)
    assert isinstance(parsed, dict)
    return parsed


def to_binary(raw: bytes) -> KafkaRecord:
    return KAFKA.encode(JSON.decode(raw))


EMPTY = ("id", "source", "type", "subject", "dataschema", "datacontenttype", "partitionkey")
BAD_TIMES = (
    "2018-04-05T17:31Z",
    "2018-04-05T17:31:00+05",
    "2018-04-05T24:00:00Z",
    "2018-04-05T17:31:00+25:00",
    "2018-04-05T17:31:00",
    "2018-02-30T17:31:00Z",
    "2018-04-05T17:31:60Z",
    "2018-W14-4T17:31:00Z",
    "2018-04-05T17:31:00,5Z",
)
V03 = envelope(
    specversion="0.3",
    schemaurl="http://x/y",
    datacontentencoding="base64",
    datacontenttype="text/plain",
    data="TWE=",
)
UPPER = KafkaRecord(
    value=b"x",
    headers=(
        ("Content-Type", b"text/plain"),
        *((f"CE_{n.upper()}", t.encode()) for n, t in REQUIRED.items()),
    ),
)
TWICE = KafkaRecord(value=b"x", headers=(*record().headers, ("ce_id", b"2")))
DASHED = KafkaRecord(value=b"x", headers=tuple((f"ce-{n}", t.encode()) for n, t in REQUIRED.items()))
FOREIGN = KafkaRecord(
    value=b"x", headers=(("traceparent", b"00"), *record().headers, ("app", None), ("app", b"\xff"))
)
FULL_01 = {
    "CE-EventTypeVersion": "2.0",
    "CE-EventTime": "2018-04-05T03:56:24Z",
    "CE-SchemaURL": "http://x/schema",
    "CE-ContentType": "application/json",
    "CE-X-Text": "hello",
    "CE-X-TestExtension": "kept",
}
TYPED_01 = FULL_01 | {"CE-X-Number": "5", "CE-X-Flag": "true"}


def unsupported(rec: KafkaRecord) -> tuple[type, bool]:
    """The error without the format, and whether it carries the record to be forwarded as it is."""
    try:
        KafkaBinding(formats=Formats(JsonFormat())).decode(rec)
    except UnsupportedFormat as error:
        return type(error), error.record is rec
    raise AssertionError("the format is supported")


def reason(run: Callable[[], Any]) -> str | None:
    try:
        run()
    except InvalidEvent as error:
        return error.clause
    raise AssertionError("no error")


def round_trip(given: CloudEvent) -> tuple[str, bytes | None]:
    """The member that holds the data in JSON, and the bytes after decoding it."""
    raw = JSON.encode(given)
    (member,) = members(raw).keys() & {"data", "data_base64"}
    return member, JSON.decode(raw).data_bytes


def moment(text: str) -> str:
    found = event(time=text).time
    assert found is not None
    return found.isoformat()


def http(subject: str) -> HttpMessage:
    headers = {f"ce-{name}": text for name, text in (REQUIRED | {"subject": subject}).items()}
    return HttpMessage(headers=tuple(headers.items()), body=b"")


def batch(body: bytes) -> HttpMessage:
    return HttpMessage(headers=(("Content-Type", "application/cloudevents-batch+json"),), body=body)


def batch_verdicts(body: bytes) -> list[str]:
    return [reading.verdict.value for reading in HttpBinding().read_batch(batch(body))]


def mixed() -> bytes:
    return b"[" + envelope() + b"," + envelope(specversion="0.3") + b"]"


def structured_01(**more: Any) -> PulsarMessage:
    core = {"cloudEventsVersion": "0.1", "eventID": "1", "eventType": "t", "source": "/s"}
    marker = (("CE-ContentType", "application/cloudevents+json"),)
    return PulsarMessage(payload=json.dumps(core | more).encode(), properties=marker)


def up_and_down(properties: dict[str, str], between: KafkaBinding) -> bool:
    """Pulsar 0.1 to Kafka 1.0 and back: are the properties equal?"""
    message = pulsar(b"{}", **properties)
    keeping = PulsarBinding(keep_case=True)
    on_kafka = between.encode(keeping.decode(message))
    back = keeping.encode(between.decode(on_kafka))
    return sorted(back.properties) == sorted(message.properties) and back.payload == b"{}"


INVALID = ("InvalidEvent", "invalid")
TOLERATED = ("InvalidEvent", "tolerated")
EVENT = ("event", "event")


@dataclass(frozen=True)
class Row:
    number: int
    clause: str
    run: Callable[[], Any]
    want: Any


ROWS = [
    Row(
        1,
        "Kafka 3",
        lambda: (
            KAFKA.read(
                structured(envelope(), "Application/CloudEvents+JSON; charset=UTF-8"), Level.STRICT
            ).mode
        ),
        Mode.STRUCTURED,
    ),
    Row(
        2,
        "Kafka 3, 3.3.3",
        lambda: (
            (r := KAFKA.read(structured(envelope(id="payload"), ce_id="header", ce_type="t"))).mode,
            r.event and r.event.id,
            warnings(r),
        ),
        (Mode.STRUCTURED, "payload", ["id"]),
    ),
    Row(
        3,
        "Kafka 3",
        lambda: unsupported(structured(b"\x00avro", "application/cloudevents+avro")),
        (UnsupportedFormat, True),
    ),
    Row(
        4,
        "Kafka 1.3",
        lambda: (
            kafka_levels(structured(b"[]", "application/cloudevents-batch+json")),
            reason(lambda: KAFKA.decode(structured(b"[]", "application/cloudevents-batch+json"))),
        ),
        (INVALID, "Kafka 1.3"),
    ),
    Row(
        5,
        "Kafka 3",
        lambda: kafka_levels(structured(envelope(), "application/cloudeventsfoo")),
        ("UnsupportedFormat", "unsupported"),
    ),
    Row(
        6,
        "Kafka 3",
        lambda: (
            (r := KAFKA.read(record(value=b"v"))).mode,
            r.event and (r.event.datacontenttype, r.event.data),
        ),
        (Mode.BINARY, (None, b"v")),
    ),
    Row(
        7, "Kafka 3; #812", lambda: kafka_levels(KafkaRecord(value=envelope())), ("NotACloudEvent", "foreign")
    ),
    Row(8, "core id", lambda: reason(lambda: KAFKA.decode(record(without="id"))), "core, id: REQUIRED"),
    Row(
        9,
        "Kafka 3 last para",
        lambda: [
            outcome(lambda without: KAFKA.decode(record(without=without)), name)
            for name in ("id", "source", "type", "specversion")
        ],
        [InvalidEvent] * 4,
    ),
    Row(10, "Kafka 3.2.2", lambda: KAFKA.decode(record(value=None)).data, absent),
    Row(
        11,
        "Kafka 3.2.2",
        lambda: ((e := KAFKA.decode(record(value=b""))).data, KAFKA.encode(e).value),
        (b"", b""),
    ),
    Row(12, "Kafka 3.2.2", lambda: KAFKA.encode(event()).value, None),
    Row(
        13,
        "Kafka 3.3.2",
        lambda: members(KAFKA_STRUCTURED.encode(event()).value),
        REQUIRED,
    ),
    Row(14, "Kafka 3.3.2", lambda: kafka_levels(structured(None)), INVALID),
    Row(
        15,
        "JSON 3.2 example D",
        lambda: KAFKA.encode(event(Json("I'm"), datacontenttype="application/json")).value,
        b'"I\'m"',
    ),
    Row(
        16,
        "JSON 3.1.2; core datacontenttype",
        lambda: header(to_binary(envelope(data={"a": 1})), "content-type"),
        b"application/json",
    ),
    Row(
        17,
        "JSON 3.1.2, last example",
        lambda: ((r := to_binary(envelope(data_base64="TWE="))).value, header(r, "content-type")),
        (b"Ma", None),
    ),
    Row(
        18,
        "JSON 3.1.1",
        lambda: (
            JSON.decode(envelope(data=None)).data,
            (r := to_binary(envelope(data=None))).value,
            header(r, "content-type"),
        ),
        (Json(None), b"null", b"application/json"),
    ),
    Row(19, "cloudevents.json", lambda: JSON.decode(envelope(data_base64=None)).data, absent),
    Row(20, "JSON 3.1.1", lambda: json_levels(envelope(data=1, data_base64="TWE=")), INVALID),
    Row(
        21,
        "JSON 3.1.1",
        lambda: [
            JSON.decode(envelope(data={"a": 1}, datacontenttype=t)).json()
            for t in ("application/vnd.x+json;v=1", "text/json", "image/svg+JSON")
        ],
        [{"a": 1}] * 3,
    ),
    Row(
        22,
        "JSON 3.1.1 vs v0.3 3.1",
        lambda: [
            JSON.decode(envelope(data="{}", datacontenttype=t)).data
            for t in ("application/json-seq", "application/x-json")
        ],
        [b"{}", b"{}"],
    ),
    Row(
        23,
        "JSON 3.1.2",
        lambda: JSON.decode(envelope(data='{"a":1}', datacontenttype="application/json")).json(),
        '{"a":1}',
    ),
    Row(
        24,
        "JSON 3.1.2",
        lambda: (
            json_levels(envelope(data={"a": 1}, datacontenttype="application/xml")),
            outcome(lambda: event(Json({"a": 1}), datacontenttype="application/xml")),
        ),
        (TOLERATED, InvalidEvent),
    ),
    Row(
        25,
        "JSON 3.1.1; bytes that are JSON become data unchanged, other bytes data_base64",
        lambda: [
            round_trip(event(raw, datacontenttype="application/json")) for raw in (b'{"a": 1.0}', b"{", b"")
        ],
        [("data", b'{"a": 1.0}'), ("data_base64", b"{"), ("data_base64", b"")],
    ),
    Row(
        26,
        "RFC 8259",
        lambda: (
            [outcome(Json, [float(x)]) for x in ("nan", "inf", "-inf")]
            + [outcome(lambda: JSON.decode(envelope()[:-1] + b',"data":NaN}'))]
        ),
        [CannotEncode, CannotEncode, CannotEncode, InvalidEvent],
    ),
    Row(27, "JSON 2.2", lambda: JSON.decode(envelope(subject=None)).subject, None),
    Row(
        28,
        "core Context Attributes",
        lambda: (
            json_levels(raw := envelope()[:-1] + b',"id":"2"}'),
            JSON.read(raw, Level.LENIENT).event.id,  # type: ignore[union-attr]
        ),
        (TOLERATED, "2"),
    ),
    Row(
        29,
        "JSON 2.2, core types",
        lambda: [json_levels(envelope(ext=value)) for value in (1.5, {"a": 1}, [1])],
        [TOLERATED] * 3,
    ),
    Row(
        30,
        "core Integer",
        lambda: (
            json_levels(envelope(ext=2147483648)),
            JSON.decode(envelope(ext=2147483647)).integer("ext"),
            outcome(lambda: event(ext=2147483648)),
        ),
        (TOLERATED, 2147483647, InvalidEvent),
    ),
    Row(
        31,
        "JSON 2.2",
        lambda: [json_levels(envelope()[:-1] + b',"ext":' + n + b"}") for n in (b"1.0", b"1e3")],
        [TOLERATED] * 2,
    ),
    Row(
        32,
        "core types; a header is a String unless a type is declared",
        lambda: (
            members(JSON.encode(KAFKA.decode(record({"ce_n": "5"}))))["n"],
            members(
                JSON.encode(KafkaBinding(types={"n": AttributeType.INTEGER}).decode(record({"ce_n": "5"})))
            )["n"],
            members(JSON.encode(JSON.decode(envelope(n=5))))["n"],
        ),
        ("5", 5, 5),
    ),
    Row(33, "core Boolean", lambda: header(KAFKA.encode(event(flag=True)), "ce_flag"), b"true"),
    Row(
        34,
        "core Boolean",
        lambda: kafka_levels(record({"ce_flag": "TRUE"}), types={"flag": AttributeType.BOOLEAN}),
        TOLERATED,
    ),
    Row(35, "core Binary", lambda: header(KAFKA.encode(event(blob=b"Ma")), "ce_blob"), b"TWE="),
    Row(
        36,
        "RFC 4648 section 4",
        lambda: [json_levels(envelope(data_base64=text)) for text in ("TW\nE=", "-_-_", "TWE", "TWF=x")],
        [INVALID] * 4,
    ),
    Row(
        37,
        "core Naming",
        lambda: [
            (outcome(changed, name, "x"), kafka_levels(record({f"ce_{name}": "x"})))
            for name in ("myExt", "my_ext", "my-ext")
        ],
        [(InvalidEvent, TOLERATED)] * 3,
    ),
    Row(
        38,
        "core Naming SHOULD",
        lambda: [
            ((r := KAFKA.read(record({f"ce_{name}": "x"}))).verdict, warnings(r))
            for name in ("a" * 21, "1abc")
        ],
        [(Verdict.EVENT, ["a" * 21]), (Verdict.EVENT, ["1abc"])],
    ),
    Row(
        39,
        "core Naming",
        lambda: (outcome(changed, "data", "x"), kafka_levels(record({"ce_data": "x"}))),
        (InvalidEvent, TOLERATED),
    ),
    Row(
        40,
        "core",
        lambda: [outcome(changed, name, "") for name in EMPTY],
        [InvalidEvent] * 7,
    ),
    Row(41, "core", lambda: event(id=" ").id, " "),
    Row(
        42,
        "spec invalidUnknownSpecVersion",
        lambda: [kafka_levels(record({"ce_specversion": version})) for version in ("1.1", "1.0.2", "0.9")],
        [INVALID] * 3,
    ),
    Row(
        43,
        "SDK.md; strict refuses 0.3, lenient converts it",
        lambda: (
            json_levels(V03),
            (e := JSON.read(V03, Level.LENIENT).event)
            and (e.specversion, e.dataschema, e.data, e.extensions),
        ),
        (TOLERATED, ("1.0", "http://x/y", b"Ma", {})),
    ),
    Row(
        44,
        "RFC 3339",
        lambda: {kafka_levels(record({"ce_time": text})) for text in BAD_TIMES},
        {TOLERATED},
    ),
    Row(
        45,
        "RFC 3339; t and z valid, a space only in lenient",
        lambda: (
            KAFKA.decode(record({"ce_time": "2018-04-05t17:31:00z"})).time_ns,
            kafka_levels(record({"ce_time": "2018-04-05 17:31:00Z"})),
        ),
        (1522949460 * 10**9, TOLERATED),
    ),
    Row(
        46,
        "spec ToNanoseconds",
        lambda: (
            (e := KAFKA.decode(record({"ce_time": "2018-04-05T17:31:00.123456789Z"}))).get("time"),
            e.time_ns,
            e.time and e.time.microsecond,
        ),
        ("2018-04-05T17:31:00.123456789Z", 1522949460123456789, 123456),
    ),
    Row(
        47,
        "RFC 3339 5.6; a leap second reads as the next second",
        lambda: (
            (e := KAFKA.decode(record({"ce_time": "2016-12-31T23:59:60Z"}))).get("time"),
            e.time and e.time.isoformat(),
        ),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
    ),
    Row(
        48,
        "RFC 3339 4.3; -00:00 is UTC, year 0000 is valid text and no datetime",
        lambda: (
            [
                moment(text)
                for text in ("2018-04-05T17:31:00-00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
            ]
            + [outcome(lambda: event(time="0000-01-01T00:00:00Z").time)]
        ),
        [
            "2018-04-05T17:31:00+00:00",
            "0001-01-01T00:00:00+00:00",
            "9999-12-31T23:59:59+00:00",
            InvalidEvent,
        ],
    ),
    Row(
        49,
        "spec core",
        lambda: [event(source=text).source for text in ("#fragment", "1-555-123-4567", "//authority/path")],
        ["#fragment", "1-555-123-4567", "//authority/path"],
    ),
    Row(
        50,
        "RFC 3986 4.1",
        lambda: [kafka_levels(record({"ce_source": text})) for text in ("/a b", "/ä", "/%zz", "a#b#c")],
        [TOLERATED] * 4,
    ),
    Row(51, "core dataschema", lambda: kafka_levels(record({"ce_dataschema": "/relative"})), TOLERATED),
    Row(
        52,
        "core String",
        lambda: [outcome(changed, "id", f"a{c}") for c in "\n\x7f\ufffe\ud800"],
        [InvalidEvent] * 4,
    ),
    Row(
        53,
        "Kafka 3.2.3",
        lambda: (
            header(r := KAFKA.encode(event(subject="😀")), "ce_subject"),
            KAFKA.decode(r).subject,
        ),
        ("😀".encode(), "😀"),
    ),
    Row(
        54,
        "HTTP 3.1.3.2",
        lambda: dict(HttpBinding().encode(event(subject='😀 "%')).headers)["ce-subject"],
        "%F0%9F%98%80%20%22%25",
    ),
    Row(
        55,
        "Kafka 3.2.3",
        lambda: KAFKA.decode(record({"ce_subject": "Euro%20%E2%82%AC"})).subject,
        "Euro%20%E2%82%AC",
    ),
    Row(56, "HTTP 3.1.3.2", lambda: outcome(lambda: HttpBinding().decode(http("%C0%A0"))), InvalidEvent),
    Row(
        57,
        "HTTP 3.1.3.2",
        lambda: [HttpBinding().decode(http(text)).subject for text in ('"quoted \\" text"', '"%2541"')],
        ['quoted " text', "%41"],
    ),
    Row(58, "Kafka 3.2.5 notation", lambda: kafka_levels(record({"ce_specversion": '"1.0"'})), INVALID),
    Row(
        59,
        "Kafka silent; strict exact, lenient any case, never both spellings",
        lambda: (
            kafka_levels(UPPER),
            KAFKA.read(UPPER, Level.LENIENT).event.datacontenttype,  # type: ignore[union-attr]
            KAFKA.read(record({"CE_ID": "other"}), Level.LENIENT).event.id,  # type: ignore[union-attr]
            KAFKA.read(record({"CE_ID": "other"}), Level.LENIENT).verdict,
        ),
        (("NotACloudEvent", "tolerated"), "text/plain", "1", Verdict.TOLERATED),
    ),
    Row(
        60,
        "core at most once",
        lambda: (
            kafka_levels(TWICE),
            KAFKA.read(TWICE, Level.LENIENT).event.id,  # type: ignore[union-attr]
        ),
        (TOLERATED, "2"),
    ),
    Row(
        61,
        "Kafka 3.2.1",
        lambda: [
            kafka_levels(record(more))
            for more in (
                {"ce_": "x"},
                {"ce_datacontenttype": "text/plain"},
                {"ce_datacontenttype": "text/plain", "content-type": "text/html"},
            )
        ],
        [TOLERATED] * 3,
    ),
    Row(
        62,
        "sdk-go #1058",
        lambda: (kafka_levels(DASHED), KafkaBinding(dash=True).decode(DASHED).id),
        (("NotACloudEvent", "foreign"), "1"),
    ),
    Row(
        63,
        "Kafka record format",
        lambda: (
            KAFKA.decode(record({"ce_subject": None})).subject,
            outcome(lambda: KAFKA.decode(record({"ce_id": None}))),
        ),
        (None, InvalidEvent),
    ),
    Row(
        64,
        "Kafka 3.2.3",
        lambda: (
            kafka_levels(record({"ce_subject": b"\xff"})),
            kafka_levels(record({"foreign": b"\xff"})),
        ),
        (INVALID, EVENT),
    ),
    Row(
        65,
        "Kafka 3.1",
        lambda: (
            KafkaBinding(key_mapper=partitionkey).encode(event(partitionkey="p"), key=b"user").key,
            (r := KafkaBinding(key_mapper=partitionkey).encode(event(partitionkey="p"))).key,
            header(r, "ce_partitionkey"),
            KAFKA.encode(event(partitionkey="p")).key,
        ),
        (b"user", b"p", b"p", None),
    ),
    Row(
        66,
        "Kafka 3.1",
        lambda: KAFKA.decode(KafkaRecord(key=b"\xff\x00", value=b"", headers=record().headers)).attributes,
        REQUIRED,
    ),
    Row(67, "partitioning.md", lambda: kafka_levels(record({"ce_partitionkey": ""})), TOLERATED),
    Row(
        69,
        "core Extensions RECOMMENDED",
        lambda: (
            KAFKA.decode(FOREIGN).attributes,
            (kept := KAFKA.foreign(FOREIGN)),
            KAFKA.foreign(KAFKA.encode(KAFKA.decode(FOREIGN), headers=kept)) == kept,
        ),
        (REQUIRED, (("traceparent", b"00"), ("app", None), ("app", b"\xff")), True),
    ),
    Row(
        72,
        "spec",
        lambda: [
            outcome(batch_verdicts, body)
            for body in (b"[]", b"[" + envelope() + b"]", mixed(), b"[1]", b"{}")
        ],
        [[], ["event"], InvalidEvent, InvalidEvent, InvalidEvent],
    ),
    Row(
        73,
        "RFC 8259 8.1; strict refuses a BOM, lenient strips it, UTF-16 never",
        lambda: (
            json_levels(b"\xef\xbb\xbf" + envelope()),
            json_levels(envelope().decode().encode("utf-16")),
        ),
        (TOLERATED, INVALID),
    ),
    Row(
        74,
        "P 3",
        lambda: (
            (r := PULSAR.read(pulsar(CE_ContentType="application/json"))).mode,
            r.event and r.event.datacontenttype,
        ),
        (Mode.BINARY, "application/json"),
    ),
    Row(
        75,
        "P 3, 3.2.3 (A6, A8)",
        lambda: (
            dict(PulsarBinding(mode=Mode.STRUCTURED).encode(event()).properties),
            outcome(lambda: PULSAR.decode(bare(envelope()))),
            PulsarBinding(sniff=True).decode(bare(envelope())).id,
            outcome(lambda: PulsarBinding(sniff=True).decode(bare(b'{"id":"1"}'))),
        ),
        (
            {"CE-ContentType": "application/cloudevents+json; charset=utf-8"},
            NotACloudEvent,
            "1",
            NotACloudEvent,
        ),
    ),
    Row(
        76,
        "P 3.1.2.1",
        lambda: (
            (e := PulsarBinding(keep_case=True).decode(pulsar(CE_X_TestExtension="x"))).extensions,
            dict(PULSAR.encode(e).properties)["CE-X-TestExtension"],
        ),
        ({"testextension": "x", "extensionnames": "testExtension"}, "x"),
    ),
    Row(
        77,
        "A10",
        lambda: (
            levels(
                lambda level: PULSAR.read(pulsar(CE_SchemaURI="http://a", CE_SchemaURL="http://b"), level)
            ),
            PULSAR.decode(pulsar(CE_SchemaURI="http://a")).dataschema,
            PULSAR.decode(pulsar(CE_SchemaURL="http://b")).dataschema,
        ),
        (TOLERATED, "http://a", "http://b"),
    ),
    Row(
        78,
        "A4",
        lambda: [PULSAR.decode(pulsar(CE_EventID=text)).id for text in ("abc", '"abc"')],
        ["abc", "abc"],
    ),
    Row(
        79,
        "P 3.1.2.2, v0.1 types",
        lambda: (
            (e := PULSAR.decode(pulsar(None, CE_X_Map='{"a":1}'))).get("map"),
            members(PulsarBinding(mode=Mode.STRUCTURED).encode(e).payload)["extensions"],
        ),
        ('{"a":1}', {"map": {"a": 1}}),
    ),
    Row(
        80,
        "v0.1 json-format 2.3, 3.1",
        lambda: PULSAR.decode(structured_01(contentType="application/octet-stream", data="TWE=")).data,
        b"Ma",
    ),
    Row(
        81,
        "v0.1 spec",
        lambda: (
            levels(lambda level: PULSAR.read(structured_01(extensions={}), level)),
            "extensions" in members(PulsarBinding(mode=Mode.STRUCTURED).encode(event()).payload),
        ),
        (TOLERATED, False),
    ),
    Row(
        82,
        "1.6; types survive only a format that has them",
        lambda: (up_and_down(FULL_01, KAFKA), up_and_down(TYPED_01, KAFKA_STRUCTURED)),
        (True, True),
    ),
]
ROWS_OF_OTHERS = {68, 70, 71}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number:02d}: {row.clause}")
def test_row(row: Row) -> None:
    assert row.run() == row.want


def test_the_table_is_whole() -> None:
    assert {row.number for row in ROWS} == set(range(1, 83)) - ROWS_OF_OTHERS
