"""TLS of clients: certificate files are read again when they have changed; the old ones serve meanwhile."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from penstock.brokers.conditions import Condition, condition_of_tls, row_of, tls_error, tls_probe
from penstock.brokers.tls import tls_context
from penstock.embedded.certificates import make_certificates
from penstock.errors import ConfigError, TlsFailed, Unreachable

LOCAL = "127.0.0.1"


@contextmanager
def served(context: ssl.SSLContext | None, peers: list[dict[str, object]] | None = None) -> Iterator[int]:
    """Accept connections, with TLS if there is a context; keep the certificates that clients show."""
    with socket.create_server((LOCAL, 0)) as server:

        def run() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:
                    return
                with plain:
                    try:
                        if context is None:
                            plain.sendall(b"220 hello, no TLS here\r\n")
                        else:
                            with context.wrap_socket(plain, server_side=True) as secured:
                                secured.sendall(b"x")
                                if peers is not None:
                                    peers.append(dict(secured.getpeercert() or {}))
                    except OSError:
                        continue

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def serving(folder: Path) -> ssl.SSLContext:
    files = make_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


def trusting(ca_file: Path) -> ssl.SSLContext:
    made = tls_context(ca_file=str(ca_file), cert_file=None, key_file=None, key_password=None)
    assert made is not None
    return made


def probe(port: int, context: ssl.SSLContext, host: str = LOCAL) -> object:
    return tls_probe(host, port, context, where=f"{host}:{port}")


def test_a_rotated_authority_is_trusted_without_a_restart(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    shutil.copy(make_certificates(tmp_path / "old").authority, ca_file)
    client = trusting(ca_file)
    with served(serving(tmp_path / "old")) as port:
        assert probe(port, client) is None
    with served(serving(tmp_path / "new")) as port:
        assert isinstance(probe(port, client), TlsFailed)
        shutil.copy(make_certificates(tmp_path / "new").authority, tmp_path / "next.pem")
        os.replace(tmp_path / "next.pem", ca_file)
        assert probe(port, client) is None


def test_a_rotated_certificate_of_ours_is_shown_without_a_restart(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(LOCAL).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    names = [str(tmp_path / name) for name in ("cert.pem", "key.pem")]

    def issue(name: str) -> None:
        made = authority.issue_cert(f"{name}.example", common_name=name)
        made.private_key_pem.write_to_path(names[1])
        made.cert_chain_pems[0].write_to_path(names[0])

    issue("first")
    client = tls_context(
        ca_file=str(tmp_path / "ca.pem"), cert_file=names[0], key_file=names[1], key_password=None
    )
    assert client is not None
    peers: list[dict[str, object]] = []
    with served(context, peers) as port:
        for name in ("first", "second"):
            issue(name)
            with (
                socket.create_connection((LOCAL, port), 10) as plain,
                client.wrap_socket(plain, server_hostname=LOCAL) as secured,
            ):
                assert secured.recv(1) == b"x"
    assert ["second" in str(peer) for peer in peers] == [False, True]


def test_a_file_that_is_being_written_leaves_the_old_ones_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca_file = tmp_path / "ca.pem"
    shutil.copy(make_certificates(tmp_path / "old").authority, ca_file)
    client = trusting(ca_file)
    ca_file.write_text("half a certif")
    with served(serving(tmp_path / "old")) as port:
        assert probe(port, client) is None
    assert "the old ones are used" in caplog.text


def test_files_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        trusting(tmp_path / "nothing.pem")
    assert "nothing.pem" in str(caught.value)


@pytest.mark.parametrize(
    ("host", "authority", "condition"),
    [
        (LOCAL, "other", Condition.UNKNOWN_AUTHORITY),
        ("127.1", "own", Condition.OTHER_HOST),
    ],
)
def test_a_certificate_that_does_not_fit(
    host: str, authority: str, condition: Condition, tmp_path: Path
) -> None:
    own = serving(tmp_path / "own")
    client = trusting(make_certificates(tmp_path / authority).authority)
    with served(own) as port:
        found = probe(port, client, host)
    assert isinstance(found, TlsFailed)
    assert (found.what, found.next, found.where) == (*row_of(condition)[1:], f"{host}:{port}")


def test_a_server_without_tls(tmp_path: Path) -> None:
    client = trusting(make_certificates(tmp_path).authority)
    with served(None) as port:
        found = probe(port, client)
    assert isinstance(found, TlsFailed)
    assert found.what == row_of(Condition.NO_TLS).what


def test_a_server_that_goes_away_in_the_handshake_is_not_reached(tmp_path: Path) -> None:
    assert isinstance(tls_error(ssl.SSLEOFError(8, "EOF occurred"), where="h:1"), Unreachable)
    assert condition_of_tls(ssl.SSLError(1, "odd")) is Condition.NO_TLS


def demanding(folder: Path) -> ssl.SSLContext:
    """A server that wants a certificate of each client."""
    context = serving(folder)
    context.load_verify_locations(cafile=str(make_certificates(folder).authority))
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_a_server_that_wants_a_certificate_says_so_after_our_side_of_the_handshake(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    wanted = row_of(Condition.WANTS_CERTIFICATE).what
    with served(demanding(tmp_path)) as port:
        found = tls_probe(LOCAL, port, trusting(files.authority), where="k")
        assert found is not None and found.what == wanted
        cert_file, key_file = map(str, files.of_client("guest"))
        shown = tls_context(
            ca_file=str(files.authority), cert_file=cert_file, key_file=key_file, key_password=None
        )
        assert shown is not None
        assert tls_probe(LOCAL, port, shown, where="k") is None
