"""The classes of one Java program in a file that Java maps, instead of finding, reading and checking each.

Java calls it class data sharing. A program that is started to record writes the file when it ends, which
takes it a few seconds; after that it starts with little more than half of the CPU. Java itself looks whether
a file fits, and starts without one that does not.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from penstock.embedded.home import penstock_home, require_disk_space
from penstock.embedded.java import Java
from penstock.errors import DiskSpaceError

__all__ = ["ClassArchive", "jars_of"]

_LARGEST: Final = 400_000_000
"""So much disk a file may need, with room to spare."""
_SILENT: Final = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Java writes its doubts about such a file to the standard output, where only data belongs."""


class ClassArchive:
    """The file of a program: for one Java, and for jars of one path, size and time of writing each."""

    def __init__(self, program: str, java: Java, jars: Iterable[Path]) -> None:
        release = java.home / "release"
        told = hashlib.sha256(str(java.home).encode())
        told.update(release.read_bytes() if release.is_file() else b"")
        for jar in jars:
            # Java refuses the file when one of them is another.
            found = jar.stat()
            told.update(f"\n{jar} {found.st_size} {found.st_mtime_ns}".encode())
        self.path = penstock_home() / "classes" / f"{program}-{told.hexdigest()[:16]}.jsa"
        self._fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}")

    @property
    def is_settled(self) -> bool:
        """Whether the file was made, or found to be impossible with this Java."""
        return self.path.exists()

    def use(self) -> tuple[str, ...]:
        """Give the options that let Java use the file; none if there is no file."""
        if not self.path.is_file() or not self.path.stat().st_size:
            return ()
        return (f"-XX:SharedArchiveFile={self.path}", *_SILENT)

    def record(self) -> tuple[str, ...]:
        """Give the options that let Java write the file at its end; none if there is one, or no room."""
        if self.is_settled:
            return ()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            require_disk_space(self.path.parent, _LARGEST)
        except DiskSpaceError:
            return ()
        return (f"-XX:ArchiveClassesAtExit={self._fresh}", *_SILENT)

    def keep(self, *, has_ended_well: bool) -> None:
        """Take what Java has written, if it came to its end; one that wrote nothing is not asked again."""
        if not has_ended_well:
            self._fresh.unlink(missing_ok=True)
        elif self._fresh.is_file():
            self._fresh.replace(self.path)
        else:
            self.give_up()

    def give_up(self) -> None:
        """Note that there will be no file: this Java cannot make one."""
        self._fresh.unlink(missing_ok=True)
        self.path.touch()


def jars_of(arguments: Sequence[str]) -> list[Path]:
    """Give the jars that a Java command line names.

    >>> jars_of(["-Xmx1g", "-cp", "/a.jar:/b.jar", "kafka.Kafka"])
    [PosixPath('/a.jar'), PosixPath('/b.jar')]
    """
    if "-cp" not in arguments:
        return []
    places = [Path(place) for place in arguments[arguments.index("-cp") + 1].split(os.pathsep)]
    # Java takes the star for every jar of a folder.
    return [
        jar
        for place in places
        for jar in (sorted(place.parent.glob("*.jar")) if place.name == "*" else [place])
    ]
