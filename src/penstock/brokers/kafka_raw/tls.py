"""TLS to a broker: the authority that is trusted, and our own certificate if the broker wants one."""

from __future__ import annotations

import ssl

from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.tls import tls_context as client_tls

__all__ = ["tls_context"]


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Make the context; None without TLS. Host names are checked, as librdkafka and Java do."""
    if not settings.tls:
        return None
    made = client_tls(
        ca_file=settings.ca_file,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        key_password=settings.key_password,
    )
    return made or ssl.create_default_context()
