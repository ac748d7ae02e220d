"""pipeline.yaml: every rule with its position, and the shop's pipeline compiled to its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PipelineError
from penstock.pipeline import rules
from penstock.pipeline.compile import check_pipeline, load_pipeline
from penstock.pipeline.graph import as_data, as_mermaid, as_text
from penstock.pipeline.plan.explain import explain
from penstock.pipeline.plan.route import Mode, SimpleKey

SHOP = Path(__file__).parents[3] / "examples" / "shop"


def check(text: str) -> list[tuple[str, int]]:
    """Give rule and line of each finding of a pipeline beside the shop's contract."""
    result = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode())
    assert (result.pipeline is None) == bool(result.errors)
    return [(finding.rule.id, finding.position.line) for finding in result.findings]


def route(lines: str) -> str:
    body = "".join(f"    {line}\n" for line in lines.strip().splitlines())
    return f"routes:\n  r:\n    receive: onOrderPlaced\n    send: publishLargeOrder\n{body}"


def test_the_shops_pipeline_compiles() -> None:
    pipeline = load_pipeline(SHOP / "pipeline.yaml")
    (large,) = pipeline.routes
    assert explain(large.plan.where) == (
        "type = 'com.shop.order.placed' AND number_of_json(data.total) >= 100"
    )
    assert (large.plan.mode, large.plan.key) == (Mode.STRUCTURED, SimpleKey.PARTITIONKEY)
    assert (large.receive.topic, [each.topic for each in large.send]) == ("orders.placed", ["orders.large"])
    assert (large.dead_letter_channel, large.backoff_seconds) == ("ordersDead", 0.2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (route("where: type = 'x'"), []),
        (route("filter: {exact: {type: x}}"), []),
        (route("filter: [{prefix: {type: x}}, {not: {suffix: {source: y}}}]"), []),
        (route("cesql: type = 'x'"), []),
        (route("apply: functions:enrich"), []),
        (route("apply: {function: 'functions:enrich', batch: 10}"), []),
        (route("apply: {batch: 10, function: 'functions:enrch'}"), [(rules.NO_FUNCTION.id, 5)]),
        (route("apply: shop.functions:enrich"), [(rules.NO_FUNCTION.id, 5)]),
        (route("key: none"), []),
        (route("key: functions:enrich"), []),
        (route("key: functions:key_of"), [(rules.NO_FUNCTION.id, 5)]),
        (route("key: data.customer"), []),
        ("routes: {}", [(rules.NO_ROUTES.id, 1)]),
        ("contract: none.yaml\nroutes: {}", [(rules.NO_CONTRACT.id, 1)]),
        (
            route("wher: x").replace("onOrderPlaced", "onOrderPlacd"),
            [("PK225", 5), (rules.UNKNOWN_OPERATION.id, 3)],
        ),
        (route("").replace("onOrderPlaced", "publishLargeOrder"), [(rules.WRONG_ACTION.id, 3)]),
        (route("where: type ="), [(rules.BAD_EXPRESSION.id, 5)]),
        (route("where: sum(data.x) > 1"), [(rules.BAD_EXPRESSION.id, 5)]),
        (route("filter: {exact: {type: ''}}"), [(rules.BAD_EXPRESSION.id, 5)]),
        (route("cesql: type = "), [(rules.BAD_EXPRESSION.id, 5)]),
        (route("sql: data:total::int >= 100"), []),
        (route("sql: data:total::int >="), [(rules.DOUBTFUL_SQL.id, 5)]),
        (route("sql: count(data:n) > 3"), [(rules.BAD_EXPRESSION.id, 5)]),
        (route("sql: 'row_number() over (order by id) = 1'"), [(rules.BAD_EXPRESSION.id, 5)]),
        (route("sql: id in (select x from t)"), [(rules.BAD_EXPRESSION.id, 5)]),
        (route("sql: explode(array(1)) = 1"), [(rules.BAD_EXPRESSION.id, 5)]),
        (route("sql: array_max(array(1, 2)) > 1 and exists(array(1), x -> x > 1)"), []),
        (route("set: {subject: 'data.'}"), [(rules.BAD_EXPRESSION.id, 5)]),
        (route("where: type = 'x'\ncesql: type = 'x'"), [(rules.TWO_CONDITIONS.id, 6)]),
        (route("set: {id: type}"), [(rules.CONTRADICTION.id, 3)]),
        (route("apply: nonsense"), [(rules.BAD_FUNCTION.id, 5)]),
        (route("delivery: {backoffDelay: 5s}"), [(rules.BAD_DURATION.id, 5)]),
        (route("delivery: {deadLetterSink: nowhere}"), [(rules.UNKNOWN_CHANNEL.id, 5)]),
        ("routes:\n  r: {receive: onLargeOrder, send: deadOrders}", [(rules.NO_DEAD_LETTERS.id, 2)]),
        (route("unknownFormat: reject\ncheck: schema\nevents: plain"), []),
        (route("reading: lenient\nsniff: true\ndash: true\nrepeatHeaders: true"), []),
        (route("reading: strict\nsniff: false\nmode: keep"), []),
        (route("reading: forensic"), [("PK224", 5)]),
        (route("sniff: 'yes'"), [("PK224", 5)]),
        (route("values: quoted"), [("PK224", 5)]),
        (route("values: json"), [(rules.CONTRADICTION.id, 5)]),
        (route("keepCase: true"), [(rules.CONTRADICTION.id, 5)]),
        (route("mode: binary\nrepeatHeaders: true"), [(rules.CONTRADICTION.id, 6)]),
        (route("events: plain\nreading: lenient"), [(rules.CONTRADICTION.id, 6)]),
        (
            route("reading: lenient") + "  s: {receive: onOrderPlaced, send: deadOrders, reading: strict}\n",
            [(rules.DISAGREEMENT.id, 6)],
        ),
        (route("unknownFormat: {forward: ordersDead}"), []),
        (route("unknownFormat: {forward: nowhere}"), [(rules.UNKNOWN_CHANNEL.id, 5)]),
        (route("unknownFormat: {forward: ordersPlaced}"), [(rules.LOOP.id, 5)]),
        (
            route("check: schema") + "  s: {receive: onOrderPlaced, send: deadOrders, check: none}\n",
            [(rules.DISAGREEMENT.id, 6)],
        ),
        (route("check: schema") + "  s: {receive: onOrderPlaced, send: deadOrders}\n", []),
        (
            "routes:\n  r: {receive: onLargeOrder, send: publishLargeOrder,\n"
            "      delivery: {deadLetterSink: deadOrders}}",
            [(rules.LOOP.id, 2)],
        ),
    ],
)
def test_each_rule_is_found_where_it_is_broken(text: str, expected: list[tuple[str, int]]) -> None:
    found = check(text)
    unexpected = [each for each in found if each[0].startswith("PK5") and each not in expected]
    assert not unexpected
    assert [each for each in expected if each[0].startswith("PK5")] == [
        each for each in found if each[0].startswith("PK5")
    ]
    assert bool(found) == bool(expected)


@pytest.mark.parametrize(
    "text", ["", "[]", "routes: 5", "routes: {r: 5}", "a: &a [*a]", "\x00", "routes: {r: {receive: {}}}"]
)
def test_a_hostile_file_is_a_finding_and_never_a_traceback(text: str) -> None:
    assert check_pipeline(SHOP / "pipeline.yaml", raw=text.encode()).errors


@pytest.mark.parametrize("folder", ["http://host/ck", "FTP://host/ck", "kafka://host/ck", "file://host/ck"])
def test_a_checkpoint_on_no_file_system_is_refused(folder: str) -> None:
    text = f"checkpoint: {folder}\n{route('')}"
    assert check(text) == [(rules.NO_FILE_SYSTEM.id, 1)]
    (found,) = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode()).findings
    assert folder in found.message


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("state/ck", str(SHOP / "state" / "ck")),
        ("/var/ck", "/var/ck"),
        ("runs:today/ck", str(SHOP / "runs:today" / "ck")),
        ("file:///var/my%20ck", "/var/my ck"),
        ("file:/var/ck", "/var/ck"),
        ("hdfs://namenode:8020/ck", "hdfs://namenode:8020/ck"),
        ("hdfs:/ck", "hdfs:/ck"),
        ("abfss://c@a.dfs.core.windows.net/ck", "abfss://c@a.dfs.core.windows.net/ck"),
        ("GS://b/ck", "GS://b/ck"),
    ],
)
def test_where_a_checkpoint_is(folder: str, expected: str) -> None:
    result = check_pipeline(SHOP / "pipeline.yaml", raw=f"checkpoint: {folder}\n{route('')}".encode())
    assert result.pipeline is not None
    assert result.pipeline.checkpoint == expected


def test_loading_raises_the_first_error(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("contract: none.yaml\nroutes: {}\n")
    with pytest.raises(PipelineError, match="PK510") as caught:
        load_pipeline(file)
    assert caught.value.next == f"penstock validate {file}"


def test_a_chain_of_routes_is_no_circle() -> None:
    text = """
routes:
  there: {receive: onOrderPlaced, send: publishLargeOrder}
  back: {receive: onLargeOrder, send: deadOrders, delivery: {deadLetterSink: deadOrders}}
"""
    assert check(text) == []


def test_the_drawings_name_topics_routes_and_dead_letters() -> None:
    pipeline = load_pipeline(SHOP / "pipeline.yaml")
    text = as_text(pipeline, explain=True)
    assert "apply functions:enrich: 100 events a call, at most 30 s and 512 MB; tried again 5 times" in text
    assert "orders.placed (kafka)" in text
    assert "├─> orders.large (kafka)" in text
    assert "where type = 'com.shop.order.placed'" in text
    mermaid = as_mermaid(pipeline)
    assert mermaid.startswith("flowchart LR")
    assert 'route_large_orders{{"large-orders"}}' in mermaid
    (data,) = as_data(pipeline)
    assert (data["route"], data["deadLetters"]) == ("large-orders", "ordersDead")
