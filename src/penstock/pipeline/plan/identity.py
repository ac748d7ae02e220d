"""The id of an event that a route has changed: derived, so that a second run gives the same.

The id is the first 32 hexadecimal digits of SHA-256 over route, source, id and ordinal, each as a netstring
(its length in bytes as decimal digits, `:`, its UTF-8, `,`): no two different quadruples have the same text.
"""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["ID_LENGTH", "derived_id"]

ID_LENGTH: Final = 32


def derived_id(route: str, source: str, id: str, ordinal: int = 0) -> str:
    """Give the id of the n-th event that a route makes of an event.

    >>> derived_id("large-orders", "/shop", "17")
    'b4175c629eb7a85becbc10648cf42b44'
    """
    parts = (part.encode() for part in (route, source, id, str(ordinal)))
    text = b"".join(b"%d:%s," % (len(part), part) for part in parts)
    return hashlib.sha256(text).hexdigest()[:ID_LENGTH]
