"""Values that must not be seen, and the references `${env:NAME}`, `${file:PATH}` that stand for them.

A reference is looked up when the value is asked for, not when the file is read: a command that does not
need a password does not need its variable.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NoReturn, Self

from penstock.config.files import located
from penstock.errors import ConfigError

__all__ = [
    "MASK",
    "Reference",
    "Revealed",
    "Secret",
    "check_references",
    "current",
    "has_reference",
    "is_reference",
    "mask_address",
    "resolve",
]

_log = logging.getLogger(__name__)

MASK: Final = "******"
MAX_SECRET_BYTES: Final = 64 * 1024

_REFERENCE = re.compile(r"\$\{(?:([A-Za-z]+):)?([^{}]*)\}")
_USERINFO = re.compile(r"(?<=://)[^/?#\s]*@")


class Secret:
    """A text that shows itself only to `reveal()`; it is not printed, formatted, pickled or hashed.

    >>> secret = Secret("hunter2")
    >>> f"{secret} {secret!r} {secret:>8}"
    '****** Secret(******)   ******'
    >>> secret.reveal()
    'hunter2'
    """

    __slots__ = ("_source",)

    def __init__(self, source: str | Callable[[], str]) -> None:
        self._source = source if callable(source) else _Constant(source)

    def reveal(self) -> str:
        """Give the text itself; a reference is looked up now."""
        return self._source()

    @property
    def changes(self) -> bool:
        """Whether it comes from a file, which may be written again while a program runs."""
        return isinstance(self._source, Reference) and self._source.names_file

    def prefixed(self, text: str) -> Secret:
        """Give a secret with a text before it; where this one can be read again, that one can, too."""
        if isinstance(self._source, Reference):
            return Secret(replace(self._source, text=text + self._source.text))
        return Secret(lambda: text + self.reveal())

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.reveal().encode(), other.reveal().encode())

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled; reveal() it on purpose where it is needed")


class _Constant:
    """A literal behind a call, with a repr that says nothing; debuggers show attributes."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self) -> str:
        return self._text


@dataclass(frozen=True, slots=True)
class Reference:
    """A text with references, as it was written; called, it gives what they stand for now."""

    text: str = field(repr=False)
    where: str
    folder: Path

    def __call__(self) -> str:
        """Look the references up."""
        found = resolve(self.text, where=self.where, folder=self.folder)
        return Revealed(found, self) if self.names_file else found

    @property
    def names_file(self) -> bool:
        """Whether a part of it comes from a file."""
        return any(match[1] == "file" for match in _REFERENCE.finditer(self.text))


class Revealed(str):
    """A secret that came from a file, and where from: `current` reads it again.

    It can be pickled, since workers need it: where the file is not there, what was read first is used.
    """

    __slots__ = ("source",)
    source: Reference

    def __new__(cls, text: str, source: Reference) -> Self:
        """Note where a text came from."""
        made = super().__new__(cls, text)
        made.source = source
        return made

    def __reduce__(self) -> tuple[type[Revealed], tuple[str, Reference]]:
        return Revealed, (str(self), self.source)


def current(text: str) -> str:
    """Give what a revealed secret is now; for a new connection of a client that lives longer than a password.

    A text that did not come from a file is given back, and so is one whose file cannot be read now: it may
    not be there on this machine, or is just being replaced.
    """
    if not isinstance(text, Revealed):
        return text
    try:
        return text.source()
    except ConfigError as exc:
        _log.debug("a secret cannot be read again, the last one is used: %s", exc)
        return text


def has_reference(text: str) -> bool:
    """Say whether a text refers to something outside the file."""
    return _REFERENCE.search(text) is not None


def is_reference(text: str) -> bool:
    """Say whether a text is one reference and nothing else, so that showing it betrays nothing.

    >>> is_reference("${env:PASSWORD}"), is_reference("pre${env:PASSWORD}")
    (True, False)
    """
    return _REFERENCE.fullmatch(text) is not None


def mask_address(text: str) -> str:
    """Hide the user and password that some put into an address.

    >>> mask_address("https://me:pw@host/x")
    'https://******@host/x'
    """
    return _USERINFO.sub(f"{MASK}@", text)


def resolve(text: str, *, where: str, folder: Path) -> str:
    """Replace each reference by what it names; a relative file starts at `folder`."""
    return _REFERENCE.sub(lambda match: _source(match, where)(match[2], where, folder), text)


def check_references(text: str, *, where: str) -> None:
    """Refuse a reference of an unknown kind without looking anything up."""
    for match in _REFERENCE.finditer(text):
        _source(match, where)


def _source(match: re.Match[str], where: str) -> Callable[[str, str, Path], str]:
    source = _SOURCES.get(match[1] or "")
    if source is None or not match[2]:
        raise ConfigError(
            f"{match[0]} is not a reference", where=where, next="use ${env:NAME} or ${file:PATH}"
        )
    return source


def _from_environment(name: str, where: str, _folder: Path) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(
            f"the environment variable {name} is not set",
            where=where,
            why="The configuration refers to it.",
            next=f"export {name}=...",
        )
    return value


def _from_file(name: str, where: str, folder: Path) -> str:
    path = located(folder / os.path.expanduser(name))
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_SECRET_BYTES + 1)
        text = raw.decode("utf-8")
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not a UTF-8 text file"
        raise ConfigError(
            f"the file {name} cannot be read: {reason}",
            where=where,
            why=f"looked at {path}",
            next="name a text file that you may read; a relative path starts at the folder shown",
        ) from exc
    if len(raw) > MAX_SECRET_BYTES:
        raise ConfigError(f"the file {name} is larger than {MAX_SECRET_BYTES // 1024} KiB", where=where)
    return text.rstrip("\r\n")


_SOURCES: Final[Mapping[str, Callable[[str, str, Path], str]]] = {
    "env": _from_environment,
    "file": _from_file,
}
