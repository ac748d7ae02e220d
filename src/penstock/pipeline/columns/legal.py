r"""The rules of core for attributes as columns: the same yes and no as `penstock.events.rules`.

Java's regular expressions call themselves once for each round of a repeated group, so a hostile text could
exhaust the stack. Here only single characters are repeated; where a grammar needs a group, the text is short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.events.rules import NON_EMPTY, SPECVERSION
from penstock.pipeline.columns.times import is_timestamp

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["ILLEGAL", "LONGEST_MEDIA_TYPE", "is_legal"]

LONGEST_MEDIA_TYPE: Final = 512
"""Characters: a longer content type is not judged by columns."""

# core, String: the characters that no attribute may hold, in the words of Java's regular expressions.
_NONCHARACTERS: Final = (plane * 0x10000 + last for plane in range(17) for last in (0xFFFE, 0xFFFF))
ILLEGAL: Final = (
    r"[\x00-\x1f\x7f-\x{9f}\x{fdd0}-\x{fdef}" + "".join(rf"\x{{{code:x}}}" for code in _NONCHARACTERS) + "]"
)

# RFC 3986: a percent sign counts as a plain character here, and whether two digits follow is asked apart.
_PLAIN: Final = r"A-Za-z0-9\-._~!$&'()*+,;=%"
_TAIL: Final = rf"(?:\?[{_PLAIN}:@/?]*+)?(?:\#[{_PLAIN}:@/?]*+)?"
_HOST: Final = rf"(?:\[(?:[0-9A-Fa-f:.]++|v[0-9A-Fa-f]++\.[A-Za-z0-9\-._~!$&'()*+,;=:]++)\]|[{_PLAIN}]*+)"
_AUTHORITY: Final = rf"//(?:[{_PLAIN}:]*+@)?{_HOST}(?::[0-9]*)?(?=[/?#]|\z)"
_HIERARCHY: Final = rf"(?:{_AUTHORITY}|(?!//))[{_PLAIN}:@/]*+{_TAIL}\z"
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.\-]*:"
_COMMON: Final = rf"(?:{_SCHEME})?[A-Za-z0-9\-._~!$&'()*+,;=/]++\z"
# RFC 3986 4.1 and 4.2: a relative reference has no colon in its first segment.
_REFERENCE: Final = rf"\A(?:{_COMMON}|(?:{_SCHEME}|(?![^/?#]*:)){_HIERARCHY})"
_URI: Final = rf"\A{_SCHEME}{_HIERARCHY}"
_BAD_PERCENT: Final = "%(?![0-9A-Fa-f]{2})"

# RFC 2045 5.1: type "/" subtype *(";" attribute "=" value).
_TOKEN: Final = r"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]++"
_QUOTED: Final = r'"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\x{10ffff}]|\\[\t\x20-\x{10ffff}])*+"'
_PARAMETER: Final = rf"[ \t]*+;[ \t]*+(?:{_TOKEN}=(?:{_TOKEN}|{_QUOTED}))?+"
_MEDIA_TYPE: Final = rf"\A{_TOKEN}/{_TOKEN}(?:{_PARAMETER})*+[ \t]*+\z"


def is_legal(name: str, text: Column) -> Column:
    """Tell whether an attribute may have this text, which is UTF-8 without `ILLEGAL` characters."""
    rule = _RULES.get(name)
    if rule is not None:
        return rule(text)
    return text != "" if name in NON_EMPTY else F.lit(True)


def _follows(grammar: str) -> Callable[[Column], Column]:
    return lambda text: text.rlike(grammar) & ~text.rlike(_BAD_PERCENT)


def _is_media_type(text: Column) -> Column:
    return F.when(F.char_length(text) <= LONGEST_MEDIA_TYPE, text.rlike(_MEDIA_TYPE)).otherwise(False)


_RULES: Final[Mapping[str, Callable[[Column], Column]]] = {
    "specversion": lambda text: text == SPECVERSION,
    "source": lambda text: (text != "") & _follows(_REFERENCE)(text),
    "dataschema": lambda text: (text != "") & _follows(_URI)(text),
    "time": is_timestamp,
    "datacontenttype": _is_media_type,
}
