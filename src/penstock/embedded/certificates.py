"""Certificates for the secured servers, made at run time: an authority, and what it signed.

A key for loopback, and one for each role that a client may show for mutual TLS.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.embedded.private import write_private
from penstock.errors import MissingExtra

__all__ = ["ROLES", "Certificates", "make_certificates"]

ROLES: Final = ("admin", "guest")
"""Who has a certificate as a client; the name is its CN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files in PEM form; `chain` holds the private key (PKCS #8) and the certificate, as Kafka wants them."""

    authority: Path
    certificate: Path
    key: Path
    chain: Path

    def of_client(self, role: str) -> tuple[Path, Path]:
        """Give certificate and private key (PKCS #8) of a role."""
        folder = self.authority.parent
        return folder / f"client-{role}.pem", folder / f"client-{role}.key"


def make_certificates(folder: Path) -> Certificates:
    """Give the certificates in a folder, making them if they are not there."""
    files = Certificates(
        authority=folder / "ca.pem",
        certificate=folder / "server.pem",
        key=folder / "server.key",
        chain=folder / "server.chain.pem",
    )
    if not files.chain.exists():
        _make(files)
    return files


def _make(files: Certificates) -> None:
    try:
        import trustme
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )
    except ImportError:
        raise MissingExtra("embedded", "trustme", purpose="a secured embedded server") from None
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1")

    def parts(issued: trustme.LeafCert) -> tuple[bytes, bytes]:
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return b"".join(blob.bytes() for blob in issued.cert_chain_pems), secret

    certificate, key = parts(server)
    files.chain.parent.mkdir(parents=True, exist_ok=True)
    for role in ROLES:
        shown, secret = parts(authority.issue_cert(f"{role}.client.test", common_name=role))
        cert_file, key_file = files.of_client(role)
        cert_file.write_bytes(shown)
        write_private(key_file, secret)
    files.authority.write_bytes(authority.cert_pem.bytes())
    files.certificate.write_bytes(certificate)
    write_private(files.key, key)
    write_private(files.chain, key + certificate)
