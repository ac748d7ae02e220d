"""penstock config show and penstock context: every value with its origin, secrets masked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app import main
from penstock.cli.settings import configuration
from penstock.config import load

Register = Callable[[Any], None]

TEXT = """\
# the shop
contexts:
  local:
    servers: {kafka: {address: "localhost:9092"}}
  staging:
    servers:
      kafka:
        address: k.example:9093
        security: {username: app, password: "${env:TEST_PASSWORD}", token: hunter2}
    registry: {address: "https://me:hunter2@r.example"}
"""


@pytest.fixture
def project(isolated_home: Path) -> Path:
    (isolated_home / "penstock.yaml").write_text(TEXT)
    return isolated_home


def test_show_gives_every_value_with_its_origin(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "-o", "json", "-X", "connect_timeout=9s", "-C", "local"]) == 0
    captured = capsys.readouterr()
    shown = {row["setting"]: (row["value"], row["origin"]) for row in json.loads(captured.out)}
    staging = "contexts.staging.servers.kafka"
    assert shown == {
        "context": ("local", "flag -C"),
        "contract": (None, "default"),
        "contract_root": (None, "default"),
        "contract_remote": ("false", "default"),
        "home": (os.environ["PENSTOCK_HOME"], "env PENSTOCK_HOME"),
        "java_home": (None, "default"),
        "connect_timeout": ("9s", "flag -X"),
        "contexts.local.servers.kafka.address": ("localhost:9092", "penstock.yaml:4"),
        f"{staging}.address": ("k.example:9093", "penstock.yaml:8"),
        f"{staging}.security.username": ("app", "penstock.yaml:9"),
        f"{staging}.security.password": ("****** from ${env:TEST_PASSWORD}", "penstock.yaml:9"),
        f"{staging}.security.token": ("******", "penstock.yaml:9"),
        "contexts.staging.registry.address": ("https://******@r.example", "penstock.yaml:10"),
    }
    assert (
        captured.err
        == "warning: penstock.yaml:9 holds a token in plain text; better ${env:NAME} or ${file:PATH}\n"
    )


@pytest.mark.parametrize(
    "args", [["config", "show"], ["context", "show", "staging"], ["-C", "staging", "context", "show"]]
)
@pytest.mark.parametrize("fmt", ["table", "json", "yaml"])
def test_no_form_shows_a_secret(
    args: list[str],
    fmt: str,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_PASSWORD", "swordfish")
    assert main([*args, "-o", fmt, "-vv"]) == 0
    captured = capsys.readouterr()
    assert "k.example:9093" in captured.out
    for secret in ("hunter2", "swordfish"):
        assert secret not in captured.out + captured.err


def test_the_list_marks_the_one_in_use(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "list", "-C", "staging", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"context": "local", "used": False, "servers": "kafka", "origin": "penstock.yaml"},
        {"context": "staging", "used": True, "servers": "kafka, registry", "origin": "penstock.yaml"},
    ]
    assert main(["context"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["local", "no"]


def test_use_writes_the_choice_and_keeps_the_rest(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "use", "staging"]) == 0
    assert load(start=project, environ={}).get("context") == "staging"
    assert (project / "penstock.yaml").read_text().startswith("# the shop\n")
    assert main(["context", "use", "stagin"]) == 2
    assert "did you mean 'staging'?" in capsys.readouterr().err
    assert load(start=project, environ={}).get("context") == "staging"


def test_without_any_context(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (isolated_home / ".git").mkdir()
    assert main(["context", "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "[]\n"
    assert "no contexts" in captured.err
    assert main(["context", "show"]) == 2
    assert "no context is chosen" in capsys.readouterr().err


def test_settings_reach_the_layers_below(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.embedded.home import penstock_home

    monkeypatch.delenv("PENSTOCK_HOME")
    assert main(["config", "show", "-X", "home=jars"]) == 0
    assert penstock_home() == project / "jars"


def test_a_broken_file_is_one_block(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (isolated_home / "penstock.yaml").write_text("contexts:\n  dev: [\n")
    assert main(["config", "show"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "error[PK002] this is not YAML"
    assert said[1].startswith("  --> penstock.yaml:3:1")


def test_one_invocation_has_one_configuration(
    project: Path, verb: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def probe() -> None:
        seen.extend([configuration(), configuration()])

    verb(probe)
    assert main(["probe"]) == 0
    assert seen[0] is seen[1]
    assert capsys.readouterr().err.count("warning: ") == 1
    (project / "penstock.yaml").write_text("context: other\n")
    assert main(["probe"]) == 0
    assert seen[2].get("context") == "other"
