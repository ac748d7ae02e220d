"""Access tokens for OAUTHBEARER (KIP-255), by the flow of client credentials (RFC 6749, section 4.4).

A process has one token for each client of an endpoint. It is fetched by one thread at a time, used by all,
and replaced some time before it expires, or when a broker has refused it. Client id and secret are sent as
Basic authentication, unchanged, as librdkafka and Kafka's Java client do by default. Neither a secret nor a
token is in a repr, a log line or an error.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import math
import re
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.brokers.conditions import START, Condition, made, token_expiry
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.rest import Answer, Rest
from penstock.config import current, located
from penstock.config.secret import MASK
from penstock.errors import ClusterError, ConfigError, Unreachable

__all__ = ["AccessToken", "access_token"]

_log = logging.getLogger(__name__)

MAX_ANSWER_BYTES: Final = 256 * 1024
MAX_TOKEN_BYTES: Final = 64 * 1024
_MAX_LIFETIME: Final = 30 * 24 * 3600.0
_UNKNOWN_LIFETIME: Final = 300.0
"""Seconds for which a token is used that does not say when it expires."""
_USED_PART: Final = 0.8
"""Of its lifetime, for which a token is used. Sessions are renewed behind 0.85 of theirs (`login`): so a
session that ends with its token is renewed with another one."""
_FETCH_PAUSE: Final = 10.0
"""Seconds without another attempt while the endpoint is away and the last token is still good."""
_MOST_CLIENTS: Final = 64
# RFC 6750, section 2.1. Above all no byte that would end the message of RFC 7628.
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_NUMBER: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")
_DENIED: Final = frozenset({401, 403})
# RFC 6749, section 5.2.
_DENIALS: Final = frozenset({"invalid_client", "unauthorized_client", "invalid_grant", "access_denied"})
_BUSY: Final = 429
_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token and its times by the monotonic clock."""

    value: str = field(repr=False)
    renew_at: float
    expires_at: float


class _Client:
    """The token of one client of one endpoint."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token: AccessToken | None = None
        self.not_before = 0.0


_clients: Final[dict[tuple[str, ...], _Client]] = {}
_clients_lock: Final = threading.Lock()


def access_token(settings: Settings, *, refused: AccessToken | None = None) -> AccessToken:
    """Return the token for a login; one that was `refused` by a broker is not returned again.

    Raises Unreachable if the endpoint does not answer, AccessDenied if it refuses the client, ClusterError or
    ConfigError if it is none. A token that is still good is used while its endpoint is away.
    """
    secret = current(settings.password or "")
    client = _client(settings, secret)
    with client.lock:
        now, last = time.monotonic(), client.token
        if refused is not None and last is not None and last.value == refused.value:
            last = None
        if last is not None and (now < last.renew_at or now < min(client.not_before, last.expires_at)):
            return last
        try:
            client.token = _fetch(settings, secret)
        except Unreachable as exc:
            if last is None or time.monotonic() >= last.expires_at:
                raise
            client.not_before = time.monotonic() + _FETCH_PAUSE
            _log.warning("no new access token, the last one is used while it is valid: %s", exc)
            return last
        return client.token


def _client(settings: Settings, secret: str) -> _Client:
    # Another secret has another token: who has only a wrong one must not get the token of the right one.
    digest = hashlib.sha256(secret.encode()).hexdigest()
    key = (settings.token_url or "", settings.username or "", settings.scope or "", digest)
    with _clients_lock:
        found = _clients.pop(key, None) or _Client()
        _clients[key] = found
        while len(_clients) > _MOST_CLIENTS:
            del _clients[next(iter(_clients))]
        return found


def _fetch(settings: Settings, secret: str) -> AccessToken:
    began = time.monotonic()
    rest = Rest(
        settings.token_url or "",
        name="the token endpoint",
        authorization=f"Basic {_basic(settings, secret)}",
        tls=_tls(settings),
        timeout=settings.connect_timeout,
        connect_timeout=settings.connect_timeout,
        max_bytes=MAX_ANSWER_BYTES,
        max_seconds=settings.connect_timeout,
    )
    form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
    try:
        answer = rest.post_form(form)
    finally:
        rest.close()
    if not answer.ok:
        raise _refusal(answer, rest.address, settings, secret)
    return _token(answer.value, rest.address, began)


def _basic(settings: Settings, secret: str) -> str:
    return base64.b64encode(f"{settings.username}:{secret}".encode()).decode()


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """Trust the authorities that everybody knows, and beside them the one of the brokers if it is named."""
    if settings.ca_file is None:
        return None
    import httpx

    context = httpx.create_ssl_context()
    try:
        context.load_verify_locations(cafile=str(located(settings.ca_file)))
    except (OSError, ValueError) as exc:
        raise ConfigError(
            "the certificate file cannot be used",
            where=settings.ca_file,
            why=getattr(exc, "strerror", None) or str(exc),
            next="correct ca_file of this server in the context",
        ) from exc
    return context


def _token(value: Any, where: str, began: float) -> AccessToken:
    text = value.get("access_token") if isinstance(value, Mapping) else None
    if not isinstance(text, str) or len(text) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(text):
        raise ClusterError(
            "the token endpoint has given no token",
            where=where,
            why="its answer is no JSON object with an access_token as RFC 6750 writes it",
            next="correct token_url of this server in the context",
        )
    lifetime = _lifetime(value.get("expires_in"), text)
    return AccessToken(text, began + _USED_PART * lifetime, began + lifetime)


def _lifetime(expires_in: object, token: str) -> float:
    """Return for how many seconds a token is good: as its endpoint says, and as the token says itself."""
    said = [_seconds(expires_in)]
    if (expiry := token_expiry(token)) is not None:
        said.append(expiry - time.time())
    known = [each for each in said if each is not None and math.isfinite(each)]
    return min(max(min(known, default=_UNKNOWN_LIFETIME), 0.0), _MAX_LIFETIME)


def _seconds(value: object) -> float | None:
    # RFC 6749 wants a number; some endpoints write it as text.
    text = str(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else ""
    return float(text) if _NUMBER.fullmatch(text) else None


def _refusal(answer: Answer, where: str, settings: Settings, secret: str) -> ClusterError:
    code, why = _reason(answer, secret, _basic(settings, secret))
    if answer.status >= _SERVER_ERROR or answer.status == _BUSY:
        return Unreachable("the token endpoint gives no token now", where=where, why=why, next=START)
    if answer.status not in _DENIED and code not in _DENIALS:
        return ClusterError(
            "the token endpoint refused to give a token",
            where=where,
            why=why,
            next="correct token_url of this server in the context",
        )
    if settings.proven and settings.changes:
        # Endpoint and file cannot be changed at the same moment: the next attempt reads the file again.
        return Unreachable(
            "the token endpoint refuses a password that worked before",
            where=where,
            why=why,
            next="write the new client secret into the file that the context names",
        )
    return made(Condition.WRONG_CLIENT, where=where, why=why)


def _reason(answer: Answer, secret: str, pair: str) -> tuple[str | None, str]:
    value = answer.value if isinstance(answer.value, dict) else {}
    code, more = value.get("error"), value.get("error_description")
    said = [each[:200] for each in (code, more) if isinstance(each, str) and each.isprintable()]
    why = ": ".join(said) or f"HTTP status {answer.status}"
    # Some echo what they were sent.
    for hidden in (secret, pair):
        why = why.replace(hidden, MASK) if hidden else why
    return code if isinstance(code, str) else None, why
