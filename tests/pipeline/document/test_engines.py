"""What `penstock routes --explain` says of the engine of each route."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.run_options import EngineName
from penstock.errors import UsageError
from penstock.pipeline import graph
from penstock.pipeline.compile import Pipeline, check_pipeline
from penstock.pipeline.engines import explanations
from penstock.pipeline.trial import try_out

SHOP = Path(__file__).parents[3] / "examples" / "shop"


def pipeline(extra: str = "", head: str = "", send: str = "publishLargeOrder") -> Pipeline:
    text = f"{head}routes:\n  r:\n    receive: onOrderPlaced\n    send: {send}\n{extra}"
    checked = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode())
    assert checked.pipeline is not None, checked.findings
    return checked.pipeline


def test_a_plain_route_is_fused() -> None:
    (found,) = explanations(pipeline("    where: type = 'a' AND data.total > 1\n")).values()
    assert (found.chosen, found.reads) == ("fused", ("type", "data.total"))
    assert found.guarantee.startswith("exactly once on kafka")


@pytest.mark.parametrize(
    "condition",
    [
        "filter: {exact: {type: a}}",
        "filter: {prefix: {type: a}}",
        "filter: {suffix: {subject: z}}",
        "filter: {all: [{exact: {type: a}}, {not: {prefix: {source: /x}}}]}",
        "filter: {any: [{exact: {type: a}}, {suffix: {subject: z}}]}",
        "filter: {sql: \"type = 'a' OR subject LIKE 'z%'\"}",
        "cesql: type = 'a'",
        "where: (type = 'a') IS TRUE",
        "where: coalesce(subject, data.customer) = 'a'",
    ],
)
def test_the_engine_does_not_depend_on_how_a_condition_is_spelled(condition: str) -> None:
    (plain,) = explanations(pipeline("    where: type = 'a'\n")).values()
    (found,) = explanations(pipeline(f"    {condition}\n")).values()
    assert (found.chosen, found.guarantee) == (plain.chosen, plain.guarantee) == ("fused", plain.guarantee)


def test_a_very_long_coalesce_is_left_to_columns() -> None:
    names = ", ".join(f"x{number}" for number in range(600))
    (found,) = explanations(pipeline(f"    where: coalesce({names}) = 'x'\n")).values()
    assert found.chosen == "columns"
    assert "coalesce(x0" in found.engines[0].stops[0]


@pytest.mark.parametrize("key", ["reading: lenient", "dash: true", "sniff: true"])
@pytest.mark.parametrize("engine", ["auto", "fused", "loop"])
def test_how_events_are_read_does_not_stop_the_kernel(key: str, engine: str) -> None:
    (found,) = explanations(pipeline(f"    {key}\n", head=f"engine: {engine}\n")).values()
    assert found.chosen == ("fused" if engine == "auto" else engine)
    assert found.engines[0].stops == ()


def test_a_plain_route_runs_by_columns_if_that_is_asked_for() -> None:
    where = "    where: type = 'a' AND data.total > 1\n"
    (found,) = explanations(pipeline(where, head="engine: columns\n")).values()
    assert found.chosen == "columns"
    assert found.guarantee.startswith("at least once: one sink on kafka")
    text = graph.as_text(pipeline(where, head="engine: columns\n"), explain=True)
    assert "can run exactly once" in text


def test_what_stops_the_fused_engine_is_named() -> None:
    text = graph.as_text(pipeline("    apply: functions:enrich\n"), explain=True)
    assert "not fused:\n           route r: apply functions:enrich is a function of Python" in text


def test_an_engine_that_is_named_must_be_able_to() -> None:
    (found,) = explanations(pipeline("    check: none\n", head="engine: loop\n")).values()
    assert (found.chosen, found.guarantee[:12]) == ("loop", "exactly once")
    (refused,) = explanations(pipeline("    apply: functions:enrich\n", head="engine: fused\n")).values()
    assert (refused.chosen, "the fused engine cannot" in refused.guarantee) == ("none", True)


def test_what_columns_cannot_do_at_once_is_named() -> None:
    route = pipeline("    where: hop + 1 < 5\n")
    (found,) = explanations(route).values()
    assert (found.chosen, found.one_by_one) == ("columns", ("no column form: number_of_text(hop) + 1",))
    text = graph.as_text(route, explain=True)
    assert "one event at a time:\n           no column form: number_of_text(hop) + 1" in text


@pytest.mark.parametrize(
    "extra", ["", "    apply: functions:enrich\n", "    where: hop + 1 < 5\n", "    sql: size(headers) > 1\n"]
)
@pytest.mark.parametrize("engine", ["auto", "columns"])
def test_an_engine_has_the_name_by_which_it_is_chosen(extra: str, engine: str) -> None:
    (found,) = explanations(pipeline(extra, head=f"engine: {engine}\n")).values()
    assert {found.chosen, *(each.name for each in found.engines)} <= {*EngineName}


def test_spark_sql_needs_columns() -> None:
    (found,) = explanations(pipeline("    sql: size(headers) > 1\n")).values()
    assert found.chosen == "columns"
    assert found.reads == ("sql: size(headers) > 1",)
    assert any("Spark's own SQL" in stop for stop in found.engines[0].stops)


def test_the_key_of_the_removed_mode_names_what_replaces_it() -> None:
    text = b"accept-differences: true\nroutes:\n  r: {receive: onOrderPlaced, send: publishLargeOrder}\n"
    checked = check_pipeline(SHOP / "pipeline.yaml", raw=text)
    (finding,) = checked.errors
    assert checked.pipeline is None
    assert "accept-differences" in finding.message
    assert "engine: loop" in finding.fix


def test_a_pipeline_that_cannot_run_says_why(tmp_path: Path) -> None:
    contract = (SHOP / "asyncapi.yaml").read_text(encoding="utf-8")
    elsewhere = contract.replace("protocol: pulsar+ssl", "protocol: amqps")
    (tmp_path / "asyncapi.yaml").write_text(elsewhere, encoding="utf-8")
    text = b"routes: {r: {receive: onOrderPlaced, send: publishShipment}}"
    found = check_pipeline(tmp_path / "pipeline.yaml", raw=text).pipeline
    assert found is not None
    (explained,) = explanations(found).values()
    assert (explained.chosen, "leaves Kafka" in explained.guarantee) == ("none", True)


def test_a_route_to_pulsar_is_at_least_once_on_each_cluster() -> None:
    (found,) = explanations(pipeline(send="[publishLargeOrder, publishShipment]")).values()
    assert (found.chosen, found.guarantee.startswith("at least once on each")) == ("columns", True)
    assert "kafka, then pulsar" in found.guarantee
    assert any("pulsar" in stop.lower() for stop in found.engines[0].stops)


def test_the_same_is_data() -> None:
    (route,) = json.loads(json.dumps(graph.as_data(pipeline())))
    assert route["engine"] == "fused"
    assert route["engines"] == {"fused": {"runs": True, "stops": []}, "columns": {"runs": True, "stops": []}}


def test_a_trial_without_spark_refuses_its_sql() -> None:
    with pytest.raises(UsageError, match="no Spark here"):
        try_out(pipeline("    sql: size(headers) > 1\n"), [])
