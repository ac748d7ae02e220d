"""Certificates for the secured servers, made at run time: an authority, and a loopback key signed by it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.embedded.private import write_private
from penstock.errors import MissingExtra

__all__ = ["Certificates", "make_certificates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files in PEM form; `chain` holds the private key (PKCS #8) and the certificate, as Kafka wants them."""

    authority: Path
    certificate: Path
    key: Path
    chain: Path


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
    key = load_pem_private_key(server.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    certificate = b"".join(blob.bytes() for blob in server.cert_chain_pems)
    files.chain.parent.mkdir(parents=True, exist_ok=True)
    files.authority.write_bytes(authority.cert_pem.bytes())
    files.certificate.write_bytes(certificate)
    write_private(files.key, key)
    write_private(files.chain, key + certificate)
