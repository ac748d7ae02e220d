r"""JSON text to one column per path, exactly, with Spark's own code-generated functions.

Spark's parsers round numbers, forget whether a value was a string, and stop at the first value of a text. So
the text is rewritten before it is parsed: `\\` and `\"` become `\u005c` and `\u0022`, after which every
string is `"[^"]*"`; each string gets an s before its first character, and each number becomes a string. The
parser then sees strings only, and its verdict is that of RFC 8259. Two wrappings show that nothing follows
the value: text that could end `{"d":...}` early cannot be one element of `[...]`, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline.columns.binding import Binding, path_column
from penstock.pipeline.plan.bounds import MAX_BYTES, MAX_DEPTH, MAX_NUMBER
from penstock.pipeline.plan.nodes import Step
from penstock.pipeline.plan.numbers import NUMBER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["with_paths"]

# JSON format 3.1.1: "the media subtype is json or has +json as structured syntax suffix"; white space as
# Python's strip takes it.
_SPACE: Final = (
    r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*"
)
_IS_JSON: Final = rf"(?i)\A[^;]*[/+]json{_SPACE}(?:;|\z)"
_TEXT, _TREE = "_json_text", "_json_tree"


def with_paths(
    frame: DataFrame, binding: Binding, paths: Iterable[tuple[Step, ...]], needed: Column | None = None
) -> DataFrame:
    """Add the column of every path, and whether the data is unreadable.

    Rows for which `needed` is not true are not parsed; their paths are null.
    """
    claims = F.col(binding.json) if binding.json else F.coalesce(_says_json(binding), F.lit(False))
    wanted = claims & F.col(binding.data).isNotNull()
    wanted = wanted if needed is None else wanted & F.coalesce(needed, F.lit(False))
    text = F.col(binding.data).cast("string")
    sound = (F.octet_length(F.col(binding.data)) <= MAX_BYTES) & F.is_valid_utf8(text)
    # Each step is a projection of its own: Spark computes a column once that the next step uses often.
    frame = frame.withColumn(_TEXT, F.when(wanted & sound, _rewritten(text)))
    frame = frame.withColumn(
        _TREE, F.when(_is_one_value(F.col(_TEXT)), F.try_parse_json(_wrapped('{"d":', F.col(_TEXT), "}")))
    )
    tree = F.col(_TREE)
    columns = {path_column(path): F.try_variant_get(tree, _variant_path(path), "string") for path in paths}
    columns[binding.unreadable] = wanted & tree.isNull()
    return frame.withColumns(columns).drop(_TEXT, _TREE)


def _says_json(binding: Binding) -> Column:
    return binding.attribute("datacontenttype").rlike(_IS_JSON)


def _rewritten(text: Column) -> Column:
    for escaped, code in (("\\\\", "\\u005c"), ('\\"', "\\u0022")):
        text = F.replace(text, F.lit(escaped), F.lit(code))
    marked = F.regexp_replace(text, '"([^"]*)"', '"s$1"')
    return F.regexp_replace(marked, f'"([^"]*)"|({NUMBER})', '"$1$2"')


def _wrapped(opening: str, text: Column, closing: str) -> Column:
    return F.concat(F.lit(opening), text, F.lit(closing))


def _is_one_value(text: Column) -> Column:
    long_number = text.rlike(f'"[-0-9][-+.0-9eE]{{{MAX_NUMBER},}}')
    return (F.json_array_length(_wrapped("[", text, "]")) == 1) & ~long_number & ~_is_deep(text)


def _is_deep(text: Column) -> Column:
    """Count brackets only where there are enough of them, strings included, to be too deep."""
    few = F.char_length(text) - F.char_length(F.translate(text, "[{", "")) <= MAX_DEPTH
    brackets = F.regexp_replace(F.regexp_replace(text, '"[^"]*"', ""), r"[^\[\]{}]+", "")
    return F.when(few, False).otherwise(_deepest(brackets) > MAX_DEPTH)


def _deepest(brackets: Column) -> Column:
    start = F.struct(F.lit(0).alias("now"), F.lit(0).alias("most"))

    def step(state: Column, bracket: Column) -> Column:
        now = state["now"] + F.when(bracket.isin("[", "{"), 1).otherwise(-1)
        return F.struct(now.alias("now"), F.greatest(state["most"], now).alias("most"))

    return F.aggregate(F.split(brackets, ""), start, step, lambda state: state["most"])


def _variant_path(path: tuple[Step, ...]) -> str:
    return "$.d" + "".join(f"[{step}]" if isinstance(step, int) else _quoted(step) for step in path)


def _quoted(name: str) -> str:
    quote = '"' if "'" in name else "'"
    return f"[{quote}s{name}{quote}]"
