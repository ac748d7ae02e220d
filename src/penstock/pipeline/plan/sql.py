"""Spark SQL text to a plan expression: bounds, parsing by `sqlglot`, and the findings.

What the plan has no node for is refused with its name; it is allowed under `sql:`, which Spark answers.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from penstock.errors import MissingExtra, PipelineError
from penstock.pipeline.plan.coercion import NotConvertible, converted
from penstock.pipeline.plan.finding import ExpressionFinding, ExpressionReading
from penstock.pipeline.plan.nodes import Node, Type
from penstock.pipeline.plan.typing import check

__all__ = ["many_events_problem", "parse_sql", "read_sql", "syntax_problem"]

MAX_CHARACTERS: Final = 10_000
MAX_TOKENS: Final = 2_000
MAX_BRACKETS: Final = 40
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def parse_sql(text: str, want: Type = Type.BOOLEAN, *, path: str | None = None) -> Node:
    """Read an expression; InvalidExpression says what is wrong, where, and what to write instead.

    >>> from penstock.pipeline.plan.explain import explain
    >>> explain(parse_sql("type = 'order.placed' AND data.total >= 100"))
    "type = 'order.placed' AND number_of_json(data.total) >= 100"
    >>> parse_sql("type = 5 AND 'x'")
    Traceback (most recent call last):
    penstock.errors.InvalidExpression: 'x' is text, not a boolean; at column 14; next: write it without quotes
    """
    return read_sql(text, want).expression(path)


def read_sql(text: str, want: Type = Type.BOOLEAN) -> ExpressionReading:
    """Read an expression and give all findings, in the order of the text."""
    try:
        return _read(text, want)
    except RecursionError:
        return _failed("the expression is nested too deeply", fix="use IN for long lists, or several routes")


def syntax_problem(text: str) -> str | None:
    """Say why a text is hardly SQL of Spark; None if it looks like it. Names are not looked up.

    >>> syntax_problem("data:total::int >= 100"), syntax_problem("data:total::int >=")
    (None, 'not a SQL expression: something is missing behind this')
    """
    try:
        parsed = _parsed(text, dialect="databricks")
    except RecursionError:
        return "the expression is nested too deeply"
    return parsed.what if isinstance(parsed, ExpressionFinding) else None


def many_events_problem(text: str) -> ExpressionFinding | None:
    """Say what in Spark's SQL no condition can do: aggregates, windows, queries and generators.

    >>> many_events_problem("count(data:n) > 3").what
    'COUNT looks at many events, a condition looks at one'
    """
    from penstock.pipeline.plan.sql_builder import ONE_EVENT, many_events

    try:
        parsed = _parsed(text, dialect="databricks")
        problem = None if isinstance(parsed, ExpressionFinding) else many_events(parsed)
    except RecursionError:
        return None
    return None if problem is None else ExpressionFinding(0, problem, fix=ONE_EVENT)


def _read(text: str, want: Type) -> ExpressionReading:
    parsed = _parsed(text)
    if isinstance(parsed, ExpressionFinding):
        return ExpressionReading(None, (parsed,))
    from penstock.pipeline.plan.sql_builder import Builder

    builder = Builder(text)
    node = builder.build(parsed)
    try:
        node = converted(node, want, scalar_text=True)
        check(node)
    except NotConvertible as wrong:
        builder.report(parsed, wrong.what, fix=wrong.fix)
    except PipelineError as wrong:
        builder.report(parsed, wrong.what, fix=wrong.next or "")
    findings = tuple(sorted(builder.findings, key=lambda found: found.position))
    return ExpressionReading(None if findings else node, findings)


def _failed(what: str, position: int = 0, why: str = "", fix: str = "") -> ExpressionReading:
    return ExpressionReading(None, (ExpressionFinding(position, what, why, fix),))


def _parsed(text: str, dialect: str = "spark") -> Any:
    """Give sqlglot's tree, or the finding that says why there is none."""
    try:
        import sqlglot
        from sqlglot import expressions
    except ImportError:
        raise MissingExtra("spark", "sqlglot", purpose="reading SQL expressions") from None
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # findings are ours to give
    if len(text) > MAX_CHARACTERS:
        return ExpressionFinding(0, f"an expression of {len(text)} characters; at most {MAX_CHARACTERS}")
    try:
        tokens = sqlglot.tokenize(text, read=dialect)
        wrong = _bounds(tokens)
        return wrong or sqlglot.parse_one(text, read=dialect, into=expressions.Condition)
    except RecursionError:
        raise
    except Exception as exc:  # noqa: BLE001 - hostile text makes the parser raise many things
        return _syntax_finding(text, exc)


def _bounds(tokens: list[Any]) -> ExpressionFinding | None:
    if not tokens:
        return ExpressionFinding(0, "the expression is empty")
    if len(tokens) > MAX_TOKENS:
        return ExpressionFinding(0, f"an expression of {len(tokens)} words and signs; at most {MAX_TOKENS}")
    depth = 0
    for before, token in zip((None, *tokens), tokens, strict=False):
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if depth > MAX_BRACKETS:
            return ExpressionFinding(token.start, f"more than {MAX_BRACKETS} brackets in each other")
        if before and before.token_type == token.token_type and token.token_type.name == "STRING":
            # Spark 4 reads '' in a text as a quote, others as two texts in a row: we do not guess.
            return ExpressionFinding(
                token.start, "two texts side by side", fix="write \\' for a quote inside a text"
            )
    return None


def _syntax_finding(text: str, exc: Exception) -> ExpressionFinding:
    errors = getattr(exc, "errors", None) or [{}]
    line, column = errors[0].get("line"), errors[0].get("col")
    description = errors[0].get("description") or "it cannot be read"
    if description.startswith("Required keyword"):  # sqlglot speaks of its own classes here
        description = "something is missing behind this"
    position = _offset(text, line, column) if line and column else 0
    return ExpressionFinding(
        min(position, len(text)),
        f"not a SQL expression: {description}".rstrip("."),
        fix="see docs/pipeline/expressions.md",
    )


def _offset(text: str, line: int, column: int) -> int:
    """Give the character that sqlglot's line and column (of the last character of a token) mean."""
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + max(column - 1, 0)
