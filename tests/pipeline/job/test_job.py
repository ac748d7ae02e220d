"""What the job refuses before Spark is started, and how it groups routes by source."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Context, load
from penstock.events.bindings.pulsar import Profile
from penstock.pipeline.assembly import sources_of, stage_of
from penstock.pipeline.compile import Pipeline, check_pipeline
from penstock.pipeline.pulsar import PulsarReader, gateway_of

SHOP = Path(__file__).parents[3] / "examples" / "shop"


def pipeline(extra: str = "", send: str = "publishLargeOrder") -> Pipeline:
    text = f"routes:\n  r:\n    receive: onOrderPlaced\n    send: {send}\n{extra}"
    checked = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode())
    assert checked.pipeline is not None, checked.findings
    return checked.pipeline


def test_a_route_to_pulsar_runs_in_the_profile_that_is_said_or_that_the_contract_tells() -> None:
    for extra, profile in (("", "1.0"), ("    profile: '0.1'\n", "0.1")):
        said = pipeline(extra, send="[publishLargeOrder, publishShipment]")
        (source,) = sources_of(said)
        assert source.servers == ("kafka", "pulsar")
        large, shipment = stage_of(source, said).routes[0].targets
        assert (large.profile, large.sink) == (None, 0)
        assert (shipment.topic, shipment.sink) == ("persistent://public/shop/shipments", 1)
        assert shipment.profile is not None
        assert shipment.profile.value == profile


def test_a_topic_of_pulsar_is_read_in_all_dialects_under_a_name_that_a_folder_can_have() -> None:
    text = """
routes:
  r: {receive: onShipment, send: deadOrders, dialects: [sniffed], delivery: {deadLetterSink: auditTrail}}
"""
    said = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode()).pipeline
    assert said is not None
    (source,) = sources_of(said)
    assert source.name == "pulsar-public~shop~shipments"
    stage = stage_of(source, said)
    assert stage.reader == PulsarReader(sniffed=True)
    assert (stage.dead.sink, stage.dead.profile) == (0, Profile.V1_0)


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ("receive: onOrderPlaced, send: deadOrders, profile: '1.0'", "a profile is for targets on Pulsar"),
        ("receive: onOrderPlaced, send: deadOrders, dialects: [bridged]", "dialects are those of Pulsar"),
    ],
)
def test_what_is_said_of_pulsar_where_there_is_none_is_a_finding(route: str, problem: str) -> None:
    text = f"routes: {{r: {{{route}}}}}"
    found = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode()).errors
    assert [problem in finding.message for finding in found] == [True], found


def test_routes_of_one_topic_share_a_source() -> None:
    two = pipeline("  s:\n    receive: onOrderPlaced\n    send: deadOrders\n")
    (source,) = sources_of(two)
    assert (source.topic, source.name) == ("orders.placed", "kafka-orders.placed")
    stage = stage_of(source, two)
    assert [[target.topic for target in route.targets] for route in stage.routes] == [
        ["orders.large"],
        ["orders.dead"],
    ]
    assert (stage.pipeline, stage.dead.topic) == ("shop", "orders.dead")


def context(gateway: str, pulsar: str = "{address: 'pulsar://p:2', kind: pulsar}") -> Context:
    servers = f"{{kafka: {{address: 'k:1'}}, pulsar: {pulsar}}}"
    Path("penstock.yaml").write_text(f"contexts: {{c: {{servers: {servers}{gateway}}}}}", encoding="utf-8")
    found = load().context()
    assert found is not None
    return found


def test_a_pulsar_of_the_contract_that_the_context_calls_a_kafka_is_one(isolated_home: Path) -> None:
    """A gateway, for instance: it is reached by Kafka's protocol, and asked whether it has transactions."""
    text = "routes: {r: {receive: onOrderPlaced, send: [publishLargeOrder, publishAudit]}}"
    for known, native in ((context(""), ("pulsar",)), (context("", pulsar="{address: 'g:3'}"), ())):
        made = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode(), context=known).pipeline
        assert made is not None
        (source,) = sources_of(made)
        assert source.native_pulsar == native
        assert source.on_kafka == tuple(each for each in ("kafka", "pulsar") if each not in native)


def test_the_gateway_of_a_context_is_not_for_routes(isolated_home: Path) -> None:
    known = context(", gateway: {address: 'g:3'}")
    text = "routes: {r: {receive: onOrderPlaced, send: publishAudit}}"
    made = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode(), context=known).pipeline
    assert made is not None
    (source,) = sources_of(made)
    assert source.connections["pulsar"].address == "pulsar://p:2"
    found = gateway_of(known)
    assert found is not None
    assert found.address == "g:3"
    assert gateway_of(context("")) is None
