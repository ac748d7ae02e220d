"""A `$ref` taken apart: the file or address it names, and the JSON Pointer (RFC 6901) after the `#`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = ["MalformedReference", "Reference", "index_of", "parse_reference", "write_pointer"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")
_INDEX: Final = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")
_REMOTE: Final = frozenset({"http", "https"})


class MalformedReference(Exception):
    """A `$ref` that is no reference; the message is for the finding."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a `$ref` leads: `location` is empty for the same file."""

    location: str
    remote: bool
    tokens: tuple[str, ...]


def parse_reference(text: str) -> Reference:
    """Take a `$ref` apart.

    >>> parse_reference("./a%20b.yaml#/messages/x~1y").tokens
    ('messages', 'x/y')
    >>> parse_reference("#").tokens
    ()
    """
    location, _, fragment = text.partition("#")
    if "\0" in unquote(text):
        raise MalformedReference("it holds a null character")
    remote = _is_remote(location)
    return Reference(location if remote else unquote(location), remote, _tokens(unquote(fragment)))


def write_pointer(*tokens: str) -> str:
    """Write tokens as a reference into the same file.

    >>> write_pointer("channels", "a/b")
    '#/channels/a~1b'
    """
    return "#" + "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def index_of(token: str) -> int | None:
    """Read a token as a place in a list."""
    return int(token) if _INDEX.match(token) else None


def _is_remote(location: str) -> bool:
    if not _SCHEME.match(location):
        return False
    try:
        scheme = urlsplit(location).scheme.lower()
    except ValueError as exc:
        raise MalformedReference("its address cannot be read") from exc
    if scheme not in _REMOTE:
        raise MalformedReference(f"the scheme {scheme} is not one of http and https")
    return True


def _tokens(pointer: str) -> tuple[str, ...]:
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise MalformedReference("the part after # must start with /")
    if _BAD_ESCAPE.search(pointer):
        raise MalformedReference("~ must be written ~0, and / inside a name ~1")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))
