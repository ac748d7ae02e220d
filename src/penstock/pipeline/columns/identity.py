"""The derived id of `plan/identity.py` as a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.pipeline.plan.identity import ID_LENGTH

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["derived_id"]


def derived_id(route: str, source: Column, id: Column) -> Column:
    """Give the id of the first event that a route makes of an event."""
    parts = [F.lit(route), source, id, F.lit("0")]
    netstrings = [
        F.concat(F.octet_length(part).cast("string"), F.lit(":"), part, F.lit(",")) for part in parts
    ]
    return F.substring(F.sha2(F.concat(*netstrings).cast("binary"), 256), 1, ID_LENGTH)
