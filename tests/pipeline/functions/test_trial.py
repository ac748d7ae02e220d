"""`penstock test` and `penstock.testing.run_route`: a pipeline with its function, in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import app
from penstock.errors import UsageError
from penstock.events import CloudEvent, Json
from penstock.pipeline.samples import differences, read_events, read_test
from penstock.pipeline.trial import Trial, sample_record
from penstock.record import KafkaRecord
from penstock.testing import run_route

SHOP = Path(__file__).parents[3] / "examples" / "shop"
TEST = (SHOP / "tests" / "large-orders.yaml").read_text()


@pytest.fixture
def shop(isolated_home: Path) -> Path:
    for name in ("asyncapi.yaml", "pipeline.yaml", "functions.py", "tests/large-orders.yaml"):
        (isolated_home / name).parent.mkdir(exist_ok=True)
        (isolated_home / name).write_bytes((SHOP / name).read_bytes())
    return isolated_home


@pytest.fixture(scope="module")
def orders() -> Trial:
    """What becomes of the events of the shop's test."""
    given = read_test(SHOP / "tests" / "large-orders.yaml").given
    return run_route(SHOP / "pipeline.yaml", [each for each in given if isinstance(each, dict)])


def test_the_shops_own_tests_pass_by_copy_and_paste(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["test"]) == 0
    assert capsys.readouterr().err == "1 passed, 0 failed\n"


def test_a_test_that_fails_says_what_is_different(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = TEST.replace("items: 6", "items: 7").replace("unmatched: 1", "unmatched: 2")
    (shop / "tests" / "large-orders.yaml").write_text(changed)
    (shop / "tests" / "broken.json").write_text('{"given": []}')
    assert app.main(["test", "-o", "json"]) == 1
    broken, orders = json.loads(capsys.readouterr().out)
    assert orders["differences"] == [
        "ordersLarge[0].data.items: expected 7, got 6",
        "unmatched: expected 2, got 1",
    ]
    assert (broken["test"], broken["result"]) == ("broken.json", "failed")
    assert "expect" in broken["differences"][0]


def test_sample_events_are_shown_with_what_becomes_of_them(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {"id": "o-1", "source": "/shop", "type": "com.shop.order.placed"}
    lines = [
        {**event, "datacontenttype": "application/json", "data": {"customer": "ada", "total": 120}},
        {"value": "junk", "headers": [["ce_id", "1"]]},
    ]
    (shop / "events.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert app.main(["test", "--events", "events.jsonl", "-o", "json"]) == 0
    told = capsys.readouterr()
    sent, dead = json.loads(told.out)
    assert (sent["to"], sent["key"], json.loads(sent["detail"])["reviewer"]) == (
        "ordersLarge",
        "ada",
        "clerk",
    )
    assert dead["to"] == "dead letters"
    assert "2 in" in told.err


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("causationid: o-1, ", "causationid: o-9, ", 'ordersLarge[0].causationid: expected "o-9", got "o-1"'),
        ("subject: ada, ", "colour: red, ", 'ordersLarge[0].colour: expected "red", it is not there'),
        ("    - {id: o-3, code", "    - {id: o-9, code", 'dead[0].id: expected "o-9", got "o-3"'),
        ("      - {causationid: o-4", "      # ", "ordersLarge: expected 1, got 2"),
        ("  dropped: 0", "  receipts: [{}]", "receipts: expected 1, got 0"),
        ("reviewer: clerk", "reviewer: true", 'ordersLarge[0].data.reviewer: expected true, got "clerk"'),
    ],
)
def test_differences(tmp_path: Path, orders: Trial, old: str, new: str, difference: str) -> None:
    assert old in TEST
    path = tmp_path / "test.yaml"
    path.write_text(TEST.replace(old, new))
    assert difference in differences(read_test(path).expect, orders)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("given: []\nexpect: {}\nextra: 1\n", "extra"),
        ("given: {}\nexpect: {}\n", "given"),
        ("- 1\n", "no test|object|mapping"),
    ],
)
def test_a_file_that_is_no_test_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "test.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=why):
        read_test(path)


def test_a_route_in_a_unit_test() -> None:
    order = CloudEvent(
        {
            "id": "1",
            "source": "/shop",
            "type": "com.shop.order.placed",
            "datacontenttype": "application/json",
        },
        Json({"customer": "ada", "total": 1000, "lines": [{"sku": "tea", "count": 3}]}),
    )
    result = run_route(SHOP / "pipeline.yaml", [order, KafkaRecord(value=b"junk")], route="large-orders")
    (large,) = result.events("ordersLarge")
    assert (large.subject, large.get("causationid")) == ("ada", "1")
    assert large.json() == {
        "customer": "ada",
        "total": 1000,
        "lines": [{"sku": "tea", "count": 3}],
        "items": 3,
        "reviewer": "manager",
    }
    assert [letter.code for letter in result.dead] == ["not-a-cloudevent"]
    assert (result.counts["in"], result.counts["out"], result.receipts) == (2, 1, ())


@pytest.mark.parametrize(
    ("given", "why"), [({"route": "none"}, "no route none"), ({"receive": "x"}, "several")]
)
def test_what_is_not_there_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        run_route(SHOP / "pipeline.yaml", [], **given)


@pytest.mark.parametrize("text", ['[{"id": "1"}]', '{"id": "1"}', '{"id": "1"}\n', '{\n"id": "1"}'])
def test_events_in_a_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "events.json"
    path.write_text(text)
    assert list(read_events(path)) == [{"id": "1"}]


def test_an_event_with_key_and_headers_of_its_record() -> None:
    members = {"id": "1", "source": "/s", "type": "t", "data": {"n": 1}}
    bare = sample_record({"event": members, "key": "k"})
    assert (bare.key, bare.value) == (b"k", b'{"n":1}')
    for headers in ({"app": "x"}, [["app", "x"]]):
        record = sample_record({"event": members, "key": "k", "headers": headers})
        assert (record.key, record.value) == (b"k", b'{"n":1}')
        assert record.headers == (*bare.headers, ("app", b"x"))


@pytest.mark.parametrize(
    "sample",
    [
        {"id": "1"},
        {"event": 1},
        {"event": {"id": "1"}, "key": 3},
        {"event": {"id": "1", "source": "/s", "type": "t"}, "headers": 5},
        {"event": {"id": "1", "source": "/s", "type": "t"}, "value": "x"},
    ],
)
def test_a_sample_that_is_no_event_is_refused(sample: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="sample"):
        run_route(SHOP / "pipeline.yaml", [sample])


# What a route's keys say about reading and writing reaches the codec


PLACED = {"id": "1", "source": "/shop", "type": "com.shop.order.placed", "specversion": "1.0"}
BODY = b'{"order":"o-1","customer":"ada","total":120}'


def headers(prefix: str = "ce_", **more: str) -> tuple[tuple[str, bytes], ...]:
    pairs = [(f"{prefix}{name}", text.encode()) for name, text in {**PLACED, **more}.items()]
    return (*pairs, ("content-type", b"application/json"))


def piped(folder: Path, receive: str, send: str, sample: KafkaRecord, **keys: object) -> Trial:
    route = {"receive": receive, "send": send, "delivery": {"deadLetterSink": "deadOrders"}, "check": "none"}
    (folder / "own.json").write_text(json.dumps({"routes": {"r": {**route, **keys}}}))
    return run_route(folder / "own.json", [sample])


@pytest.mark.parametrize(
    ("keys", "sample"),
    [
        ({"reading": "lenient"}, KafkaRecord(value=BODY, headers=headers("CE_"))),
        ({"dash": True}, KafkaRecord(value=BODY, headers=headers("ce-"))),
        ({"sniff": True}, KafkaRecord(value=json.dumps({**PLACED, "data": json.loads(BODY)}).encode())),
    ],
)
def test_a_route_reads_what_it_asks_for(shop: Path, keys: dict[str, object], sample: KafkaRecord) -> None:
    strict = piped(shop, "onOrderPlaced", "publishLargeOrder", sample)
    assert [letter.code for letter in strict.dead] == ["not-a-cloudevent"]
    found = piped(shop, "onOrderPlaced", "publishLargeOrder", sample, **keys)
    (event,) = found.events("ordersLarge")
    assert (event.id, event.json(), found.dead) == ("1", json.loads(BODY), ())


def test_a_route_writes_the_headers_again_if_asked(shop: Path) -> None:
    sample = KafkaRecord(value=BODY, headers=headers())
    found = piped(shop, "onOrderPlaced", "publishLargeOrder", sample, mode="structured", repeatHeaders=True)
    (sent,) = found.sent
    assert dict(sent.record.headers)["ce_id"] == b"1"
    assert dict(sent.record.headers)["content-type"].startswith(b"application/cloudevents+json")


def test_a_route_writes_and_reads_values_of_properties(shop: Path) -> None:
    sample = KafkaRecord(value=BODY, headers=headers())
    found = piped(shop, "onOrderPlaced", "publishShipment", sample, profile="0.1", values="json")
    (sent,) = found.sent
    assert dict(sent.record.headers)["CE-EventID"] == b'"1"'
    named = (*sent.record.headers, ("CE-X-MyName", b'"x"'))
    record = KafkaRecord(value=BODY, headers=named)
    back = piped(shop, "onShipment", "publishLargeOrder", record, values="json", keepCase=True)
    (event,) = back.events("ordersLarge")
    assert (event.id, event.get("myname"), event.get("extensionnames")) == ("1", "x", "myName")


@pytest.mark.parametrize(("line", "said"), [("nonsense", "not a JSON line"), ("[1]", "is not a JSON object")])
def test_a_sample_that_is_no_event_is_named_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(f'{{"id": "1"}}\n\n{line}\n', encoding="utf-8")
    with pytest.raises(UsageError, match=said) as refused:
        read_events(path)
    assert refused.value.where == f"{path}:3"
