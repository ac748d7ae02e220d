"""TLS of our clients: the authorities that are trusted and our own certificate, read again when files change.

Certificates live for weeks or hours, clients for months: before each handshake the files are looked at, and
read again if they are others than before.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Sequence
from typing import Any, Final

from penstock.config import located
from penstock.errors import ConfigError

__all__ = ["tls_context"]

_log = logging.getLogger(__name__)
_Stamp = tuple[tuple[int, int, int] | None, ...]
_UNTOLD: Final[_Stamp] = ()


def tls_context(
    *, ca_file: str | None, cert_file: str | None, key_file: str | None, key_password: str | None
) -> ssl.SSLContext | None:
    """Make the TLS settings of a client; None if nothing but the system's is wanted. Raises ConfigError."""
    if ca_file is None and cert_file is None:
        return None
    context = _Reloading(ssl.PROTOCOL_TLS_CLIENT)
    context.read_from(ca_file, cert_file, key_file, key_password)
    return context


class _Reloading(ssl.SSLContext):
    """A context that reads its files again when they have changed; host names are checked.

    An authority that is no longer in its file stays trusted until the process ends.
    """

    _files: tuple[str | None, str | None, str | None] = (None, None, None)
    _key_password: str | None = None
    _stamp: _Stamp = _UNTOLD

    def read_from(
        self, ca_file: str | None, cert_file: str | None, key_file: str | None, key_password: str | None
    ) -> None:
        self._files, self._key_password = (_here(ca_file), _here(cert_file), _here(key_file)), key_password
        try:
            self._read()
        except (OSError, ValueError) as exc:
            raise ConfigError(
                "the certificate files cannot be used",
                where=", ".join(filter(None, self._files)),
                why=getattr(exc, "strerror", None) or str(exc) or type(exc).__name__,
                next="correct ca_file, cert_file, key_file or key_password of this server in the context",
            ) from exc
        if ca_file is None:
            self.load_default_certs()

    def wrap_socket(self, *args: Any, **kw: Any) -> ssl.SSLSocket:
        """Begin a handshake on a socket."""
        self._refresh()
        return super().wrap_socket(*args, **kw)

    def wrap_bio(self, *args: Any, **kw: Any) -> ssl.SSLObject:
        """Begin a handshake of asyncio."""
        self._refresh()
        return super().wrap_bio(*args, **kw)

    def _read(self) -> None:
        ca_file, cert_file, key_file = self._files
        stamp = _stamp(self._files)
        if ca_file is not None:
            self.load_verify_locations(cafile=ca_file)
        if cert_file is not None:
            # A password is always given: OpenSSL would else ask for one on the terminal.
            self.load_cert_chain(cert_file, key_file, password=self._key_password or "")
        self._stamp = stamp

    def _refresh(self) -> None:
        if _stamp(self._files) == self._stamp:
            return
        try:
            self._read()
        except (OSError, ValueError) as exc:
            # Somebody may be writing them right now; the next handshake looks again.
            _log.warning("certificate files cannot be read again, the old ones are used: %s", exc)
        else:
            _log.info("certificate files were read again: %s", ", ".join(filter(None, self._files)))


def _here(path: str | None) -> str | None:
    return None if path is None else str(located(path))


def _stamp(files: Sequence[str | None]) -> _Stamp:
    return tuple(_seen(path) for path in files if path is not None)


def _seen(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
