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
from penstock.pipeline.stage import IS_EVENT, Stage, condition_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["why_unrepeatable", "with_conditions"]

_ANSI: Final = "spark.sql.ansi.enabled"
_DIALECT: Final = "databricks"
"""Spark's SQL with paths into a VARIANT."""
_RAW: Final = "_raw_"


def with_conditions(records: DataFrame, stage: Stage) -> DataFrame:
    """Add the answers to the conditions of a stage's routes to its records, and `IS_EVENT`.

    Nothing is added if no route asks.
    """
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
    raw[f"{_RAW}{IS_EVENT}"] = F.col("event_code").isNull()
    events = events_of(frame.withColumns(raw), rejects=True, beside=tuple(raw))
    events = with_data(events, "variant")
    answered = _answered(events, asked)
    own = (F.col(f"{_RAW}{name}").alias(name) for name in (*RECORD_DDL, IS_EVENT))
    return answered.select(*own, *asked)


_FUNCTIONS: Final = """
abs array_contains array_max array_min array_position base64 bround btrim cardinality ceil ceiling char_length
coalesce concat concat_ws contains crc32 date_add date_format date_part date_sub date_trunc datediff day
dayofmonth dayofweek dayofyear element_at endswith exists extract filter floor forall from_json get
get_json_object greatest hash hex hour if ifnull ilike instr isnan isnotnull isnull json_array_length
json_object_keys last_day lcase least left length levenshtein like locate log lower lpad ltrim map_keys
map_values md5 minute mod month nanvl nullif nvl nvl2 overlay parse_json parse_url pmod position pow power
quarter regexp_count regexp_extract regexp_like regexp_replace repeat replace reverse right rlike round rpad
rtrim schema_of_variant second sha sha1 sha2 sign size sort_array split split_part sqrt startswith substr
substring substring_index to_date to_json to_number to_timestamp transform translate trim try_add try_cast
try_divide try_element_at try_parse_json try_to_number try_to_timestamp try_variant_get typeof ucase unbase64
unhex unix_micros unix_millis unix_seconds upper url_decode url_encode variant_get weekday weekofyear xxhash64
year zeroifnull
"""
_WORDS: Final = """
and array as between by case cast char decimal else from in is like not on or rlike then varchar when
"""
"""What may stand before a bracket and is no function."""
_REPEATABLE: Final = frozenset((_FUNCTIONS + _WORDS).split())
"""Functions of Spark whose answer depends on their arguments alone; of all others that is not known."""
_WITHOUT_BRACKETS: Final = frozenset(
    ("current_catalog", "current_database", "current_date", "current_schema", "current_time")
    + ("current_timestamp", "current_user", "localtimestamp", "session_user", "user")
)
"""Functions that may be written without brackets and do not depend on the event alone."""


def why_unrepeatable(sql: str) -> str | None:
    """Return why a condition may give another answer when it is asked again; None if it does not.

    >>> why_unrepeatable("lower(type) = 'rand()' AND data:n::int IN (1, 2)")
    >>> why_unrepeatable("rand() < 0.5")
    'rand may give another answer to the same event'
    >>> why_unrepeatable("time_ts > current_date")
    'current_date may give another answer to the same event'
    """
    import sqlglot
    from sqlglot.errors import TokenError
    from sqlglot.tokens import TokenType

    try:
        tokens = sqlglot.tokenize(sql, read=_DIALECT)
    except TokenError:
        return "its condition cannot be read here"
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        name = token.text.lower()
        is_called = following is not None and following.token_type is TokenType.L_PAREN
        is_name = token.token_type is not TokenType.STRING and (name[:1].isalpha() or name[:1] == "_")
        if is_name and (name in _WITHOUT_BRACKETS or (is_called and name not in _REPEATABLE)):
            return f"{name} may give another answer to the same event"
    return None


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
