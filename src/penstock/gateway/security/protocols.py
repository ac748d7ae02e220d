"""What a listener speaks, by Kafka's names (`security.protocol`)."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["SecurityProtocol"]


class SecurityProtocol(StrEnum):
    """Kafka's four: with TLS or without, with SASL or without.

    >>> SecurityProtocol("sasl_ssl").has_tls, SecurityProtocol("plaintext").has_sasl
    (True, False)
    """

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"

    @property
    def has_tls(self) -> bool:
        """Whether what is said is encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether a client says who it is."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
