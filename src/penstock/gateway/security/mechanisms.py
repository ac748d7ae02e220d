"""The SASL mechanisms: the first and only message of a client becomes its credentials.

| mechanism   | message                                                                              |
|-------------|--------------------------------------------------------------------------------------|
| PLAIN       | RFC 4616: user `tenant` or `tenant/namespace`, password `token:<token>`              |
| OAUTHBEARER | RFC 7628: the token; extension `namespace=tenant/namespace` (KIP-342) if it is given |

Both carry a Pulsar token, which goes to Pulsar as it is. The namespace is where short topic names are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.config.secret import Secret
from penstock.errors import ApiError
from penstock.wire.kafka import ErrorCode

__all__ = ["MECHANISMS", "Credentials", "is_namespace", "read_oauthbearer", "read_plain"]

_PREFIX: Final = "token:"
_PLAIN_PARTS: Final = 3
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9._=:\-]{1,200}/[A-Za-z0-9._=:\-]{1,200}")
_LONGEST_TOKEN: Final = 64 * 1024
# It goes into a header of HTTP: what is not a visible character of ASCII has no place there.
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_SEPARATOR: Final = "\x01"
_BEARER: Final = "auth=bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a client says: where it belongs, and the token that Pulsar shall judge."""

    namespace: str | None
    """None: it does not say."""
    token: Secret
    address: str = ""
    """From where it says so: added by the session."""


def is_namespace(text: str) -> bool:
    """Say whether a text can be `tenant/namespace`.

    >>> is_namespace("acme/shop"), is_namespace("acme"), is_namespace("acme/../x")
    (True, False, False)
    """
    return _NAMESPACE.fullmatch(text) is not None and not {".", ".."} & set(text.split("/"))


def read_plain(message: bytes) -> Credentials:
    r"""Read the message of PLAIN.

    >>> read_plain(b"\0acme/shop\0token:a.b:c").namespace
    'acme/shop'
    """
    parts = _text(message).split("\0")
    if len(parts) != _PLAIN_PARTS:
        raise _refused("the message of PLAIN has three parts")
    authorized, user, password = parts
    # RFC 4616: to act as somebody else is not offered.
    if authorized not in ("", user):
        raise _refused("nobody acts as another here")
    if not password.startswith(_PREFIX):
        raise _refused("the password is token:<token>")
    # A token may hold colons itself: only the first one ends the name of the method.
    return Credentials(
        namespace=_namespace(user if "/" in user else f"{user}/default"),
        token=_token(password.removeprefix(_PREFIX)),
    )


def read_oauthbearer(message: bytes) -> Credentials:
    r"""Read the message of OAUTHBEARER.

    >>> read_oauthbearer(b"n,,\x01auth=Bearer a.b.c\x01namespace=acme/shop\x01\x01").namespace
    'acme/shop'
    """
    head, *pairs = _text(message).split(_SEPARATOR)
    # RFC 7628, section 3.1: gs2-header kvsep *kvpair kvsep; n or y says that there is no channel binding.
    if not head.startswith(("n,", "y,")) or not head.endswith(",") or pairs[-2:] != ["", ""]:
        raise _refused("the message of OAUTHBEARER is broken")
    bearer = [pair for pair in pairs if pair[: len(_BEARER)].lower() == _BEARER]
    if len(bearer) != 1:
        raise _refused("the message of OAUTHBEARER has one token")
    said = [pair.partition("=")[2] for pair in pairs if pair.startswith("namespace=")]
    return Credentials(
        namespace=_namespace(said[0]) if said else None, token=_token(bearer[0][len(_BEARER) :].strip())
    )


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise _refused("the message is no text") from None


def _namespace(text: str) -> str:
    if not is_namespace(text):
        raise _refused("the user is tenant or tenant/namespace")
    return text


def _token(text: str) -> Secret:
    if len(text) > _LONGEST_TOKEN or _TOKEN.fullmatch(text) is None:
        raise _refused("the token is no token")
    return Secret(text)


def _refused(what: str) -> ApiError:
    return ApiError(what, error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)


MECHANISMS: Final[Mapping[str, Callable[[bytes], Credentials]]] = {
    "PLAIN": read_plain,
    "OAUTHBEARER": read_oauthbearer,
}
"""By the name that a client asks for."""
