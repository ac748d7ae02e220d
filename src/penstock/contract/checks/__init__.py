"""The checks that look at more than one object, one module per family of rules; run in this order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.contract.checks.channels import check_channels
from penstock.contract.checks.kafka import check_kafka
from penstock.contract.checks.operations import check_operations
from penstock.contract.checks.pulsar import check_pulsar
from penstock.contract.checks.schemas import check_schemas
from penstock.contract.checks.servers import check_servers
from penstock.contract.document import Contract
from penstock.contract.finding import Report

__all__ = ["run_checks"]

_CHECKS: Final[tuple[Callable[[Contract, Report], None], ...]] = (
    check_servers,
    check_channels,
    check_operations,
    check_schemas,
    check_kafka,
    check_pulsar,
)


def run_checks(contract: Contract, report: Report) -> None:
    """Report every rule that the document breaks as a whole."""
    for check in _CHECKS:
        check(contract, report)
