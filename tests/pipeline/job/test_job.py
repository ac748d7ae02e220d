"""What the job refuses before Spark is started, and how it groups routes by source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.config import Context, load
from penstock.contract.credentials import Connection
from penstock.errors import ConfigError, PipelineError
from penstock.events.bindings.pulsar import Profile
from penstock.pipeline.assembly import sources_of, stage_of
from penstock.pipeline.compile import Pipeline, check_pipeline
from penstock.pipeline.job.gateways import Gateways
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


def context(gateway: str) -> Context:
    servers = "{kafka: {address: 'k:1'}, pulsar: {address: 'pulsar://p:2', kind: pulsar}}"
    Path("penstock.yaml").write_text(f"contexts: {{c: {{servers: {servers}{gateway}}}}}", encoding="utf-8")
    found = load().context()
    assert found is not None
    return found


def test_pulsar_is_reached_through_the_gateway_of_the_context(isolated_home: Path) -> None:
    known = context(", gateway: {address: 'g:3'}")
    text = "routes: {r: {receive: onOrderPlaced, send: [publishLargeOrder, publishAudit]}}"
    made = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode(), context=known).pipeline
    assert made is not None
    gateways = Gateways()
    reached = gateways.reached(made)
    (source,) = sources_of(reached)
    assert {name: each.address for name, each in source.connections.items()} == {
        "kafka": "k:1",
        "pulsar": "g:3",
    }
    assert reached.place("shipments", "kafka").connection.address == "g:3"
    gateways.require_near(SimpleNamespace(sparkContext=SimpleNamespace(master="spark://far:7077")))
    gateways.close()


def test_one_gateway_is_not_for_two_pulsars(isolated_home: Path) -> None:
    with pytest.raises(ConfigError, match="one gateway cannot be for a and b"):
        gateway_of(context(", gateway: {address: 'g:3'}"), ("a", "b"))
    assert gateway_of(context("")) is None


def test_a_cluster_cannot_use_a_gateway_of_this_machine(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def started(pulsar: Connection, namespace: str) -> Iterator[Connection]:
        assert re.fullmatch(r"public/__penstock_[0-9a-f]{12}", namespace)
        yield Connection(address="127.0.0.1:1")

    monkeypatch.setattr("penstock.pipeline.job.gateways.own_gateway", started)
    text = "routes: {r: {receive: onOrderPlaced, send: publishAudit}}"
    made = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode(), context=context("")).pipeline
    assert made is not None
    gateways = Gateways()
    assert gateways.reached(made).gateways["pulsar"].address == "127.0.0.1:1"
    gateways.require_near(SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]")))
    with pytest.raises(PipelineError, match="cannot reach the gateway of this job to pulsar"):
        gateways.require_near(SimpleNamespace(sparkContext=SimpleNamespace(master="spark://far:7077")))
    gateways.close()
