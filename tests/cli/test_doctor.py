"""penstock doctor: every check that fails names the command that repairs it; secrets stay masked."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import checks
from penstock.cli.app import main
from penstock.config import write_context


@pytest.fixture
def project(isolated_home: Path) -> Path:
    (isolated_home / ".git").mkdir()
    return isolated_home


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def examine(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = main(["doctor", "-o", "json", *args])
    return code, {check["name"]: check for check in json.loads(capsys.readouterr().out)}


def test_a_healthy_machine(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = examine(capsys)
    assert code == 0
    assert {check["group"] for check in found.values()} == {"machine", "clusters", "contract", "pipeline"}
    assert all(found[name]["ok"] for name in ("python", "java", "disk", "cache", "ports", "pyspark"))
    assert found["context"]["ok"] is None
    assert found["document"]["ok"] is None


def test_the_table_has_one_line_per_check(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0] == "machine"
    assert "  ✓ python" in captured.out
    assert captured.err == "all is well\n"


def test_a_port_that_is_open_and_does_not_answer_is_no_server(
    project: Path, listener: int, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {"k": {"address": f"127.0.0.1:{listener}"}, "p": {"address": f"pulsar://127.0.0.1:{listener}"}}
    write_context(
        project / "penstock.yaml",
        "c",
        {"servers": servers, "registry": {"address": f"http://127.0.0.1:{listener}"}},
    )
    code, found = examine(capsys, "-X", "connect_timeout=500ms")
    assert code == 1
    for name in ("k", "p", "registry"):
        assert found[name]["ok"] is False
        assert f"127.0.0.1:{listener}" in found[name]["detail"]
        assert found[name]["repair"]


@pytest.mark.parametrize(
    ("file", "repair"), [("penstock.yaml", "penstock.yaml:5"), (".penstock/dev.yaml", "penstock dev up")]
)
def test_a_server_that_is_down(
    project: Path, closed_port: int, listener: int, file: str, repair: str, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {"down": {"address": f"127.0.0.1:{closed_port}"}, "up": {"address": f"127.0.0.1:{listener}"}}
    write_context(project / file, "dev", {"servers": servers})
    code, found = examine(capsys, "-X", "connect_timeout=500ms")
    assert code == 1
    assert found["down"]["ok"] is False
    assert "refused" in found["down"]["detail"]
    assert repair in found["down"]["repair"]
    assert "refused" not in found["up"]["detail"]


CONTEXT = """\
contexts:
  c:
    servers:
      no-variable: {{address: "127.0.0.1:{port}", security: {{password: "${{env:TEST_NOT_SET}}"}}}}
      no-file: {{address: "127.0.0.1:{port}", security: {{ca_file: none.pem}}}}
      no-address: {{kind: kafka}}
      no-port: {{address: "127.0.0.1:x"}}
      no-host: {{address: "{long}:1"}}
      scheme: {{address: "ssl://me:hunter2@127.0.0.1:{port}"}}
      credentials: {{address: "pulsar://me:hunter2@127.0.0.1:{port}", security: {{token: hunter2}}}}
"""


def test_credentials_are_looked_up_and_never_shown(
    project: Path, listener: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_NOT_SET", raising=False)
    (project / "penstock.yaml").write_text(CONTEXT.format(port=listener, long="h" * 300))
    code, found = examine(capsys)
    assert code == 1
    assert found["no-variable"]["repair"] == "export TEST_NOT_SET=..."
    assert "none.pem" in found["no-file"]["detail"]
    assert "no address" in found["no-address"]["detail"]
    assert "not an address" in found["no-port"]["detail"]
    assert found["no-host"]["ok"] is False
    assert "has no scheme" in found["scheme"]["detail"]
    assert "each host is written host:port" in found["credentials"]["detail"]
    assert "hunter2" not in json.dumps(found)


@pytest.mark.parametrize("fmt", ["table", "json", "yaml"])
def test_no_form_shows_a_secret(
    project: Path, listener: int, fmt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "penstock.yaml").write_text(CONTEXT.format(port=listener, long="h" * 300))
    assert main(["doctor", "-o", fmt]) == 1
    captured = capsys.readouterr()
    assert "hunter2" not in captured.out + captured.err


def test_java_that_does_not_fit(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_JAVA_HOME", str(project))
    code, found = examine(capsys)
    assert code == 1
    assert found["java"]["ok"] is False
    assert "PENSTOCK_JAVA_HOME" in found["java"]["repair"]


def test_too_little_disk(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = checks.shutil.disk_usage(project)._replace(free=10**8)
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _path: usage)
    code, found = examine(capsys)
    assert code == 1
    assert found["disk"]["detail"] == "0.1 GB free"
    assert "PENSTOCK_HOME" in found["disk"]["repair"]


def test_a_cache_that_cannot_be_written(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks.os, "access", lambda _path, mode: not mode & os.W_OK)
    code, found = examine(capsys)
    assert code == 1
    assert found["cache"]["ok"] is False
    assert found["cache"]["repair"]


def test_a_part_that_is_not_installed_is_no_failure(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_version_of", lambda _name: None)
    code, found = examine(capsys)
    assert code == 0
    assert found["pyspark"] == {
        "group": "pipeline",
        "name": "pyspark",
        "ok": None,
        "detail": "not installed",
        "repair": "pip install 'penstock[spark]'",
    }


CONTRACT = "asyncapi: 3.0.0\ninfo: {title: Shop, version: 1.0.0}\n"


def test_the_contract(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = examine(capsys, "-f", "none.yaml")
    assert code == 1
    assert "cannot read none.yaml" in found["contract"]["detail"]
    assert found["contract"]["repair"]
    (project / "asyncapi.yaml").write_text(CONTRACT)
    code, found = examine(capsys)
    assert code == 0
    assert found["document"]["detail"].startswith("asyncapi.yaml, errors: 0, ")
    (project / "asyncapi.yaml").write_text(CONTRACT.replace("title", "titel"))
    code, found = examine(capsys)
    assert code == 1
    assert found["document"]["repair"] == "penstock validate asyncapi.yaml"


def test_every_failure_carries_its_repair(
    project: Path, closed_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_JAVA_HOME", str(project))
    (project / "penstock.yaml").write_text(CONTEXT.format(port=closed_port, long="h" * 300))
    code, found = examine(capsys, "-f", "none.yaml")
    failed = [check for check in found.values() if check["ok"] is False]
    assert code == 1
    assert len(failed) >= 7
    assert all(check["repair"] for check in failed)
