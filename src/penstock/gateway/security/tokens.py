"""What a JSON Web Token says of itself (RFC 7519). Pulsar checks tokens; nothing here is believed before.

A principal gets new tokens from time to time: what differs between two of them is when they were made and
when they end. Everything else together is who it is, whichever claim Pulsar takes the role from.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["expires_at", "identity", "subject"]

_PARTS: Final = 3
_OF_TIME: Final = frozenset({"exp", "iat", "nbf", "jti"})
_LONGEST_NAME: Final = 256
_FARTHEST: Final = 1e12


def _claims(token: str) -> Mapping[str, Any]:
    """Read the claims; none of a token that is no JSON Web Token."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def expires_at(token: str) -> float | None:
    """Give when a token ends, in seconds since 1970; None if it does not say.

    >>> expires_at("e30.eyJleHAiOiAxMjN9.x"), expires_at("opaque")
    (123.0, None)
    """
    found = _claims(token).get("exp")
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    # A time that no clock reaches is none, and a float has no place for some of them.
    return float(found) if abs(found) < _FARTHEST else None


def subject(token: str) -> str | None:
    """Give the name of the principal; None if the token tells none that could be shown.

    >>> subject("e30.eyJzdWIiOiAiYW5uIn0.x")
    'ann'
    """
    found = _claims(token).get("sub")
    fits = isinstance(found, str) and 0 < len(found) <= _LONGEST_NAME and found.isprintable()
    return found if fits else None


def identity(token: str) -> str:
    """Give what stays the same when a principal gets a new token; the token itself if it tells nothing.

    >>> identity("e30.eyJzdWIiOiAiYW5uIiwgImV4cCI6IDF9.x") == identity("e30.eyJzdWIiOiAiYW5uIn0.y")
    True
    """
    kept = {name: value for name, value in _claims(token).items() if name not in _OF_TIME}
    return json.dumps(kept, sort_keys=True) if kept else token
