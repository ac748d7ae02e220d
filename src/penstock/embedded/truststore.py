"""The machine's certificate authorities in a form that any Java reads.

A Java from a wheel knows no authority that was added to this machine. Debian's Java store is taken if it
is there; else one is made from the bundle that OpenSSL uses.
"""

from __future__ import annotations

import ssl
from pathlib import Path

__all__ = ["JAVA_STORES", "system_truststore", "write_truststore"]

JAVA_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))


def system_truststore(folder: Path) -> Path | None:
    """Give a trust store of the machine's authorities, made in `folder` if need be; None if it has none."""
    for store in JAVA_STORES:
        if store.is_file():
            return store
    bundle = ssl.get_default_verify_paths().cafile
    if bundle is None or not Path(bundle).is_file():
        return None
    return write_truststore(Path(bundle).read_bytes(), folder / "authorities.p12")


def write_truststore(pem: bytes, store: Path) -> Path:
    """Write the certificates of a PEM bundle as a PKCS #12 store without a password."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import NoEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import (
        PKCS12Certificate,
        serialize_java_truststore,
    )

    certificates = x509.load_pem_x509_certificates(pem)
    named = [
        PKCS12Certificate(cert, f"authority-{number}".encode()) for number, cert in enumerate(certificates)
    ]
    store.write_bytes(serialize_java_truststore(named, NoEncryption()))
    return store
