"""Values that must not be seen, and the references `${env:NAME}`, `${file:PATH}` that stand for them.

A reference is looked up when the value is asked for, not when the file is read: a command that does not
need a password does not need its variable.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn

from penstock.errors import ConfigError

__all__ = ["MASK", "Secret", "check_references", "has_reference", "is_reference", "mask_address", "resolve"]

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
    path = folder / os.path.expanduser(name)
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
