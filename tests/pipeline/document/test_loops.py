"""Circles through routes, dead letters and forwarded formats: refused at their place, and spelled out."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.app import main
from penstock.pipeline import rules
from penstock.pipeline.compile import check_pipeline

CONTRACT = """\
asyncapi: 3.0.0
info: {title: t, version: '1'}
servers: {k: {host: 'k:9092', protocol: kafka}, l: {host: 'l:9092', protocol: kafka}}
channels:
  a: {address: topic.a, servers: [{$ref: '#/servers/k'}], x-penstock-dead-letter: {$ref: '#/channels/dead'}}
  b: {address: topic.b, servers: [{$ref: '#/servers/k'}]}
  c: {address: topic.c, servers: [{$ref: '#/servers/k'}]}
  far: {address: topic.a, servers: [{$ref: '#/servers/l'}]}
  dead: {address: topic.dead, servers: [{$ref: '#/servers/k'}]}
operations:
  onA: {action: receive, channel: {$ref: '#/channels/a'}}
  onB: {action: receive, channel: {$ref: '#/channels/b'}}
  onC: {action: receive, channel: {$ref: '#/channels/c'}}
  onDead: {action: receive, channel: {$ref: '#/channels/dead'}}
  onFar: {action: receive, channel: {$ref: '#/channels/far'}}
  toA: {action: send, channel: {$ref: '#/channels/a'}}
  toB: {action: send, channel: {$ref: '#/channels/b'}}
  toC: {action: send, channel: {$ref: '#/channels/c'}}
  toFar: {action: send, channel: {$ref: '#/channels/far'}}
"""


def loops(folder: Path, routes: str) -> list[tuple[int, str]]:
    """Give line and text of each circle that is found."""
    (folder / "asyncapi.yaml").write_text(CONTRACT)
    found = check_pipeline(folder / "pipeline.yaml", raw=f"routes:\n{routes}".encode())
    assert {finding.rule.id for finding in found.errors} <= {rules.LOOP.id}
    return [(finding.position.line, finding.message) for finding in found.errors]


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (
            "  r:\n    receive: onB\n    send: toC\n    delivery:\n      deadLetterSink: b\n",
            [(6, "from topic.b r sends dead letters to topic.b")],
        ),
        (
            "  r:\n    receive: onB\n    send: toC\n    delivery: {deadLetterSink: toB}\n",
            [(5, "from topic.b r sends dead letters to topic.b")],
        ),
        (
            "  r1: {receive: onB, send: toFar, delivery: {deadLetterSink: c}}\n"
            "  r2: {receive: onC, send: toFar, delivery: {deadLetterSink: b}}\n",
            [
                (2, "from topic.b r1 sends dead letters to topic.c, r2 sends dead letters to topic.b"),
                (3, "from topic.c r2 sends dead letters to topic.b, r1 sends dead letters to topic.c"),
            ],
        ),
        (  # By a send and the dead letters that the contract names for channel a.
            "  r1: {receive: onA, send: toB}\n"
            "  r2: {receive: onDead, send: toA, delivery: {deadLetterSink: c}}\n",
            [
                (2, "from topic.a r1 sends dead letters to topic.dead, r2 sends to topic.a"),
                (3, "from topic.dead r2 sends to topic.a, r1 sends dead letters to topic.dead"),
            ],
        ),
        (  # What fails before any route goes where the contract says, whatever the route says.
            "  r1: {receive: onA, send: toB, delivery: {deadLetterSink: c}}\n"
            "  r2: {receive: onDead, send: toFar, delivery: {deadLetterSink: a}}\n",
            [
                (2, "from topic.a r1 sends dead letters to topic.dead, r2 sends dead letters to topic.a"),
                (3, "from topic.dead r2 sends dead letters to topic.a, r1 sends dead letters to topic.dead"),
            ],
        ),
        (
            "  r1: {receive: onB, send: toFar, delivery: {deadLetterSink: c},\n"
            "    unknownFormat: {forward: c}}\n"
            "  r2: {receive: onC, send: toB, delivery: {deadLetterSink: dead}}\n",
            [
                (2, "from topic.b r1 sends dead letters to topic.c, r2 sends to topic.b"),
                (3, "from topic.b r1 forwards unknown formats to topic.c, r2 sends to topic.b"),
                (4, "from topic.c r2 sends to topic.b, r1 sends dead letters to topic.c"),
            ],
        ),
        (  # A topic of the same name on another cluster is another topic.
            "  r1: {receive: onA, send: toFar}\n"
            "  r2: {receive: onFar, send: toB, delivery: {deadLetterSink: c}}\n",
            [],
        ),
        (
            "  r1: {receive: onA, send: toFar}\n"
            "  r2: {receive: onFar, send: toA, delivery: {deadLetterSink: c}}\n",
            [
                (2, "from topic.a (k) r1 sends to topic.a (l), r2 sends to topic.a (k)"),
                (3, "from topic.a (l) r2 sends to topic.a (k), r1 sends to topic.a (l)"),
            ],
        ),
        (  # A chain of dead letters that ends is none.
            "  r1: {receive: onA, send: toB}\n"
            "  r2: {receive: onDead, send: toB, delivery: {deadLetterSink: c}}\n",
            [],
        ),
    ],
)
def test_circles_are_found_where_they_are_said(
    tmp_path: Path, routes: str, expected: list[tuple[int, str]]
) -> None:
    found = loops(tmp_path, routes)
    assert [line for line, _ in found] == [line for line, _ in expected]
    for (_, message), (_, circle) in zip(found, expected, strict=True):
        assert message.endswith(f"leads back to what it receives from: {circle}")


@pytest.mark.parametrize("verb", ["validate", "run", "routes", "test"])
def test_no_verb_takes_such_a_pipeline(
    isolated_home: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (isolated_home / ".git").mkdir()
    (isolated_home / "asyncapi.yaml").write_text(CONTRACT)
    text = "routes:\n  r: {receive: onB, send: toC, delivery: {deadLetterSink: b}}\n"
    (isolated_home / "pipeline.yaml").write_text(text)
    events = ["--events", "pipeline.yaml"] if verb == "test" else []
    assert main([verb, "pipeline.yaml", *events]) == 1
    shown = capsys.readouterr()
    assert "r sends dead letters to topic.b" in " ".join((shown.out + shown.err).split())
