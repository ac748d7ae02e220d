"""What `penstock validate` says of the routes of a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.app import main

SHOP = Path(__file__).parents[3] / "examples" / "shop"
CONTRACT = """\
asyncapi: 3.0.0
info: {title: t, version: '1'}
servers: {k: {host: 'k:9092', protocol: kafka}}
channels: {a: {address: a}, b: {address: b}, dead: {address: dead}}
operations:
  onA: {action: receive, channel: {$ref: '#/channels/a'}}
  toB: {action: send, channel: {$ref: '#/channels/b'}}
"""
PIPELINE = """\
routes:
  large: {receive: onA, send: toB, where: "type = 'x'", delivery: {deadLetterSink: dead}EXTRA}
"""


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ("", "large: onA -> toB; engine fused, exactly once on k"),
        (", apply: 'functions:enrich'", "large: onA -> toB; engine columns, at least once"),
    ],
)
def test_operations_engine_and_guarantee_of_each_route_are_said(
    extra: str, line: str, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (isolated_home / ".git").mkdir()
    (isolated_home / "asyncapi.yaml").write_text(CONTRACT)
    (isolated_home / "functions.py").write_text((SHOP / "functions.py").read_text())
    (isolated_home / "pipeline.yaml").write_text(PIPELINE.replace("EXTRA", extra))
    assert main(["validate", "pipeline.yaml"]) == 0
    said = capsys.readouterr().err
    assert "1 route (large): " in said
    assert line in said
