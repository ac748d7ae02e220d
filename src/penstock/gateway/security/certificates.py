"""The certificate of the TLS listeners: files that are read again when they change, for new connections."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

__all__ = ["ServerCertificate"]

log = logging.getLogger("penstock.gateway")

_PERIOD: Final = 5.0
_Mark = tuple[tuple[int, int, int], ...]


class ServerCertificate:
    """A chain of certificates and its key, both PEM; the key may be in the same file."""

    def __init__(self, certificate: Path, key: Path | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self._mark = self._look()
        self.context = _context()
        """What the listeners use, always the same one."""
        self._load(self.context)

    async def follow(self, period: float = _PERIOD) -> None:
        """Look at the files from time to time, for ever."""
        while True:
            await asyncio.sleep(period)
            self.refresh()

    def refresh(self) -> bool:
        """Take files that have changed; those that do not fit are told and not taken."""
        try:
            mark = self._look()
            if mark == self._mark:
                return False
            # Tried elsewhere first: a context that failed to load is left with half of it.
            self._load(_context())
            self._load(self.context)
        except ConfigError as exc:
            log.warning("the former certificate stays: %s", exc)
            return False
        self._mark = mark
        log.info("the certificate was read again from %s", self._certificate)
        return True

    def _look(self) -> _Mark:
        try:
            found = [path.stat() for path in (self._certificate, self._key) if path is not None]
        except OSError as exc:
            raise _unfit(self._certificate, exc) from exc
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            # A key with a password would ask for it on the terminal.
            context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ValueError) as exc:
            raise _unfit(self._certificate, exc) from exc


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _unfit(path: Path, exc: Exception) -> ConfigError:
    return ConfigError(
        f"the certificate in {path} cannot be used",
        why=str(exc),
        next="give a PEM file by --tls-cert-file and its key, without a password, by --tls-key-file",
    )
