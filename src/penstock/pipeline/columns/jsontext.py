r"""JSON text to one column per path, exactly, with Spark's own code-generated functions.

Spark's parsers round numbers, forget whether a value was a string, and stop at the first value of a text. So
each text is parsed between `[` and a second element that it cannot forge: if that is found behind it, nothing
followed the value. *Plain* text (no backslash, no number that a VARIANT would round) is parsed as it is. Any
other is rewritten first: `\\` and `\"` become `\u005c` and `\u0022`, after which every string is `"[^"]*"`;
each string gets an s before its first character, and each number becomes a string. The parser then sees
strings only, and its verdict is that of RFC 8259.
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

__all__ = ["SPACE", "says_json", "with_paths"]

# JSON format 3.1.1: "the media subtype is json or has +json as structured syntax suffix"; white space as
# Python's strip takes it.
SPACE: Final = (
    r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*"
)
_IS_JSON: Final = rf"(?i)\A[^;]*[/+]json{SPACE}(?:;|\z)"
_TEXT, _PLAIN, _TREE = "_json_text", "_json_plain", "_json_tree"
_MAX_PLAIN: Final = 40_000
"""Bytes of a plain text: shorter than the longest name that may be read, so that none is looked for."""
# A number with an exponent, or of so many digits that a decimal of 38 may not hold it; also inside a string.
_ROUNDED: Final = r"(?:\A|[:\[,\s])-?[0-9]+(?:\.[0-9]+)?[eE]|[0-9]{20}"
# What follows the text: plain text has no backslash, strings of rewritten text begin with s, - or a digit.
_AFTER_PLAIN, _AFTER = "\\u0001", "x"


def with_paths(
    frame: DataFrame, binding: Binding, paths: Iterable[tuple[Step, ...]], needed: Column | None = None
) -> DataFrame:
    """Add the column of every path, and whether the data is unreadable.

    Rows for which `needed` is not true are not parsed; their paths are null.
    """
    declared = F.coalesce(says_json(binding.attribute("datacontenttype")), F.lit(False))
    claims = F.col(binding.json) if binding.json else declared
    wanted = claims & F.col(binding.data).isNotNull()
    wanted = wanted if needed is None else wanted & F.coalesce(needed, F.lit(False))
    text, plain, tree = F.col(_TEXT), F.col(_PLAIN), F.col(_TREE)
    # Each step is a projection of its own: Spark computes a column once that the next step uses often.
    frame = frame.withColumns({binding.unreadable: wanted, _TEXT: F.when(wanted, _sound_text(binding))})
    frame = frame.withColumn(_PLAIN, _is_plain(text))
    frame = frame.withColumn(_TREE, F.try_parse_json(_element(text, plain)))
    frame = frame.withColumn(_TREE, F.when(_is_one_value(tree, text, plain), tree))
    names = {path: path_column(path) for path in paths}
    frame = frame.withColumns({name: _found(tree, plain, path) for path, name in names.items()})
    columns = {name: _tagged(F.col(name), plain) for name in names.values()}
    unreadable = F.col(binding.unreadable) & tree.isNull()
    return frame.withColumns(columns | {binding.unreadable: unreadable}).drop(_TEXT, _PLAIN, _TREE)


def says_json(media_type: Column) -> Column:
    """Tell whether data of this type is JSON."""
    return media_type.rlike(_IS_JSON)


def _sound_text(binding: Binding) -> Column:
    """Give the data as text, or null where it is too large or not UTF-8."""
    data = F.col(binding.data)
    sound = (F.octet_length(data) <= MAX_BYTES) & F.is_valid_utf8(data.cast("string"))
    return F.when(sound, data.cast("string"))


def _is_plain(text: Column) -> Column:
    short = F.octet_length(text) <= _MAX_PLAIN
    return short & ~F.contains(text, F.lit("\\")) & ~text.rlike(_ROUNDED)


def _element(text: Column, plain: Column) -> Column:
    """Give the array that is parsed: the text and what has to be found behind it."""
    as_it_is = F.concat(F.lit("["), text, F.lit(f',"{_AFTER_PLAIN}"]'))
    return F.when(plain, as_it_is).otherwise(F.concat(F.lit("["), _rewritten(text), F.lit(f',"{_AFTER}"]')))


def _rewritten(text: Column) -> Column:
    for escaped, code in (("\\\\", "\\u005c"), ('\\"', "\\u0022")):
        text = F.replace(text, F.lit(escaped), F.lit(code))
    marked = F.regexp_replace(text, '"([^"]*)"', '"s$1"')
    return F.regexp_replace(marked, f'"([^"]*)"|({NUMBER})', '"$1$2"')


def _is_one_value(tree: Column, text: Column, plain: Column) -> Column:
    after = F.when(plain, "\x01").otherwise(_AFTER)
    long_number = ~plain & text.rlike(f"[-0-9][-+.0-9eE]{{{MAX_NUMBER},}}") & _has_long_number(text)
    return (F.try_variant_get(tree, "$[1]", "string") == after) & ~long_number & ~_is_deep(text)


def _has_long_number(text: Column) -> Column:
    return _rewritten(text).rlike(f'"[-0-9][-+.0-9eE]{{{MAX_NUMBER},}}')


def _is_deep(text: Column) -> Column:
    """Count brackets only where there are enough of them, strings included, to be too deep."""
    few = F.char_length(text) - F.char_length(F.translate(text, "[{", "")) <= MAX_DEPTH
    without_strings = F.regexp_replace(_rewritten(text), '"[^"]*"', "")
    brackets = F.regexp_replace(without_strings, r"[^\[\]{}]+", "")
    short = F.octet_length(text) <= 2 * MAX_DEPTH
    return F.when(short, False).when(few, False).otherwise(_deepest(brackets) > MAX_DEPTH)


def _deepest(brackets: Column) -> Column:
    start = F.struct(F.lit(0).alias("now"), F.lit(0).alias("most"))

    def step(state: Column, bracket: Column) -> Column:
        now = state["now"] + F.when(bracket.isin("[", "{"), 1).otherwise(-1)
        return F.struct(now.alias("now"), F.greatest(state["most"], now).alias("most"))

    return F.aggregate(F.split(brackets, ""), start, step, lambda state: state["most"])


def _found(tree: Column, plain: Column, path: tuple[Step, ...]) -> Column:
    as_it_is, rewritten = (F.try_variant_get(tree, _variant_path(path, tag), "variant") for tag in ("", "s"))
    return F.when(plain, as_it_is).otherwise(rewritten)


def _tagged(value: Column, plain: Column) -> Column:
    """Give a value as tagged text; a number in plain text has lost its trailing zeros, which mean nothing."""
    text = F.try_variant_get(value, "$", "string")
    written = F.to_json(value)
    is_string = F.startswith(written, F.lit('"'))
    as_it_is = F.when(is_string, F.concat(F.lit("s"), text)).when(written != "null", written)
    return F.when(plain, as_it_is).otherwise(text)


def _variant_path(path: tuple[Step, ...], tag: str) -> str:
    return "$[0]" + "".join(f"[{step}]" if isinstance(step, int) else _quoted(tag + step) for step in path)


def _quoted(name: str) -> str:
    quote = '"' if "'" in name else "'"
    return f"[{quote}{name}{quote}]"
