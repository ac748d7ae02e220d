"""What the job refuses before Spark is started, and how it groups routes by source."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PipelineError
from penstock.pipeline.assembly import sources_of, stage_of
from penstock.pipeline.compile import Pipeline, check_pipeline

SHOP = Path(__file__).parents[3] / "examples" / "shop"


def pipeline(extra: str = "", send: str = "publishLargeOrder") -> Pipeline:
    text = f"routes:\n  r:\n    receive: onOrderPlaced\n    send: {send}\n{extra}"
    checked = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode())
    assert checked.pipeline is not None, checked.findings
    return checked.pipeline


@pytest.mark.parametrize(
    ("extra", "send", "why"),
    [
        ("", "publishShipment", "leaves Kafka"),
    ],
)
def test_what_the_engine_cannot_do_is_refused_by_name(extra: str, send: str, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        sources_of(pipeline(extra, send))


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
