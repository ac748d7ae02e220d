"""What a job counts in Spark's metrics system, where Spark ignores a second metric of the same name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from penstock.pipeline.job import Progress, spark_metrics
from penstock.pipeline.job.spark_metrics import SparkMetrics


class Accumulator:
    def __init__(self) -> None:
        self.value = 0

    def add(self, value: int) -> None:
        self.value += value


class Map(dict[str, Accumulator]):
    def put(self, key: str, value: Accumulator) -> None:
        self[key] = value


class Spark:
    """An application of Spark with its registry of metrics."""

    def __init__(self, application: str = "app-1") -> None:
        self.metrics: dict[str, Accumulator] = {}
        python_utils = SimpleNamespace(toScalaMap=lambda found: found)
        spark = SimpleNamespace(api=SimpleNamespace(python=SimpleNamespace(PythonUtils=python_utils)))
        jvm = SimpleNamespace(
            java=SimpleNamespace(util=SimpleNamespace(HashMap=Map)),
            org=SimpleNamespace(apache=SimpleNamespace(spark=spark)),
        )
        module = SimpleNamespace(register=self._register)
        vars(jvm)["org.apache.spark.metrics.source.LongAccumulatorSource$"] = SimpleNamespace(
            **{"MODULE$": module}
        )
        scala = SimpleNamespace(longAccumulator=lambda name: Accumulator())
        self.sparkContext = SimpleNamespace(
            applicationId=application, _jvm=jvm, _jsc=SimpleNamespace(sc=lambda: scala)
        )

    def _register(self, scala: Any, named: Map) -> None:
        # As Dropwizard's registry: the first name that exists ends it, and Spark lets that pass.
        for name, accumulator in named.items():
            if name in self.metrics:
                return
            self.metrics[name] = accumulator

    def shown(self) -> dict[str, int]:
        return {name: each.value for name, each in self.metrics.items() if each.value}


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_metrics, "_applications", {})


def job(spark: Spark, *sources: str) -> SparkMetrics:
    return SparkMetrics(spark, list(sources))  # type: ignore[arg-type]


def read(source: str, records: int) -> Progress:
    return Progress(source=source, batch=1, counts={"n_in": records}, seconds=0.1, lag=0, lost=0)


def test_a_second_job_of_a_session_is_counted_too() -> None:
    spark = Spark()
    job(spark, "a").batch(read("a", 3))
    second = job(spark, "a", "b")
    second.batch(read("a", 4))
    second.batch(read("b", 5))
    second.lost("b", 1)
    assert spark.shown() == {"penstock.a.in": 7, "penstock.b.in": 5, "penstock.b.lost": 1}


def test_another_application_begins_anew() -> None:
    first, second = Spark("app-1"), Spark("app-2")
    job(first, "a").batch(read("a", 3))
    job(second, "a").batch(read("a", 4))
    assert second.shown() == {"penstock.a.in": 4}


@pytest.mark.parametrize("together", [True, False])
def test_sources_whose_names_differ_in_a_point_are_two(together: bool) -> None:
    spark = Spark()
    jobs = [job(spark, "a.b", "a_b")] * 2 if together else [job(spark, "a.b"), job(spark, "a_b")]
    jobs[0].batch(read("a.b", 3))
    jobs[1].batch(read("a_b", 4))
    assert spark.shown() == {"penstock.a_b.in": 3, "penstock.a_b_2.in": 4}


@pytest.mark.parametrize("error", [Py4JError("gone"), ConnectionRefusedError(111, "Connection refused")])
def test_a_java_that_is_gone_is_not_told_by_the_metrics(error: Exception) -> None:
    def add(value: int) -> None:
        raise error

    made = job(Spark(), "a")
    for accumulator in made._accumulators["a"].values():
        accumulator.add = add
    made.batch(read("a", 3))
    made.lost("a", 1)


def test_everything_that_is_counted_is_shown() -> None:
    spark, counts = Spark(), {"n_in": 9, "n_out": 4, "n_dead": 3, "n_unmatched": 2, "n_expired": 1}
    job(spark, "a").batch(Progress(source="a", batch=1, counts=counts, seconds=0.1, lag=0, lost=0))
    expected = {"in": 9, "out": 4, "dead": 3, "unmatched": 2}
    assert spark.shown() == {f"penstock.a.{name}": count for name, count in expected.items()}
