"""penstock package: what it refuses before it packs, and what it says of files that it does not send."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.app import main

CONTRACT = """\
asyncapi: 3.0.0
info: {title: t, version: '1'}
servers: {k: {host: '127.0.0.1:9', protocol: kafka}}
channels: {in: {address: in}, out: {address: out}, dead: {address: dead}}
operations:
  onIn: {action: receive, channel: {$ref: '#/channels/in'}}
  toOut: {action: send, channel: {$ref: '#/channels/out'}}
"""
ROUTES = "routes: {r: {receive: onIn, send: toOut, delivery: {deadLetterSink: dead}}}\n"
CONTEXT = """\
context: prod
contexts: {prod: {servers: {k: {address: 'b:1', security: {username: u, password: '${file:/mounted/word}'}}}}}
"""


@pytest.fixture
def project(isolated_home: Path) -> Path:
    (isolated_home / ".git").mkdir()
    (isolated_home / "asyncapi.yaml").write_text(CONTRACT)
    (isolated_home / "pipeline.yaml").write_text(ROUTES)
    (isolated_home / "penstock.yaml").write_text(CONTEXT)
    return isolated_home


def test_the_default_checkpoint_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["package", "--to", "job"]) != 0
    error = " ".join(capsys.readouterr().err.split())
    assert "the checkpoint .penstock/checkpoints would be in the unpacked archive" in error
    assert "checkpoint: hdfs://" in error
    assert not (project / "job").exists()


def test_what_is_not_on_this_machine_is_to_be_mounted(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pipeline.yaml").write_text(f"checkpoint: s3a://bucket/orders\n{ROUTES}")
    assert main(["package", "--to", "job", "--no-libraries", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["send"], told["mount"]) == ([], ["/mounted/word"])
    assert "--files" not in told["submit"]["Kubernetes"]
    # Standalone clusters run no driver in Python; the settings of Kubernetes are to be filled in.
    modes = {name: "--deploy-mode cluster" in line for name, line in told["submit"].items()}
    assert modes == {"standalone": False, "YARN": True, "Kubernetes": True}
    for setting in ("container.image=IMAGE", "file.upload.path=s3a://BUCKET/FOLDER"):
        assert f"--conf spark.kubernetes.{setting}" in told["submit"]["Kubernetes"]


@pytest.mark.parametrize(
    ("lines", "noted"),
    [("checkpoint: /var/lib/orders", True), ("checkpoint: file:///mounted/orders", False)],
)
def test_a_checkpoint_on_the_drivers_machine_is_noted(
    lines: str, noted: bool, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pipeline.yaml").write_text(f"{lines}\n{ROUTES}")
    assert main(["package", "--to", "job", "--no-libraries"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert ("is a folder of the driver's machine" in said) == noted
    assert "/mounted/word is not on this machine" in said
