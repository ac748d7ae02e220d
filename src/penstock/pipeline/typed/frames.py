"""Operations of a contract for DataFrames: how their records are read, and the Spark type of their data."""

from __future__ import annotations

from collections.abc import Collection

from penstock.contract import ResolvedOperation
from penstock.errors import UsageError
from penstock.pipeline.plain import is_plain, plain_reader
from penstock.pipeline.ports import Checker, Reader
from penstock.pipeline.pulsar import PULSAR, PulsarReader
from penstock.pipeline.stage import read_cloud_events
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import forms_of
from penstock.pipeline.typed.schemas import Schemas
from penstock.pipeline.typed.spark_schema import VARIANT, data_ddl

__all__ = ["joints_of", "typed_data"]

_CHECKS = ("none", "message", "schema")


def joints_of(
    operation: ResolvedOperation,
    check: str,
    schemas: Schemas | None = None,
    dialects: Collection[str] = (),
) -> tuple[Reader, tuple[Checker, ...]]:
    """Give reader and checks of an operation, as a route with this `check` and these `dialects` has them."""
    if check not in _CHECKS:
        raise UsageError(f"check is {check!r:.40}, it must be one of {', '.join(_CHECKS)}")
    reader: Reader = plain_reader(operation) if is_plain(operation) else read_cloud_events
    if operation.protocol == PULSAR and not is_plain(operation):
        reader = PulsarReader.of(dialects)
    if check == "none" or not operation.messages:
        return reader, ()
    table = (schemas or Schemas()).table(operation)
    full = check == "schema"
    return reader, (
        ContractCheck(operation=operation.id, forms=forms_of(operation), schemas=table, full=full),
    )


def typed_data(operation: ResolvedOperation) -> str:
    """Give the type of the data of an operation: what all its messages have, else `variant`."""
    kinds = {data_ddl(message) for message in operation.messages}
    only = kinds.pop() if len(kinds) == 1 else VARIANT
    return only if only.startswith(("STRUCT<", "ARRAY<", "MAP<")) else VARIANT.lower()
