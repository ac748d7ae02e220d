"""Files that came with a job are found by their names, and only where that is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.brokers.tls import tls_context
from penstock.config import load, located
from penstock.config.secret import resolve
from penstock.embedded.certificates import make_certificates
from penstock.errors import ConfigError


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """Give the folder of what was sent with a job."""
    folder = tmp_path / "sent"
    folder.mkdir()
    (folder / "password").write_text("hunter2\n")
    return folder


def test_a_file_that_is_not_there_is_the_one_that_was_sent(
    sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert located(tmp_path / "password") == tmp_path / "password"
    monkeypatch.setenv("PENSTOCK_FILES", str(sent))
    assert located(tmp_path / "password") == sent / "password"
    assert located(tmp_path / "other") == tmp_path / "other"
    (tmp_path / "password").write_text("own")
    assert located(tmp_path / "password") == tmp_path / "password"


def test_folders_and_files_are_named_in_one_variable(
    sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = tmp_path / "others"
    others.mkdir()
    for name in ("password", "token", "ca.pem"):
        (others / name).write_text("")
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "key").write_text("")
    entries = (tmp_path / "gone", others / "token", tmp_path / "gone" / "ca.pem", tmp_path / "key", sent)
    monkeypatch.setenv("PENSTOCK_FILES", os.pathsep.join(map(str, entries)))
    assert located(tmp_path / "token") == others / "token"
    # A file stands for itself, not for what is beside it.
    assert located(tmp_path / "password") == sent / "password"
    assert located(tmp_path / "x" / "key") == tmp_path / "key" / "key"
    assert located(tmp_path / "ca.pem") == tmp_path / "ca.pem"


def test_nothing_is_looked_for_elsewhere_unless_asked(sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sent)
    monkeypatch.delenv("PENSTOCK_FILES", raising=False)
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve("${file:/not/there/password}", where="x", folder=Path())


def test_secrets_and_certificates_of_a_context(
    sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_FILES", str(sent))
    monkeypatch.chdir(tmp_path)
    authority = make_certificates(tmp_path / "made").authority
    (sent / "ca.pem").write_bytes(authority.read_bytes())
    (tmp_path / "penstock.yaml").write_text(
        "contexts: {c: {servers: {k: {address: 'h:1', security: {ca_file: tls/ca.pem, "
        "password: '${file:secrets/password}'}}}}}"
    )
    context = load(start=tmp_path, environ={}).context("c")
    assert context is not None
    security = context.server("k").security
    assert security.ca_file == sent / "ca.pem"
    assert security.password is not None and security.password.reveal() == "hunter2"


def test_a_worker_finds_a_certificate_of_the_drivers_machine(
    sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = make_certificates(tmp_path / "made").authority
    (sent / "ca.pem").write_bytes(authority.read_bytes())
    path = "/container_1/ca.pem"
    with pytest.raises(ConfigError, match="cannot be used"):
        tls_context(ca_file=path, cert_file=None, key_file=None, key_password=None)
    monkeypatch.setenv("PENSTOCK_FILES", str(sent))
    context = tls_context(ca_file=path, cert_file=None, key_file=None, key_password=None)
    assert context is not None and len(context.get_ca_certs()) == 1
