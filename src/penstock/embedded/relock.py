"""Rebuilds the jar locks from their coordinates with Maven: a maintainer's tool, `make jars`.

Without an argument those of `locks/coordinates.toml`, else those of the files named; locks lie beside them.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.embedded.artifact import Artifact, sha256_of

__all__ = ["relock"]

_LOCKS = Path(__file__).with_name("locks")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>p</groupId><artifactId>p</artifactId><version>1</version>
<dependencyManagement><dependencies>{boms}</dependencies></dependencyManagement>
<dependencies>{roots}</dependencies></project>"""


def relock(name: str, entry: Mapping[str, Any], to: Path | None = None) -> int:
    """Resolve one list, leave out what it drops, write its lock, give the number of lines."""
    with tempfile.TemporaryDirectory() as folder:
        artifacts = _resolve(Path(folder), entry)
    kept = [a for a in artifacts if not _dropped(a, entry.get("drop", ()))]
    head = f"# {name}: {entry['about']}\n# Made by `make jars` from coordinates.toml; do not edit.\n"
    lines = sorted(artifact.line for artifact in kept)
    ((to or _LOCKS) / f"{name}.lock").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    return len(lines)


def _resolve(folder: Path, entry: Mapping[str, Any]) -> list[Artifact]:
    pom = _POM.format(
        boms="".join(_dependency(bom, scope="import") for bom in entry.get("boms", ())),
        roots="".join(_dependency(root, alone=not entry.get("transitive", True)) for root in entry["roots"]),
    )
    (folder / "pom.xml").write_text(pom, encoding="utf-8")
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    subprocess.run(
        ["mvn", "-q", "-B", goal, "-DincludeScope=runtime", "-DoutputDirectory=lib"]
        + ["-Dmdep.useRepositoryLayout=true"],
        cwd=folder,
        check=True,
    )
    files = [file for pattern in ("*.jar", "*.tar.gz") for file in (folder / "lib").rglob(pattern)]
    return [_artifact(file, folder / "lib") for file in files]


_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def _dependency(coordinate: str, scope: str = "runtime", alone: bool = False) -> str:
    group, name, version, *rest = coordinate.split(":")
    classifier, type_ = rest or ("", "pom" if scope == "import" else "jar")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"<type>{type_}</type><scope>{scope}</scope>"
        + (f"<classifier>{classifier}</classifier>" if classifier else "")
        + (_ALONE if alone else "")
        + "</dependency>"
    )


def _artifact(path: Path, root: Path) -> Artifact:
    *group, name, version, file = path.relative_to(root).parts
    found = re.fullmatch(rf"{re.escape(f'{name}-{version}')}(?:-(.+?))?\.(jar|tar\.gz)", file)
    if found is None:
        raise ValueError(f"not a file of {name} {version}: {file}")
    return Artifact(
        group=".".join(group),
        name=name,
        version=version,
        classifier=found.group(1) or "",
        type=found.group(2),
        size=path.stat().st_size,
        sha256=sha256_of(path),
    )


def _dropped(artifact: Artifact, patterns: Sequence[str]) -> bool:
    full = f"{artifact.group}:{artifact.name}:{artifact.classifier}".rstrip(":")
    return any(fnmatch.fnmatchcase(full, pattern) for pattern in patterns)


def _main(files: Sequence[Path]) -> None:
    for file in files or [_LOCKS / "coordinates.toml"]:
        for name, entry in tomllib.loads(file.read_text(encoding="utf-8")).items():
            sys.stderr.write(f"{name}: {relock(name, entry, file.parent)} jars\n")


if __name__ == "__main__":
    _main([Path(argument) for argument in sys.argv[1:]])
