"""One line of a jar lock: a Maven coordinate with the size and sha256 of its file."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from penstock.errors import ArtifactError

__all__ = ["LOCKS", "Artifact", "parse_lock", "read_lock", "sha256_of"]

LOCKS = ("kafka", "kafka-tools", "pulsar", "registry", "spark")
"""The locks shipped with Penstock: one a server, one for Kafka's tools and one for Spark's connector."""

# A word becomes a part of a file's path: nothing that leads elsewhere can stand in it.
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
_LINE = re.compile(
    rf"(?P<group>{_WORD}):(?P<name>{_WORD}):(?P<version>{_WORD})"
    rf"(?::(?P<classifier>(?:{_WORD})?):(?P<type>{_WORD}))?"
    r" +(?P<size>[0-9]{1,15}) +sha256:(?P<sha256>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file of a Maven repository, exactly this one: group:artifact:version[:classifier:type]."""

    group: str
    name: str
    version: str
    classifier: str = ""
    type: str = "jar"
    size: int
    sha256: str

    @property
    def coordinate(self) -> str:
        """The coordinate as the lock spells it."""
        tail = f":{self.classifier}:{self.type}" if self.classifier or self.type != "jar" else ""
        return f"{self.group}:{self.name}:{self.version}{tail}"

    @property
    def file_name(self) -> str:
        """The file's name in a Maven repository."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.type}"

    @property
    def path(self) -> str:
        """Where the file lies below a store folder."""
        return f"{self.group}/{self.file_name}"

    @property
    def line(self) -> str:
        """The line of the lock."""
        return f"{self.coordinate} {self.size} sha256:{self.sha256}"


def read_lock(name: str) -> tuple[Artifact, ...]:
    """Give the artifacts of a lock shipped with Penstock."""
    lock = resources.files("penstock.embedded") / "locks" / f"{name}.lock"
    return parse_lock(lock.read_text(encoding="utf-8"), origin=f"{name}.lock")


def parse_lock(text: str, *, origin: str) -> tuple[Artifact, ...]:
    """Read a lock: a line an artifact; empty lines and lines that begin with # say nothing."""
    return tuple(
        _parse_line(line, f"{origin}:{number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    )


def _parse_line(line: str, where: str) -> Artifact:
    found = _LINE.fullmatch(line.strip())
    if found is None or ".." in line:
        raise ArtifactError(
            "this line of a jar lock cannot be read",
            where=where,
            why="a line is: group:artifact:version[:classifier:type] size sha256:HEX",
            next="make jars rebuilds the locks",
        )
    parts = found.groupdict()
    return Artifact(
        group=parts["group"],
        name=parts["name"],
        version=parts["version"],
        classifier=parts["classifier"] or "",
        type=parts["type"] or "jar",
        size=int(parts["size"]),
        sha256=parts["sha256"],
    )


def sha256_of(path: Path) -> str:
    """Hash a file without holding it in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
