"""One REST interface of a cluster: JSON in and out, bounded answers, redirects, errors by one table.

Credentials stay with the host that they are meant for. A redirect to another one is followed without them,
unless that host is known to belong to the same cluster: brokers of Pulsar redirect to the owner of a topic.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode, urljoin, urlsplit

from penstock.brokers.conditions import START, Condition, made, tls_cause, tls_error, token_error
from penstock.brokers.tls import tls_context
from penstock.config.secret import mask_address
from penstock.errors import AccessDenied, ClusterError, ConfigError, MissingExtra, Unreachable

__all__ = ["Answer", "Rest", "public_tls", "tls_context"]

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_REDIRECTS: Final = 5
MAX_REASON: Final = 2_000
MAX_BROKERS: Final = 10_000
BROKERS_SECONDS: Final = 5.0
"""So often at most a cluster is asked for the list of its brokers."""
_REDIRECTS: Final = frozenset({307, 308})
_REFUSED: Final = 300
_SERVER_ERROR: Final = 500
_UNAUTHORIZED: Final = 401
_DENIED: Final = frozenset({_UNAUTHORIZED, 403})
_NOBODY: Final = frozenset({502, 503, 504})
"""Answers of a proxy that stands before a server which does not."""


class Answer:
    """A status and the value of the body."""

    __slots__ = ("status", "value")

    def __init__(self, status: int, value: Any) -> None:
        self.status = status
        self.value = value

    @property
    def ok(self) -> bool:
        """Say whether the server did it."""
        return self.status < _REFUSED

    @property
    def names_right(self) -> bool:
        """Say whether a refusal is about a right: Pulsar gives a reason for those, and none for a login."""
        return isinstance(self.value, dict) and bool(self.value.get("reason"))

    @property
    def reason(self) -> str:
        """The server's own words for a refusal."""
        if isinstance(self.value, dict):
            said = next((self.value[key] for key in ("reason", "message") if self.value.get(key)), None)
            return str(said or self.value)[:MAX_REASON]
        return f"HTTP status {self.status}"


class Rest:
    """A client of one base address.

    Credentials follow a redirect to the same host and port, and to `hosts`. `brokers` is the path where the
    server lists the brokers of its cluster as "host:port"; it is asked about hosts that are not known yet.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        authorization: str | None = None,
        tls: ssl.SSLContext | None = None,
        media_type: str = "application/json",
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
        hosts: Iterable[str] = (),
        brokers: str | None = None,
        max_bytes: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        """`timeout` is for each step; `max_seconds` for a whole call, whose answer may come in drops."""
        try:
            import httpx
        except ImportError as exc:
            raise MissingExtra("contract", "httpx", purpose="talking to REST interfaces") from exc
        self.name = name
        self.base = url.rstrip("/")
        self._url = url
        self.address = mask_address(self.base)
        self._hosts = {host.lower() for host in hosts}
        self._brokers = brokers
        self._asked_brokers = -BROKERS_SECONDS
        self._asking = threading.Lock()
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._headers = {"Accept": f"{media_type}, application/json", "Content-Type": media_type}
        if authorization is not None:
            self._headers["Authorization"] = authorization
        timeouts = httpx.Timeout(timeout, connect=connect_timeout)
        self._client = httpx.Client(verify=public_tls() if tls is None else tls, timeout=timeouts)

    def call(self, method: str, path: str, value: Any = None, *, base: str | None = None) -> Answer:
        """Send a request; an answer of any status but 5xx is returned for the caller to judge.

        `base` is another address on the same server.
        """
        body = None if value is None else json.dumps(value).encode()
        with self._translated():
            return self._follow(method, f"{base or self.base}{path}", body)

    def post_form(self, fields: Mapping[str, str]) -> Answer:
        """Send a form to the address as it was given; an answer of any status is for the caller to judge."""
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        with self._translated():
            return self._follow("POST", self._url, urlencode(fields).encode(), more=form, any_status=True)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except httpx.InvalidURL as exc:
            raise ConfigError(
                f"'{self.address}' is not an address", next="correct it in the context"
            ) from exc
        except httpx.HTTPError as exc:
            raise self._error(exc) from exc

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def refuse(self, subject: str, answer: Answer) -> ClusterError:
        """Make the error for an answer that is a refusal."""
        if answer.status == _UNAUTHORIZED and not answer.names_right:
            return self._login_refused(answer.reason)
        if answer.status in _DENIED:
            return made(Condition.MISSING_RIGHT, where=self.address, why=f"{subject}: {answer.reason}")
        return ClusterError(
            f"{self.name} refused: {subject}",
            where=self.address,
            why=answer.reason,
            next=_ADVICE.get(answer.status),
        )

    def _login_refused(self, why: str) -> ClusterError:
        kind, _, shown = (self._authorization() or "").partition(" ")
        if kind == "Basic":
            return made(Condition.WRONG_LOGIN, where=self.address, why=why)
        return token_error(shown if kind else None, where=self.address, why=why)

    def _authorization(self) -> str | None:
        return self._headers.get("Authorization")

    def _follow(
        self,
        method: str,
        url: str,
        body: bytes | None,
        *,
        more: Mapping[str, str] = MappingProxyType({}),
        any_status: bool = False,
    ) -> Answer:
        until = None if self._max_seconds is None else time.monotonic() + self._max_seconds
        for _ in range(MAX_REDIRECTS + 1):
            headers = {**self._headers_for(url), **more}
            with self._client.stream(method, url, content=body, headers=headers) as response:
                if response.status_code not in _REDIRECTS:
                    read = self._answer if any_status else self._read
                    return self._known(read(response, until), url)
                url = self._next(url, response.headers.get("location", ""))
            if not self._gets_credentials(url):
                self._learn_brokers(url)
        raise ClusterError(f"{self.name} redirects in a circle", where=self.address)

    def _learn_brokers(self, url: str) -> None:
        """Ask for the list of brokers; one thread for all that meet a host which is not known."""
        with self._asking:
            if self._may_ask_brokers(url):
                path = f"{self.base}{self._brokers}"
                with self._client.stream("GET", path, headers=self._headers) as listed:
                    self._trust(self._read(listed))

    # Who gets the credentials

    def _gets_credentials(self, url: str) -> bool:
        origin = _origin(url)
        return origin == _origin(self.base) or (origin is not None and origin[0] in self._hosts)

    def _headers_for(self, url: str) -> Mapping[str, str]:
        if self._gets_credentials(url):
            return self._headers
        return {name: value for name, value in self._headers.items() if name != "Authorization"}

    def _may_ask_brokers(self, url: str) -> bool:
        """Say whether to ask for the list of brokers: they come and go."""
        if self._brokers is None or self._gets_credentials(url):
            return False
        return time.monotonic() >= self._asked_brokers + BROKERS_SECONDS

    def _trust(self, listed: Answer) -> None:
        """Take the brokers of a cluster from its own list; an answer that is none changes nothing."""
        self._asked_brokers = time.monotonic()
        found = listed.value if listed.ok and isinstance(listed.value, list) else ()
        origins = [_origin(f"//{each}") for each in found[:MAX_BROKERS] if isinstance(each, str)]
        self._hosts |= {origin[0] for origin in origins if origin and origin[0]}

    def _known(self, answer: Answer, url: str) -> Answer:
        """Give an answer back; AccessDenied if a host refused because it did not get the credentials."""
        if answer.status == _UNAUTHORIZED and not self._gets_credentials(url):
            raise AccessDenied(
                f"{self.name} redirects to {urlsplit(url).hostname}, which asks for credentials",
                where=self.address,
                why="Credentials stay with the host that they were given for.",
                next="if it belongs to the cluster, name all its hosts in the address of this server, "
                "or let the role list the brokers",
            )
        return answer

    def _next(self, url: str, location: str) -> str:
        """Where a redirect leads."""
        try:
            target = urljoin(url, location)
            _ = urlsplit(target).port
        except ValueError as exc:
            raise ClusterError(f"{self.name} redirects to no address", where=self.address) from exc
        if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
            raise ClusterError(
                f"{self.name} redirects from https to {mask_address(target)}",
                where=self.address,
                why="Credentials do not travel in the clear.",
            )
        return target

    def _answer(self, response: Any, until: float | None = None) -> Answer:
        raw, most = bytearray(), self._max_bytes or MAX_BYTES
        for chunk in response.iter_bytes():
            raw += chunk
            if len(raw) > most:
                raise ClusterError(f"{self.name} answered more than {most} bytes", where=self.address)
            if until is not None and time.monotonic() > until:
                raise Unreachable(
                    f"{self.name} did not answer within {self._max_seconds:g} s", where=self.address
                )
        return Answer(response.status_code, _parse(bytes(raw)))

    def _read(self, response: Any, until: float | None = None) -> Answer:
        answer = self._answer(response, until)
        if answer.status in _NOBODY:
            raise Unreachable(
                f"{self.name} is not serving", where=self.address, why=answer.reason, next=START
            )
        if answer.status >= _SERVER_ERROR:
            raise self.refuse(f"{response.request.method} {response.request.url.path}", answer)
        return answer

    def _error(self, exc: Exception) -> ClusterError:
        import httpx

        why = str(exc) or type(exc).__name__
        if (cause := tls_cause(exc)) is not None:
            return tls_error(cause, where=self.address)
        if isinstance(exc, httpx.LocalProtocolError) and self._authorization() is not None:
            # The text of the exception has the credentials in it.
            return self._login_refused("it cannot be sent: it is empty, or has blanks or line breaks")
        if isinstance(exc, httpx.TransportError):
            return Unreachable(f"cannot reach {self.name}", where=self.address, why=why, next=START)
        return ClusterError(f"{self.name} gave an answer that cannot be read", where=self.address, why=why)


_ADVICE: Final[Mapping[int, str]] = {
    404: "correct the address of this server in the context",
}


def _origin(url: str) -> tuple[str, int | None] | None:
    """Give host and port of an address; None if it is none, which the client says when it is used."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None


_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


def _parse(raw: bytes) -> Any:
    """A body that is no JSON has nothing to say to us; error pages of web servers are such."""
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return None


@cache
def public_tls() -> ssl.SSLContext:
    """Give the TLS settings for the authorities that everybody knows; to read them takes a while, so once."""
    import httpx

    return httpx.create_ssl_context()
