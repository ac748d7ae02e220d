"""Conditions of routes in Spark's own SQL, over the event columns: each becomes a column of its answers.

An expression that meets a value that it cannot take gives null, and null is not true. So Spark's ANSI mode,
which would end the job, is off while the expressions are made, and a cast is a TRY_CAST: one of a VARIANT
fails in either mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.errors import PipelineError
from penstock.pipeline.frames.decode import RECORD_DDL, decoded, events_of, with_data
from penstock.pipeline.stage import Stage, condition_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["with_conditions"]

_ANSI: Final = "spark.sql.ansi.enabled"
_DIALECT: Final = "databricks"
"""Spark's SQL with paths into a VARIANT."""
_RAW: Final = "_raw_"


def with_conditions(records: DataFrame, stage: Stage) -> DataFrame:
    """Add the answers to the conditions of a stage's routes to its records; none if no route asks."""
    asked = {
        condition_column(number): (route.plan.name, route.sql)
        for number, route in enumerate(stage.routes)
        if route.sql is not None
    }
    if not asked:
        return records
    from pyspark.sql import functions as F

    frame = decoded(records, stage.reader, stage.checks)
    raw = {f"{_RAW}{name}": F.col(name) for name in RECORD_DDL}
    events = events_of(frame.withColumns(raw), rejects=True, beside=tuple(raw))
    events = with_data(events, "variant")
    answered = _answered(events, asked)
    own = (F.col(f"{_RAW}{name}").alias(name) for name in RECORD_DDL)
    return answered.select(*own, *asked)


def _answered(events: DataFrame, asked: Mapping[str, tuple[str, str]]) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    with _without_ansi(events.sparkSession):
        for column, (route, sql) in asked.items():
            try:
                found = events.withColumn(column, F.expr(_forgiving(sql)))
                kind = dict(found.select(column).dtypes)[column]
            except (AnalysisException, ParseException) as exc:
                raise _bad(route, sql, str(exc).strip().splitlines()[0]) from exc
            if kind != "boolean":
                raise _bad(route, sql, f"it gives {kind}, not true or false")
            events = found.withColumn(column, F.coalesce(F.col(column), F.lit(False)))
    return events


def _forgiving(sql: str) -> str:
    """Write casts so that they give null; a text without them stays as it is.

    >>> _forgiving("data:total::int > 100"), _forgiving("id  like 'a%'")
    ('TRY_CAST(data:total AS INT) > 100', "id  like 'a%'")
    """
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(sql, read=_DIALECT)
    except sqlglot.ParseError:
        return sql  # Spark knows more than we do; it says what is wrong, if anything is
    found = 0

    def forgive(node: exp.Expression) -> exp.Expression:
        nonlocal found
        if type(node) is exp.Cast:
            found += 1
            return exp.TryCast(**node.args)
        if isinstance(node, exp.Anonymous) and node.name.lower() == "variant_get":
            found += 1
            node.set("this", "try_variant_get")
        return node

    forgiven = tree.transform(forgive).sql(_DIALECT)
    return forgiven if found else sql


@contextmanager
def _without_ansi(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_ANSI)
    spark.conf.set(_ANSI, "false")
    try:
        yield
    finally:
        spark.conf.set(_ANSI, str(before))


def _bad(route: str, sql: str, why: str) -> PipelineError:
    return PipelineError(
        f"route {route} has a condition that Spark cannot take",
        where=sql[:200],
        why=why,
        next="correct sql; docs/pipeline/dataframes.md has the columns, and data is a VARIANT",
    )
