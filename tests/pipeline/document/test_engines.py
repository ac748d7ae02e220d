"""What `penstock routes --explain` says of the engine of each route."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from penstock.cli.run_options import EngineName
from penstock.contract.finding import Severity
from penstock.errors import MissingExtra, PipelineError, UnsupportedPlan, UsageError
from penstock.pipeline import graph
from penstock.pipeline.assembly import sources_of
from penstock.pipeline.compile import Pipeline, check_pipeline
from penstock.pipeline.engines import explanations
from penstock.pipeline.job import choice
from penstock.pipeline.job.choice import (
    guarantee,
    is_exactly_once,
    progress_servers,
    refuse_unrunnable,
    require_exactly_once,
)
from penstock.pipeline.trial import try_out

SHOP = Path(__file__).parents[3] / "examples" / "shop"


def pipeline(extra: str = "", head: str = "", send: str = "publishLargeOrder") -> Pipeline:
    text = f"{head}routes:\n  r:\n    receive: onOrderPlaced\n    send: {send}\n{extra}"
    checked = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode())
    assert checked.pipeline is not None, checked.findings
    return checked.pipeline


def test_a_plain_route_runs_on_spark() -> None:
    (found,) = explanations(pipeline("    where: type = 'a' AND data.total > 1\n")).values()
    assert (found.chosen, found.reads) == ("spark", ("type", "data.total"))
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
        f"where: coalesce({', '.join(f'x{number}' for number in range(600))}) = 'x'",
        "where: lower(type) = 'a' AND length(subject) > 3 AND substring(type, 1, 2) = 'ab'",
        "where: hop + 1 < 5 AND data.total * 1.2 >= 100 AND CAST(data.count AS INT) % 2 = 0",
        "where: time >= now() - INTERVAL 1 HOUR AND year(time) = 2026",
        "where: CASE WHEN type = 'a' THEN data.total > 1 ELSE false END",
        "cesql: hop > 5 AND LOWER(type) LIKE 'a%' XOR flag",
        'filter: {any: [{sql: "INT(hop) % 2 = 0"}, {not: {sql: "TRIM(subject) = \'x\'"}}]}',
        "set: {subject: \"upper(data.customer) || '-' || data.total\", time: now()}",
        "key: lower(data.customer)",
    ],
)
def test_the_engine_does_not_depend_on_how_a_condition_is_spelled(condition: str) -> None:
    (plain,) = explanations(pipeline("    where: type = 'a'\n")).values()
    (found,) = explanations(pipeline(f"    {condition}\n")).values()
    assert (found.chosen, found.guarantee) == (plain.chosen, plain.guarantee) == ("spark", plain.guarantee)


def test_what_stops_the_kernel_in_a_condition_is_its_smallest_part() -> None:
    (found,) = explanations(pipeline("    where: lower(type) = 'a' OR NOT data.a = data.b\n")).values()
    assert (found.chosen, found.evaluator) == ("spark", "reference")
    assert found.kernel_stops == ("route r: the kernel cannot: data.a = data.b",)


def test_a_route_of_which_the_kernel_has_a_part_is_said() -> None:
    one = pipeline("    where: lower(type) = 'a' AND NOT data.a = data.b\n")
    (found,) = explanations(one).values()
    assert (found.chosen, found.evaluator) == ("spark", "kernel")
    assert found.kernel_stops == ("route r: the kernel cannot: data.a = data.b",)
    text = " ".join(graph.as_text(one, explain=True).split())
    assert "the other conditions of this route do not rule out: route r: the kernel cannot: data.a" in text


def test_the_evaluator_is_told_and_what_keeps_the_kernel_from_a_route() -> None:
    (plain,) = explanations(pipeline("    where: type = 'a'\n")).values()
    assert (plain.evaluator, plain.kernel_stops) == ("kernel", ())
    found = explanations(
        pipeline(
            "    where: data.a = data.b\n"
            "  other:\n    receive: onOrderPlaced\n    send: publishLargeOrder\n    where: type = 'a'\n"
        )
    )
    assert {each.evaluator for each in found.values()} == {"reference"}
    assert found["r"].kernel_stops == ("route r: the kernel cannot: data.a = data.b",)
    assert found["other"].kernel_stops == (
        "another route of its topic: route r: the kernel cannot: data.a = data.b",
    )


@pytest.mark.parametrize("key", ["reading: lenient", "dash: true", "sniff: true"])
@pytest.mark.parametrize("engine", ["spark", "loop"])
def test_how_events_are_read_does_not_stop_the_kernel(key: str, engine: str) -> None:
    (found,) = explanations(pipeline(f"    {key}\n", head=f"engine: {engine}\n")).values()
    assert found.chosen == engine
    assert found.engines[0].stops == ()


@pytest.mark.parametrize("name", ["auto", "fused", "columns"])
def test_a_former_name_of_an_engine_means_spark_and_is_noted(name: str) -> None:
    text = f"engine: {name}\nroutes:\n  r: {{receive: onOrderPlaced, send: publishLargeOrder}}\n"
    checked = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode())
    assert checked.pipeline is not None
    assert (checked.pipeline.engine, checked.pipeline.engine_text) == ("spark", name)
    (note,) = [each for each in checked.findings if each.rule.id == "PK534"]
    assert (note.severity, note.message) == (Severity.INFO, f"engine: {name} means spark now")
    (found,) = explanations(checked.pipeline).values()
    assert (found.chosen, found.guarantee[:12]) == ("spark", "exactly once")


def test_without_numba_no_route_runs_and_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    (found,) = explanations(pipeline()).values()
    assert found.chosen == "none"
    assert "running a pipeline needs the Python package numba" in found.guarantee
    with pytest.raises(MissingExtra) as caught:
        choice.require_kernels()
    assert caught.value.next == "pip install 'penstock[spark]'"


def test_why_the_reference_decides_is_said() -> None:
    text = graph.as_text(pipeline("    apply: functions:enrich\n"), explain=True)
    why = "route r: apply functions:enrich is a function of Python"
    assert f"evaluator reference, not the kernel:\n         {why}" in text
    assert "evaluator kernel; the reference decides what the kernel is not certain of" in graph.as_text(
        pipeline(), explain=True
    )


@pytest.mark.parametrize(
    "extra",
    [
        "    apply: functions:enrich\n",
        "    key: functions:enrich\n",
        "    check: schema\n",
        "    events: plain\n",
        "    where: data.a = data.b\n",
        "    repeatHeaders: true\n    mode: structured\n",
    ],
)
@pytest.mark.parametrize("engine", ["spark", "loop"])
def test_what_the_reference_decides_is_exactly_once_too(extra: str, engine: str) -> None:
    (found,) = explanations(pipeline(extra, head=f"engine: {engine}\n")).values()
    assert (found.chosen, found.evaluator) == (engine, "reference")
    assert found.kernel_stops
    assert found.guarantee.startswith("exactly once on kafka")


def test_a_loop_promises_the_same() -> None:
    (found,) = explanations(pipeline("    check: none\n", head="engine: loop\n")).values()
    assert (found.chosen, found.guarantee[:12]) == ("loop", "exactly once")


@pytest.mark.parametrize(
    "extra", ["", "    apply: functions:enrich\n", "    where: hop + 1 < 5\n", "    sql: size(headers) > 1\n"]
)
def test_an_engine_has_the_name_by_which_it_is_chosen(extra: str) -> None:
    (found,) = explanations(pipeline(extra)).values()
    assert [each.name for each in found.engines] == [*EngineName]
    assert found.chosen == EngineName.SPARK


def test_a_condition_of_spark_is_answered_by_spark_and_delivered_exactly_once() -> None:
    (plain,) = explanations(pipeline()).values()
    (found,) = explanations(pipeline("    sql: size(headers) > 1\n")).values()
    assert (found.chosen, found.guarantee) == ("spark", plain.guarantee)
    assert (found.condition_by_spark, plain.condition_by_spark, found.evaluator) == (True, False, "reference")
    assert found.reads == ("sql: size(headers) > 1",)
    assert [(each.name, each.runs) for each in found.engines] == [("spark", True), ("loop", False)]
    assert any("Spark's own SQL" in stop for stop in found.engines[1].stops)
    text = graph.as_text(pipeline("    sql: size(headers) > 1\n"), explain=True)
    assert "engine spark, condition by Spark\n" in text


def test_a_condition_of_spark_is_refused_by_a_loop() -> None:
    (found,) = explanations(pipeline("    sql: size(headers) > 1\n", head="engine: loop\n")).values()
    assert (found.chosen, "engine loop cannot" in found.guarantee) == ("none", True)
    (source,) = sources_of(pipeline("    sql: size(headers) > 1\n"))
    with pytest.raises(UnsupportedPlan, match="route r: .*a condition in Spark's own SQL"):
        refuse_unrunnable("loop", source)


@pytest.mark.parametrize("says_so", [False, True])
def test_a_condition_of_spark_beside_a_function_on_several_clusters(tmp_path: Path, says_so: bool) -> None:
    call = "{function: functions:enrich, deterministic: true}" if says_so else "functions:enrich"
    both = f"    sql: size(headers) > 1\n    apply: {call}\n"
    (found,) = explanations(pipeline(both)).values()
    assert found.chosen == "spark"
    (tmp_path / "functions.py").write_text("def enrich(event): ...\n", encoding="utf-8")
    (found,) = explanations(between_clusters(tmp_path, both)).values()
    assert (found.chosen, "but for a crash" in found.guarantee) == ("spark", not says_so)
    assert ("does not say deterministic: true" in found.guarantee) is not says_so


@pytest.mark.parametrize("send", ["publishShipment", "[publishLargeOrder, publishShipment]"])
@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ("    sql: size(headers) > 1\n", None),
        ("    sql: rand() < 0.5\n", "rand may give another answer"),
        ("    sql: size(headers) > 1\n    set: {time: now()}\n", "reads now()"),
        ("    sql: size(headers) > 1\n    apply: functions:enrich\n", "does not say deterministic: true"),
        ("    sql: size(headers) > 1\n    key: functions:enrich\n", "has its key from functions:enrich"),
    ],
)
def test_a_condition_of_spark_writes_pulsar_once_if_it_can_be_repeated(
    extra: str, why: str | None, send: str
) -> None:
    (found,) = explanations(pipeline(extra, send=send)).values()
    assert (found.chosen, found.evaluator) == ("spark", "reference")
    promise = "exactly once on pulsar: by dedup" if why is None else "at least once on pulsar: "
    assert found.guarantee.startswith(promise)
    assert (why or "") in found.guarantee


def within_pulsar(
    tmp_path: Path, extra: str, *, to: str = "publishLargeOrder", channels: tuple[str, ...] = ()
) -> Pipeline:
    """Read the shop's orders from Pulsar, where these other channels are, too."""
    contract = yaml.safe_load((SHOP / "asyncapi.yaml").read_text(encoding="utf-8"))
    binding = {"namespace": "default", "persistence": "persistent", "bindingVersion": "0.1.0"}
    for channel in (contract["channels"][name] for name in ("ordersPlaced", *channels)):
        channel["servers"] = [{"$ref": "#/servers/pulsar"}]
        channel["bindings"] = {"pulsar": binding}
    (tmp_path / "asyncapi.yaml").write_text(json.dumps(contract), encoding="utf-8")
    text = f"routes:\n  r:\n    receive: onOrderPlaced\n    send: {to}\n{extra}"
    checked = check_pipeline(tmp_path / "pipeline.yaml", raw=text.encode())
    assert checked.pipeline is not None, checked.findings
    return checked.pipeline


def test_a_condition_of_spark_on_a_topic_of_pulsar_is_delivered_exactly_once(tmp_path: Path) -> None:
    (found,) = explanations(within_pulsar(tmp_path, "    sql: size(headers) > 1\n")).values()
    assert (found.chosen, found.evaluator) == ("spark", "reference")
    assert found.guarantee.startswith("exactly once on kafka: output, dead letters and progress (__penstock_")


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ("    sql: size(headers) > 1\n", None),
        ("    sql: rand() < 0.5\n", "rand may give another answer"),
        ("    sql: size(headers) > 1\n    set: {time: now()}\n", "reads now()"),
    ],
)
@pytest.mark.parametrize("beside_kafka", [False, True])
def test_a_condition_of_spark_from_pulsar_to_pulsar_is_exactly_once_if_it_can_be_repeated(
    tmp_path: Path, extra: str, why: str | None, beside_kafka: bool
) -> None:
    to = "[publishLargeOrder, publishShipment]" if beside_kafka else "publishShipment"
    route = within_pulsar(tmp_path, extra, to=to, channels=("ordersDead",))
    (found,) = explanations(route).values()
    assert (found.chosen, found.condition_by_spark, found.evaluator) == ("spark", True, "reference")
    promise = "exactly once on pulsar: by dedup" if why is None else "at least once on pulsar: "
    assert found.guarantee.startswith(promise)
    assert (why or "at least once on Pulsar if the broker of pulsar keeps no index") in found.guarantee
    marks = "__penstock_progress of kafka" if beside_kafka else "topics __penstock_progress-... of pulsar"
    assert f"progress is in {marks}" in found.guarantee
    (source,) = sources_of(route)
    assert is_exactly_once(source, transactional=True) is (why is None)
    assert not is_exactly_once(source, transactional=True, indexed=False)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("size(headers) > 1 and data:a::decimal(9, 2) in (1, 2)", None),
        ("lower(`type`) = 'now()' -- uuid()", None),
        ("rand() < 0.5", "route r: rand may give another answer"),
        ("`UUID` /* x */ () > 'a'", "route r: uuid may"),
        ("time_ts < current_timestamp - interval 1 hour", "route r: current_timestamp may"),
        ("my_function(type)", "route r: my_function may"),
        ("reflect('java.util.UUID', 'randomUUID') = id", "route r: reflect may"),
    ],
)
def test_what_spark_may_answer_otherwise_when_it_is_asked_again(
    sql: str, why: str | None, tmp_path: Path
) -> None:
    # On one cluster the answer that counts is the one that was committed.
    (found,) = explanations(pipeline(f"    sql: {json.dumps(sql)}\n")).values()
    assert found.guarantee.startswith("exactly once on kafka: output, dead letters and progress are one")
    (found,) = explanations(between_clusters(tmp_path, f"    sql: {json.dumps(sql)}\n")).values()
    assert (found.chosen, "but for a crash" in found.guarantee) == ("spark", why is not None)
    assert (why or "exactly once on each of kafka, pulsar") in found.guarantee


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


def test_a_route_to_pulsar_is_exactly_once_on_each_cluster() -> None:
    (found,) = explanations(pipeline(send="[publishLargeOrder, publishShipment]")).values()
    assert found.chosen == "spark", found.engines
    assert found.guarantee.startswith("exactly once on pulsar: by deduplication")
    assert "exactly once on kafka: output and progress are one transaction" in found.guarantee
    assert "progress is in the group's offsets on kafka" in found.guarantee


def test_a_route_to_pulsar_that_cannot_be_repeated_is_at_least_once_there() -> None:
    """The moment of a range is kept before it begins, on Spark and in a loop; what functions give is not."""
    reads_now = "    where: now() > '2020-01-01T00:00:00Z'\n"
    send = "[publishLargeOrder, publishShipment]"
    for head in ("", "engine: loop\n"):
        (found,) = explanations(pipeline(reads_now, send=send, head=head)).values()
        assert found.guarantee.startswith("exactly once on pulsar: ")
    (found,) = explanations(pipeline("    apply: functions:enrich\n", send=send)).values()
    assert found.guarantee.startswith("at least once on pulsar: ")
    assert "which does not say deterministic: true; exactly once on kafka" in found.guarantee


def from_pulsar(tmp_path: Path, send: str = "publishShipment", head: str = "", extra: str = "") -> Pipeline:
    """A shop whose orders come from its Pulsar; letters go there, too, unless something goes to Kafka."""
    document = yaml.safe_load((SHOP / "asyncapi.yaml").read_text(encoding="utf-8"))
    channels = document["channels"]
    (receive,) = (each for name, each in document["operations"].items() if name == "onOrderPlaced")
    orders = channels[receive["channel"]["$ref"].rpartition("/")[2]]
    shipments = channels[document["operations"]["publishShipment"]["channel"]["$ref"].rpartition("/")[2]]
    orders["servers"], orders["bindings"] = shipments["servers"], shipments["bindings"]
    channels["lostOrders"] = {**shipments, "address": "lost-orders"}
    orders["x-penstock-dead-letter"] = {"$ref": "#/channels/lostOrders"}
    (tmp_path / "asyncapi.yaml").write_text(json.dumps(document), encoding="utf-8")
    shutil.copy(SHOP / "functions.py", tmp_path)
    route = f"{head}routes:\n  r:\n    receive: onOrderPlaced\n    send: {send}\n    check: none\n{extra}"
    checked = check_pipeline(tmp_path / "pipeline.yaml", raw=route.encode())
    assert checked.pipeline is not None, checked.findings
    return checked.pipeline


@pytest.mark.parametrize("head", ["", "engine: loop\n"])
def test_from_pulsar_to_pulsar_is_exactly_once_without_kafka(tmp_path: Path, head: str) -> None:
    made = from_pulsar(tmp_path, head=head)
    (found,) = explanations(made).values()
    assert found.chosen == ("loop" if head else "spark"), found.engines
    assert found.guarantee.startswith("exactly once on pulsar: by deduplication")
    assert "progress is in topics __penstock_progress-... of pulsar" in found.guarantee
    assert "if the broker of pulsar keeps no index" in found.guarantee
    assert "kafka" not in found.guarantee
    assert progress_servers(made) == {}, "no topic of Kafka holds marks"


def test_from_pulsar_to_both_has_its_marks_on_kafka(tmp_path: Path) -> None:
    made = from_pulsar(tmp_path, send="[publishLargeOrder, publishShipment]")
    (found,) = explanations(made).values()
    assert found.chosen == "spark", found.engines
    assert "exactly once on kafka: output and progress are one transaction" in found.guarantee
    assert "progress is in __penstock_progress of kafka" in found.guarantee
    assert "at least once if kafka is a gateway" in found.guarantee
    assert [*progress_servers(made)] == ["kafka"]


def test_without_the_index_of_the_broker_pulsar_gets_records_at_least_once(tmp_path: Path) -> None:
    made = from_pulsar(tmp_path, head="exactly-once: required\n")
    (source,) = sources_of(made)
    require_exactly_once(source, made, transactional=True)
    said = guarantee(source, exactly_once=True, indexed=False)
    assert said.startswith("at least once on pulsar: ")
    assert "the broker of pulsar keeps no index" in said
    with pytest.raises(PipelineError, match="at least once") as caught:
        require_exactly_once(source, made, transactional=True, indexed=False)
    assert "keeps no index" in str(caught.value.why)


def between_clusters(tmp_path: Path, extra: str = "", send: str = "publishShipment") -> Pipeline:
    """A shop whose second server is a Kafka."""
    contract = (SHOP / "asyncapi.yaml").read_text(encoding="utf-8")
    contract = contract.replace("protocol: pulsar+ssl", "protocol: kafka-secure")
    (tmp_path / "asyncapi.yaml").write_text(contract, encoding="utf-8")
    shutil.copy(SHOP / "functions.py", tmp_path)
    route = f"routes:\n  r:\n    receive: onOrderPlaced\n    send: {send}\n    check: none\n{extra}"
    checked = check_pipeline(tmp_path / "pipeline.yaml", raw=route.encode())
    assert checked.pipeline is not None, checked.findings
    return checked.pipeline


def test_a_route_to_another_kafka_is_exactly_once_on_each_cluster(tmp_path: Path) -> None:
    (found,) = explanations(between_clusters(tmp_path)).values()
    assert found.chosen == "spark", found.engines
    assert found.guarantee.startswith("exactly once on each of kafka, pulsar")
    assert "__penstock_progress of pulsar and the group's offsets on kafka" in found.guarantee


@pytest.mark.parametrize(
    "extra", ["expired: discard", "where: time > now()", "set: {time: now()}", "key: now()"]
)
def test_the_moment_is_kept_so_that_a_second_run_sends_nothing_elsewhere(tmp_path: Path, extra: str) -> None:
    made = between_clusters(tmp_path, f"    {extra}\n")
    (found,) = explanations(made).values()
    assert (found.chosen, found.guarantee.startswith("exactly once on each")) == ("spark", True), found
    (source,) = sources_of(made)
    assert all(route.plan.reads_now for route in source.routes)
    require_exactly_once(source, replace(made, requires_exactly_once=True), transactional=True)


def test_a_route_without_now_reads_no_moment(tmp_path: Path) -> None:
    (source,) = sources_of(between_clusters(tmp_path, "    where: time > '2026-01-01T00:00:00Z'\n"))
    assert not any(route.plan.reads_now for route in source.routes)


@pytest.mark.parametrize(
    ("call", "is_repeatable"),
    [
        ("functions:enrich", False),
        ("{function: 'functions:enrich', deterministic: false}", False),
        ("{function: 'functions:enrich', deterministic: true}", True),
    ],
)
def test_a_function_on_several_clusters_has_to_be_deterministic(
    tmp_path: Path, call: str, is_repeatable: bool
) -> None:
    made = between_clusters(tmp_path, f"    apply: {call}\n")
    (found,) = explanations(made).values()
    (source,) = sources_of(made)
    assert (found.chosen, found.evaluator) == ("spark", "reference")
    assert ("but for a crash" not in found.guarantee) == is_repeatable
    assert ("functions:enrich, which does not say deterministic: true" in found.guarantee) != is_repeatable
    assert is_exactly_once(source, transactional=True) == is_repeatable
    # On one cluster it is no matter.
    (one,) = sources_of(pipeline("    apply: functions:enrich\n"))
    assert is_exactly_once(one, transactional=True)


@pytest.mark.parametrize(
    ("call", "is_repeatable"),
    [("", False), ("    apply: {function: 'functions:enrich', deterministic: true}\n", True)],
)
def test_a_key_function_on_several_clusters_may_fail_in_one_run_only(
    tmp_path: Path, call: str, is_repeatable: bool
) -> None:
    """Then its event is a dead letter on one cluster, or an event on the other."""
    made = between_clusters(tmp_path, f"    key: functions:ship\n{call}")
    (source,) = sources_of(made)
    assert is_exactly_once(source, transactional=True) == is_repeatable
    assert ("has its key from functions:ship" in guarantee(source)) != is_repeatable
    (one,) = sources_of(pipeline("    key: functions:ship\n"))
    assert is_exactly_once(one, transactional=True)


def test_less_than_exactly_once_is_refused_where_it_is_required(tmp_path: Path) -> None:
    required = "exactly-once: required\n"
    for made, transactional, is_refused in (
        (pipeline(head=required), True, False),
        (pipeline(head=required), False, True),
        (pipeline(), False, False),
    ):
        (source,) = sources_of(made)
        with pytest.raises(PipelineError, match="at least once") if is_refused else nullcontext():
            require_exactly_once(source, made, transactional=transactional)
    found = between_clusters(tmp_path)
    (source,) = sources_of(found)
    with pytest.raises(PipelineError, match="at least once") as caught:
        require_exactly_once(source, replace(found, requires_exactly_once=True), transactional=False)
    assert "has no transactions" in (caught.value.why or "")


def test_the_same_is_data() -> None:
    (route,) = json.loads(json.dumps(graph.as_data(pipeline())))
    assert (route["engine"], route["conditionBySpark"]) == ("spark", False)
    assert route["engines"] == {"spark": {"runs": True, "stops": []}, "loop": {"runs": True, "stops": []}}


def test_a_trial_without_spark_refuses_its_sql() -> None:
    with pytest.raises(UsageError, match="no Spark here"):
        try_out(pipeline("    sql: size(headers) > 1\n"), [])
