"""What a cluster is called: a random id, written as Kafka writes its own."""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64encode
from typing import Final

__all__ = ["is_cluster_id", "new_cluster_id"]

_LEGAL: Final = re.compile(r"[A-Za-z0-9_-]{22}")


def new_cluster_id() -> str:
    """Choose an id: 16 random bytes in 22 characters."""
    return urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")


def is_cluster_id(text: object) -> bool:
    """Say whether a text is such an id.

    >>> is_cluster_id(new_cluster_id()), is_cluster_id("penstock"), is_cluster_id(None)
    (True, False, False)
    """
    return isinstance(text, str) and _LEGAL.fullmatch(text) is not None
