"""Rules of core that a column of texts certainly keeps, judged by whole columns.

Each rule gives a mask: True is certain, False is "ask penstock.events". The regular expressions are RE2's:
linear in time, whatever the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.media import is_media_type
from penstock.events.rules import is_uri
from penstock.events.timestamp import COMMON
from penstock.pipeline.arrow.buffers import bytes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

__all__ = ["certainly_valid", "texts_of"]

# RFC 3986 4.1, the kind without percent signs, queries and authorities: a scheme or none, then plain
# characters. A colon may only end the scheme.
_REFERENCE = r"^(?:[A-Za-z][A-Za-z0-9+.\-]*:)?[A-Za-z0-9\-._~!$&'()*+,;=/]+$"
_TIME = f"^(?:{COMMON})$"
_SPACE, _DELETE = 0x20, 0x7F
_FEW = 64
"""A column with at most this many different values is judged by asking for each value once."""


def texts_of(values: pa.BinaryArray) -> tuple[pa.StringArray, Mask | None]:
    """Read bytes as UTF-8; the mask says which rows are text and have a value, None if all."""
    sound = None
    try:
        texts = values.cast(pa.utf8())
    except pa.ArrowInvalid:
        good = [_is_utf8(value) for value in values.to_pylist()]
        sound = np.array(good, dtype=bool)
        texts = pc.if_else(pa.array(good), values, pa.scalar(b"")).cast(pa.utf8())
    if texts.null_count:
        there = texts.is_valid().to_numpy(zero_copy_only=False)
        sound = there if sound is None else sound & there
    return texts, sound


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is not None and value.decode() is not None
    except UnicodeDecodeError:
        return False


def certainly_valid(name: str, texts: pa.StringArray) -> Mask:
    """Say which texts are certainly legal values of an attribute; no null may be among them."""
    return _RULES.get(name, _printable)(texts)


def _mask(found: pa.BooleanArray) -> Mask:
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)


def _printable(texts: pa.StringArray) -> Mask:
    written = bytes_of(texts)
    if not len(written) or (written.min() >= _SPACE and written.max() < _DELETE):
        return np.ones(len(texts), dtype=bool)
    # Printable in Unicode's sense leaves out controls, surrogates and noncharacters (core, String).
    return _mask(pc.utf8_is_printable(texts))


def _filled(texts: pa.StringArray) -> Mask:
    return _printable(texts) & _mask(pc.greater(pc.binary_length(texts), 0))


def _matching(pattern: str) -> Callable[[pa.StringArray], Mask]:
    return lambda texts: _mask(pc.match_substring_regex(texts, pattern))


def _source(texts: pa.StringArray) -> Mask:
    matching = _matching(_REFERENCE)
    encoded = texts.dictionary_encode()
    if len(encoded.dictionary) > len(texts) // 4:
        return matching(texts)
    verdicts = matching(encoded.dictionary)
    return np.asarray(verdicts[encoded.indices.to_numpy()], dtype=bool)


def _each_value(rule: Callable[[str], bool]) -> Callable[[pa.StringArray], Mask]:
    def judge(texts: pa.StringArray) -> Mask:
        encoded = texts.dictionary_encode()
        if len(encoded.dictionary) > _FEW:
            return np.zeros(len(texts), dtype=bool)
        verdicts = np.array([rule(value) for value in encoded.dictionary.to_pylist()], dtype=bool)
        return verdicts[encoded.indices.to_numpy()] if len(verdicts) else np.zeros(len(texts), dtype=bool)

    return judge


def _is_legal_media_type(text: str) -> bool:
    return text.isprintable() and is_media_type(text)


def _is_legal_schema(text: str) -> bool:
    return text.isprintable() and is_uri(text)


_RULES: Mapping[str, Callable[[pa.StringArray], Mask]] = {
    "specversion": lambda texts: _mask(pc.equal(texts, "1.0")),
    "id": _filled,
    "type": _filled,
    "subject": _filled,
    "partitionkey": _filled,
    "source": _source,
    "time": _matching(_TIME),
    "datacontenttype": _each_value(_is_legal_media_type),
    "dataschema": _each_value(_is_legal_schema),
}
