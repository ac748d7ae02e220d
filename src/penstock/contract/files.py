"""The files of one contract: which may be read, from where, and how much of them.

Only files below the contract's root are read, unless more is allowed; the network only if allowed. The root
is the setting `contract_root`, else the folder of `penstock.yaml` above the document, else that of its
repository, else the folder of the document itself, which may be read in any case.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import urljoin, urlsplit

from penstock.config import find_project, load
from penstock.contract.finding import Report
from penstock.contract.node import Node
from penstock.contract.parser import MAX_BYTES, parse
from penstock.contract.pointer import Reference
from penstock.errors import ConfigError, MissingExtra

__all__ = ["Access", "CannotRead", "Files", "Forbidden", "read_file"]

MAX_FILES: Final = 500
MAX_PEEKED: Final = 5_000
"""Files that are looked into for what they define."""
REMOTE_SECONDS: Final = 10.0
ROOT_VARIABLE: Final = "PENSTOCK_CONTRACT_ROOT"
REMOTE_VARIABLE: Final = "PENSTOCK_CONTRACT_REMOTE"


class CannotRead(Exception):
    """A file that is referred to cannot be read; the message is for the finding."""


class Forbidden(Exception):
    """A file that is referred to may not be read; the message is for the finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a document may make us read."""

    remote: bool = False
    outside: bool = False
    """Any file, wherever it is."""
    root: Path | None = None
    """Files below this folder; None is the project of the document."""

    @classmethod
    def configured(cls, *, remote: bool = False, outside: bool = False) -> Self:
        """Give what the settings allow, and what is asked for beyond them.

        The settings are those of the working directory, whoever asks, never of a file beside the document;
        before them goes the environment, where every verb leaves its own for the layers below.
        """
        variables = (ROOT_VARIABLE, REMOTE_VARIABLE)
        config = load(environ={name: os.environ[name] for name in variables if name in os.environ})
        root = config.get("contract_root")
        if isinstance(root, Path) and not root.is_dir():
            raise ConfigError(
                f"contract_root is no folder: {root}",
                next="name a folder that holds the contract and the files to which it refers",
            )
        return cls(
            remote=remote or config.get("contract_remote") is True,
            outside=outside,
            root=root if isinstance(root, Path) else None,
        )


@dataclass(slots=True)
class Files:
    """The files read so far, each once; a file is known by the name it has in findings."""

    root: Path
    access: Access
    report: Report
    _trees: dict[str, Node | None] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    _peeked: dict[str, Node | None] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file that was read, by name."""
        return dict(sorted(self._digests.items()))

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file of this machine that was read, those that were only looked into included."""
        peeked = [name for name, tree in self._peeked.items() if tree is not None]
        return tuple(Path(name) for name in sorted({*self._digests, *peeked}) if not _is_url(name))

    def open_root(self, raw: bytes | None = None) -> Node | None:
        """Read the document itself; `raw` if its bytes are known already."""
        return self._load(str(self.root), raw if raw is not None else read_file(self.root))

    def open(self, reference: Reference, base: str) -> Node | None:
        """Read the file that a reference in `base` names; None if it is broken, which is reported."""
        name = self._name(reference, base)
        if name not in self._trees:
            if len(self._trees) >= MAX_FILES:
                raise CannotRead(f"the contract has more than {MAX_FILES} files")
            self._load(name, _fetch(name) if _is_url(name) else read_file(Path(name)))
        return self._trees[name]

    def beside(self, base: str, suffix: str) -> list[str]:
        """Name the files with a suffix in the folder of a file; none on the network."""
        if _is_url(base):
            return []
        try:
            with os.scandir(Path(base).parent) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(suffix))
        except OSError:
            return []
        return names[:MAX_PEEKED]

    def peek(self, location: str, base: str) -> Node | None:
        """Look into a file that may be read; it does not become a part of the contract."""
        try:
            name = self._name(Reference(location, False, ()), base)
            if name not in self._peeked:
                self._peeked[name] = None
                if len(self._peeked) <= MAX_PEEKED:
                    self._peeked[name] = parse(read_file(Path(name)), name, Report())
        except (CannotRead, Forbidden):
            return None
        return self._peeked[name]

    def _load(self, name: str, raw: bytes) -> Node | None:
        self._digests[name] = hashlib.sha256(raw).hexdigest()
        tree = self._trees[name] = parse(raw, name, self.report)
        return tree

    def _name(self, reference: Reference, base: str) -> str:
        if not reference.location:
            return base
        if reference.remote or _is_url(base):
            if not self.access.remote:
                raise Forbidden("on the network")
            return urljoin(base, reference.location) if _is_url(base) else reference.location
        return self._local(reference.location, base)

    def _local(self, location: str, base: str) -> str:
        try:
            target = (Path(base).parent / location).resolve()
            folder = self.root.parent.resolve()
            roots = (folder, (self.access.root or find_project(folder)).resolve())
        except (OSError, RuntimeError, ValueError) as exc:
            raise CannotRead("the path cannot be followed") from exc
        if not self.access.outside and not any(target.is_relative_to(root) for root in roots):
            raise Forbidden(f"outside {roots[1]}")
        return self._shown(target, folder)

    def _shown(self, target: Path, folder: Path) -> str:
        """Name a file as seen from the document, if that leads to it; a folder may be a link."""
        path = Path(os.path.normpath(self.root.parent / os.path.relpath(target, folder)))
        return str(path if path.resolve() == target else target)


def _is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def read_file(path: Path) -> bytes:
    """Read a file, up to a bound; raises CannotRead."""
    try:
        if path.is_dir():
            raise CannotRead("it is a folder")
        if not path.is_file():
            raise CannotRead("there is no such file")
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else None
        raise CannotRead(reason or "the path cannot be opened") from exc


def _fetch(url: str) -> bytes:
    try:
        import httpx
    except ImportError as exc:
        raise MissingExtra("contract", "httpx", purpose="reading a $ref from the network") from exc
    if not urlsplit(url).hostname:
        raise CannotRead("the address has no host")
    try:
        with httpx.stream("GET", url, timeout=REMOTE_SECONDS, follow_redirects=False) as answer:
            answer.raise_for_status()
            return _bounded(answer)
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise CannotRead(str(exc) or type(exc).__name__) from exc


def _bounded(answer: object) -> bytes:
    body = bytearray()
    for chunk in answer.iter_bytes():  # type: ignore[attr-defined]
        body += chunk
        if len(body) > MAX_BYTES:
            break
    return bytes(body)
