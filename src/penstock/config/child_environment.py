"""Which environment variables a child process gets: a table of names for each kind of child.

A child gets nothing but these. Passwords that the configuration refers to by `${env:NAME}` are in the
environment of this process; a child could read them, and so could everybody who may read its
`/proc/PID/environ`. A function of the user gets more only if its context grants it by name
(`contexts.*.functions.environment.*`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.config.files import FILES_VARIABLE
from penstock.config.keys import KEYS

__all__ = ["Child", "child_environment"]


@dataclass(frozen=True, slots=True)
class _Variables:
    """Names, and prefixes of names."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return name in self.names or name.startswith(self.prefixes)

    def __or__(self, other: _Variables) -> _Variables:
        return _Variables(self.names | other.names, self.prefixes + other.prefixes)


def _variables(names: str, *prefixes: str) -> _Variables:
    return _Variables(frozenset(names.split()), prefixes)


_SYSTEM: Final = _variables(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TZDIR TMPDIR TMP TEMP XDG_CACHE_HOME LD_LIBRARY_PATH "
    "LD_PRELOAD DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH SSL_CERT_FILE SSL_CERT_DIR",
    "LC_",
    "MALLOC_",
)
# Not by the prefix PYTHON: Spark puts the secrets of its workers into PYTHON_WORKER_FACTORY_*.
_PYTHON: Final = _variables(
    "PYTHONPATH PYTHONHOME PYTHONHASHSEED PYTHONUTF8 PYTHONIOENCODING PYTHONWARNINGS PYTHONUNBUFFERED "
    "PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX PYTHONFAULTHANDLER PYTHONDEVMODE PYTHONMALLOC "
    "PYTHONNOUSERSITE PYTHONUSERBASE PYTHONSAFEPATH PYTHONTRACEMALLOC PYTHON_CPU_COUNT VIRTUAL_ENV",
    "NUMBA_",
    "OMP_",
    "OPENBLAS_",
    "MKL_",
    "ARROW_",
)
_JAVA: Final = _variables("JAVA_HOME JAVA_OPTS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS")
_PROXY: Final = _variables(
    "http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY"
)
# Not by the prefix PENSTOCK_: a user may call a password of a broker so.
_OWN: Final = _Variables(frozenset(filter(None, (key.variable for key in KEYS)))) | _variables(
    f"PENSTOCK_MAVEN_MIRROR {FILES_VARIABLE}"
)
# Spark's own variables, what its cluster managers are found by, and what it reads for Hadoop's file systems.
_SPARK: Final = _variables(
    "KUBECONFIG GOOGLE_APPLICATION_CREDENTIALS",
    "SPARK_",
    "PYSPARK_",
    "_PYSPARK_",
    "HADOOP_",
    "YARN_",
    "KUBERNETES_",
    "KRB5",
    "AWS_",
)


class Child(Enum):
    """The kinds of child processes, each with the variables that it needs."""

    SERVER = _SYSTEM | _JAVA
    """A Java program: an embedded server with its guard, and what prepares its data."""
    PENSTOCK = _SYSTEM | _PYTHON | _JAVA | _OWN | _PROXY
    """A program of this package: the supervisor, the gateway, what compiles kernels. It may fetch jars."""
    SPARK = _SYSTEM | _PYTHON | _JAVA | _OWN | _PROXY | _SPARK
    """Spark's Java; the Python workers of a local job inherit it."""
    FUNCTION = _SYSTEM | _PYTHON
    """The process of a function of the user."""


def child_environment(
    kind: Child,
    granted: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Give the environment of a child: its own variables out of `environ` (ours), and what is granted.

    >>> child_environment(Child.FUNCTION, {"REGION": "eu"}, environ={"LANG": "C", "KAFKA_PASSWORD": "pw"})
    {'LANG': 'C', 'REGION': 'eu'}
    """
    found = os.environ if environ is None else environ
    return {name: text for name, text in found.items() if name in kind.value} | dict(granted or {})
