"""TLS to a broker: the authority that is trusted, and our own certificate if the broker wants one."""

from __future__ import annotations

import ssl

from penstock.brokers.kafka_raw.settings import Settings
from penstock.errors import ConfigError

__all__ = ["tls_context"]


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Make the context; None without TLS. Host names are checked, as librdkafka and Java do."""
    if not settings.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            # A password is always given: OpenSSL would else ask for one on the terminal.
            context.load_cert_chain(
                settings.cert_file, settings.key_file, password=settings.key_password or ""
            )
    except (OSError, ValueError) as exc:
        raise ConfigError(
            "a certificate, key or authority for Kafka cannot be loaded",
            where=", ".join(filter(None, (settings.ca_file, settings.cert_file, settings.key_file))),
            why=getattr(exc, "strerror", None) or type(exc).__name__,
            next="correct the paths or the key's password",
        ) from exc
    return context
