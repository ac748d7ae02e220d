"""Where kernels from an archive are cached: by what they are, not by where the archive lies.

On a cluster each job unpacks its archive in a folder of its own; a cache beside that name would never be
found again. An archive may carry compiled kernels: they are laid into the cache before the first is looked
for. They fit machines with the same processor, Python and Numba; any other compiles once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, ClassVar, Final

from numba import config
from numba.core.caching import FunctionCache, _CacheLocator

__all__ = ["COMPILED", "ArchiveCacheLocator", "archive_cache", "compiled", "is_archived"]

COMPILED: Final = "compiled"
"""The folder inside of this package that holds the compiled kernels of an archive."""


_IS_UNPACKED: Final = Path(__file__).with_name(COMPILED).is_dir()
"""Whether this package came in an archive that Spark has unpacked."""


def is_archived(file: str) -> bool:
    """Tell whether a module was imported from an archive, or from a folder into which one was unpacked.

    >>> is_archived("/job/penstock-package.zip/penstock/wire/kernels/utf8.py"), is_archived("/src/utf8.py")
    (True, False)
    """
    return ".zip/" in file or _IS_UNPACKED


@contextmanager
def archive_cache(file: str) -> Iterator[None]:
    """Let Numba cache the kernels of a module from an archive where the next job finds them.

    Of several workers on a machine one compiles, the others wait and find what it made.
    """
    folder = _folder(file.partition(".zip/")[0])
    with ExitStack() as held:
        if folder is not None:
            held.enter_context(_alone(folder))
            _unpack(folder)
        held.enter_context(_cached_in(folder))
        yield


def compiled(kernels: Iterable[Any]) -> Mapping[str, bytes]:
    """Give the files of a cache that holds kernels of this process, for an archive to carry.

    A kernel that this process could not cache is left out.
    """
    with TemporaryDirectory(prefix="penstock-kernels-") as name, _cached_in(Path(name)):
        for made in kernels:
            if isinstance(made._cache, FunctionCache):
                _copy(made, FunctionCache(made.py_func))
        return {path.name: path.read_bytes() for path in sorted(Path(name).iterdir())}


class ArchiveCacheLocator(_CacheLocator):  # type: ignore[misc]
    """Names a folder for kernels whose names hold a digest of all that they are made of."""

    folder: ClassVar[Path | None] = None

    def get_cache_path(self) -> str:
        """Give the folder."""
        return str(self.folder)

    def get_source_stamp(self) -> str:
        """Give nothing that changes: the name of the kernel does."""
        return ""

    def get_disambiguator(self) -> str:
        """Give nothing that differs, for the same reason."""
        return "0"

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> ArchiveCacheLocator | None:
        """Give a locator if there is a folder."""
        return None if cls.folder is None else cls()


@contextmanager
def _cached_in(folder: Path | None) -> Iterator[None]:
    before = getattr(config, "CACHE_LOCATOR_CLASSES", ""), ArchiveCacheLocator.folder
    own = f"{ArchiveCacheLocator.__module__}.{ArchiveCacheLocator.__name__}"
    config.CACHE_LOCATOR_CLASSES, ArchiveCacheLocator.folder = own, folder
    try:
        yield
    finally:
        config.CACHE_LOCATOR_CLASSES, ArchiveCacheLocator.folder = before


def _copy(made: Any, target: FunctionCache) -> None:
    """Copy a kernel from the cache that it came from, or went to."""
    for each in made.overloads.values():
        key = target._index_key(each.signature, made.targetctx.codegen())
        found = made._cache._cache_file.load(key)
        if found is not None:
            target._cache_file.save(key, found)


@cache
def _folder(archive: str) -> Path | None:
    """Give the folder of the user, or one beside the archive where that one cannot be written."""
    for place in (*_homes(), Path(archive).parent / "penstock"):
        folder = place / "kernels"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=folder).close()
            break
    else:
        return None
    return folder


def _homes() -> Iterator[Path]:
    home, cached = (os.environ.get(name) for name in ("PENSTOCK_HOME", "XDG_CACHE_HOME"))
    with suppress(RuntimeError):  # a user without a home
        yield Path(home) if home else Path(cached or Path.home() / ".cache") / "penstock"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes of this machine out; where there are no locks, do without."""
    import fcntl

    with ExitStack() as held:
        with suppress(OSError):
            lock = held.enter_context((folder / "lock").open("wb"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def _unpack(folder: Path) -> None:
    """Lay into a cache what the archive carries and the cache does not know."""
    carried = files(__package__).joinpath(COMPILED)
    if carried.is_dir():
        with suppress(OSError):  # what cannot be laid there is compiled
            _lay(carried.iterdir(), folder)


def _lay(members: Iterable[Traversable], folder: Path) -> None:
    known = {path.name for path in folder.glob("*.nbi")}
    # An index comes after the code that it names: who is interrupted leaves none without.
    for member in sorted(members, key=lambda member: member.name.endswith(".nbi")):
        if _index_of(member.name) not in known:
            fresh = folder / f"{member.name}.{os.getpid()}"
            fresh.write_bytes(member.read_bytes())
            fresh.replace(folder / member.name)


def _index_of(name: str) -> str:
    """Name the index of a file of Numba's cache.

    >>> _index_of("utf8.is_utf8_0a1b-0.py311.1.nbc"), _index_of("utf8.is_utf8_0a1b-0.py311.nbi")
    ('utf8.is_utf8_0a1b-0.py311.nbi', 'utf8.is_utf8_0a1b-0.py311.nbi')
    """
    return name if name.endswith(".nbi") else f"{name.rsplit('.', 2)[0]}.nbi"
