"""`penstock.brokers.rest` for asyncio: the same errors, limits and redirects; headers are given, too."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.brokers.conditions import START
from penstock.brokers.rest import MAX_BYTES, MAX_REDIRECTS, Answer, Rest, public_tls
from penstock.config.secret import Secret
from penstock.errors import ClusterError, ConfigError, Unreachable

__all__ = ["AsyncRest"]

_REDIRECTS = frozenset({307, 308})
_SERVER_ERROR = 500
_NOBODY = frozenset({502, 503, 504})
_AT_ONCE = 64
"""Requests under way; httpcore's pool looks through all that wait for a connection each time one is free."""


class _Connecting:
    """Hangs up when a TLS handshake is cancelled: httpcore (1.0.9) does so only when it fails by itself.

    It is a `trace` extension of httpx: called before and after each step of a request.
    """

    def __init__(self) -> None:
        self._stream: Any = None

    async def __call__(self, step: str, info: Mapping[str, Any]) -> None:
        if step == "connection.connect_tcp.complete":
            self._stream = info["return_value"]
        elif step == "connection.start_tls.failed" and self._stream is not None:
            await self._stream.aclose()


class AsyncRest(Rest):
    """A client of one base address; a token is read again for each request."""

    def __init__(
        self,
        url: str,
        *,
        name: str,
        token: Secret | None,
        tls: ssl.SSLContext | None,
        timeout: float,
        hosts: Iterable[str] = (),
    ) -> None:
        super().__init__(url, name=name, tls=tls, timeout=timeout, hosts=hosts, brokers="/brokers")
        import httpx

        self._client.close()
        self._token = token
        self._requests = httpx.AsyncClient(verify=tls or public_tls(), timeout=timeout)
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._learning = asyncio.Lock()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._requests.aclose()

    async def ask(
        self, method: str, path: str, value: Any = None, *, content_type: str | None = None
    ) -> tuple[Answer, Mapping[str, str]]:
        """Send a request; an answer of any status but 5xx is returned for the caller to judge."""
        import httpx

        if self._requests.is_closed:
            raise Unreachable(f"the connections to {self.name} were closed", where=self.address)
        body = None if value is None else json.dumps(value).encode()
        try:
            async with self._turn:
                return await self._travel(method, f"{self.base}{path}", body, content_type)
        except httpx.InvalidURL as exc:
            raise ConfigError(f"'{self.address}' is not an address", next="correct it") from exc
        except httpx.HTTPError as exc:
            raise self._error(exc) from exc

    async def _travel(
        self, method: str, url: str, body: bytes | None, content_type: str | None
    ) -> tuple[Answer, Mapping[str, str]]:
        for _ in range(MAX_REDIRECTS + 1):
            headers = {**self._headers_for(url)}
            if content_type is not None:
                headers["Content-Type"] = content_type
            extensions = {"trace": _Connecting()}
            async with self._requests.stream(
                method, url, content=body, headers=headers, extensions=extensions
            ) as response:
                if response.status_code not in _REDIRECTS:
                    return self._known(await self._receive(response), url), response.headers
                url = self._next(url, response.headers.get("location", ""))
            if not self._gets_credentials(url):
                await self._ask_for_brokers(url)
        raise ClusterError(f"{self.name} redirects in a circle", where=self.address)

    async def _ask_for_brokers(self, url: str) -> None:
        """Ask for the list of brokers; one task for all that meet a host which is not known."""
        async with self._learning:
            if self._may_ask_brokers(url):
                path, headers = f"{self.base}{self._brokers}", self._headers_for(self.base)
                async with self._requests.stream("GET", path, headers=headers) as listed:
                    self._trust(await self._receive(listed))

    def _headers_for(self, url: str) -> Mapping[str, str]:
        if self._token is None or not self._gets_credentials(url):
            return self._headers
        return self._headers | {"Authorization": f"Bearer {self._token.reveal()}"}

    def _authorization(self) -> str | None:
        return None if self._token is None else f"Bearer {self._token.reveal()}"

    async def _receive(self, response: Any) -> Answer:
        raw = bytearray()
        async for chunk in response.aiter_bytes():
            raw += chunk
            if len(raw) > MAX_BYTES:
                raise ClusterError(f"{self.name} answered more than {MAX_BYTES} bytes", where=self.address)
        answer = Answer(response.status_code, _parse(raw))
        if answer.status in _NOBODY:
            raise Unreachable(
                f"{self.name} is not serving", where=self.address, why=answer.reason, next=START
            )
        if answer.status >= _SERVER_ERROR:
            raise self.refuse(f"{response.request.method} {response.request.url.path}", answer)
        return answer


def _parse(raw: bytearray) -> Any:
    """A body that is no JSON has nothing to say to us: an entry's bytes, a web server's page."""
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return None
