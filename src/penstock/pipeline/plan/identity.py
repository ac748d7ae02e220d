"""The id of an event that a route has changed: derived, so that a second run gives the same.

The id is the first 32 hexadecimal digits of SHA-256 over route, source, id and ordinal, each as a netstring
(its length in bytes as decimal digits, `:`, its UTF-8, `,`): no two different quadruples have the same text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

__all__ = ["ID_LENGTH", "derivation", "derived_id"]

ID_LENGTH: Final = 32


def derived_id(route: str, source: str, id: str, ordinal: int = 0) -> str:
    """Give the id of the n-th event that a route makes of an event.

    >>> derived_id("large-orders", "/shop", "17")
    'b4175c629eb7a85becbc10648cf42b44'
    """
    return derivation(route, ordinal)(source, id)


def derivation(route: str, ordinal: int = 0) -> Callable[[str, str], str]:
    """Return what gives `derived_id` of a route for source and id."""
    first, last = _netstring(route), _netstring(str(ordinal))
    sha256 = hashlib.sha256

    def derive(source: str, id: str) -> str:
        text = b"%s%s%s%s" % (first, _netstring(source), _netstring(id), last)
        return sha256(text).hexdigest()[:ID_LENGTH]

    return derive


def _netstring(part: str) -> bytes:
    raw = part.encode()
    return b"%d:%s," % (len(raw), raw)
