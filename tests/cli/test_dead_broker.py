"""A broker that is not there: every verb says so soon, with its address and a next step, and ends with 5."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# What a verb imports, and kernels that no cache has, are not part of what is measured.
import penstock.brokers.pulsar_messages
import penstock.pipeline.delivery.task  # noqa: F401
from penstock.cli.app import main

CONTRACT = """\
asyncapi: 3.0.0
info: {title: t, version: '1'}
servers:
  k: {host: 'HOST', protocol: kafka}
  p: {host: 'HOST', protocol: pulsar}
channels:
  in: {address: in, servers: [{$ref: '#/servers/k'}], x-penstock-dead-letter: {$ref: '#/channels/dead'}}
  out: {address: out, servers: [{$ref: '#/servers/k'}]}
  dead: {address: dead, servers: [{$ref: '#/servers/k'}]}
  stream: {address: stream, servers: [{$ref: '#/servers/p'}]}
operations:
  onIn: {action: receive, channel: {$ref: '#/channels/in'}}
  toOut: {action: send, channel: {$ref: '#/channels/out'}}
"""
CONTEXT = """\
context: c
contexts:
  c:
    servers:
      k: {kind: kafka, address: 'HOST'}
      p: {kind: pulsar, address: 'pulsar://HOST', admin: 'http://HOST'}
"""
PIPELINE = "routes: {r: {receive: onIn, send: toOut}}\n"
ON_KAFKA = [
    ["publish", "in", "--type", "t", "--data", "{}"],
    ["tail", "in"],
    ["tail", "in", "--from", "beginning", "--until-end"],
    ["dlq", "list"],
    ["dlq", "show", "abc"],
    ["dlq", "restore", "--all", "--yes"],
    ["groups"],
    ["groups", "g"],
    ["groups", "reset", "g", "--topic", "in", "--to", "beginning", "--server", "k", "--yes"],
    ["topics"],
    ["topics", "in"],
    ["plan"],
    ["apply", "--yes"],
    ["drift"],
    ["run", "--once"],
    ["run", "--engine", "loop", "--once"],
]
ON_PULSAR = [
    ["publish", "stream", "--type", "t", "--data", "{}"],
    ["tail", "stream"],
    ["tail", "stream", "--from", "beginning", "--until-end"],
    ["topics", "--server", "p"],
    ["groups", "--server", "p"],
]
pytestmark = pytest.mark.slow
SOON = 20.0
"""Seconds; half of them are for a machine that has other things to do."""


@pytest.fixture
def address(isolated_home: Path) -> Iterator[str]:
    """Write a project whose servers are all at a port that is bound and does not listen."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{closed.getsockname()[1]}"
        (isolated_home / ".git").mkdir()
        for name, text in (("asyncapi", CONTRACT), ("penstock", CONTEXT), ("pipeline", PIPELINE)):
            (isolated_home / f"{name}.yaml").write_text(text.replace("HOST", host))
        yield host


@pytest.mark.parametrize("words", [*ON_KAFKA, *ON_PULSAR], ids=" ".join)
def test_it_is_told_soon(words: list[str], address: str, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    code = main(words)
    took = time.monotonic() - began
    said = capsys.readouterr().err
    assert code == 5, said
    assert "error[PK401]" in said
    assert address in said
    steps = [line.split("next:")[1].strip() for line in said.splitlines() if "next:" in line]
    assert steps
    assert not any(step.startswith("more:") for step in steps)
    assert took < SOON
