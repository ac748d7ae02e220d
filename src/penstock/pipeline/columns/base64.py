"""Bytes as base64 in one line: Spark breaks it after 76 characters, as mail does, if a setting says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["base64_text"]


def base64_text(raw: Column) -> Column:
    """Write bytes as RFC 4648 section 4 does."""
    return F.translate(F.base64(raw), "\r\n", "")
