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


def warned(isolated_home: Path, capsys: pytest.CaptureFixture[str], contract: str, extra: str = "") -> str:
    (isolated_home / ".git").mkdir()
    (isolated_home / "asyncapi.yaml").write_text(contract)
    (isolated_home / "pipeline.yaml").write_text(PIPELINE.replace("EXTRA", extra))
    assert main(["validate", "pipeline.yaml"]) == 0
    said = capsys.readouterr()
    return said.out + said.err


def with_settings(**settings: str) -> str:
    """Give the contract with topicConfiguration of channels."""
    found = CONTRACT
    for channel, text in settings.items():
        binding = f"bindings: {{kafka: {{topicConfiguration: {{{text}}}, bindingVersion: '0.5.0'}}}}"
        found = found.replace(f"{{address: {channel}}}", f"{{address: {channel}, {binding}}}")
    return found


COMPACT = "cleanup.policy: [compact]"


@pytest.mark.parametrize(
    ("settings", "extra", "rules"),
    [
        ({"b": COMPACT}, "", {"PK528"}),
        ({"b": "cleanup.policy: [delete, compact]"}, ", key: none", {"PK528"}),
        ({"b": COMPACT}, ", key: subject", set()),
        ({"b": COMPACT, "a": COMPACT}, "", set()),
        ({"b": COMPACT, "a": COMPACT}, ", key: none", {"PK528"}),
        ({"b": "max.message.bytes: 1000", "a": "max.message.bytes: 1001"}, "", {"PK529"}),
        ({"b": "max.message.bytes: 1000", "a": "max.message.bytes: 1000"}, "", set()),
        ({"b": "max.message.bytes: 1000"}, "", set()),
        ({"b": "message.timestamp.before.max.ms: 1000"}, "", {"PK530"}),
        ({"b": "message.timestamp.after.max.ms: 0"}, "", {"PK530"}),
        ({"b": "message.timestamp.after.max.ms: 3600000"}, "", set()),
        ({"b": "message.timestamp.before.max.ms: 1, message.timestamp.type: LogAppendTime"}, "", set()),
        ({"dead": COMPACT}, "", {"PK531"}),
    ],
)
def test_what_a_topic_will_refuse_is_said_before_anything_runs(
    settings: dict[str, str],
    extra: str,
    rules: set[str],
    isolated_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = warned(isolated_home, capsys, with_settings(**settings), extra)
    assert {each for each in ("PK528", "PK529", "PK530", "PK531") if each in said} == rules


KEYED = "{bindings: {kafka: {key: {type: string}, bindingVersion: '0.5.0'}}}"


@pytest.mark.parametrize(
    ("messages", "is_warned"),
    [(f"{{x: {KEYED}, y: {KEYED}}}", False), (f"{{x: {KEYED}, y: {{}}}}", True), ("{x: {}}", True)],
)
def test_a_key_that_only_some_messages_have_is_not_enough(
    isolated_home: Path, capsys: pytest.CaptureFixture[str], messages: str, is_warned: bool
) -> None:
    contract = with_settings(b=COMPACT).replace("{address: a}", f"{{address: a, messages: {messages}}}")
    assert ("PK528" in warned(isolated_home, capsys, contract)) is is_warned


def test_a_compacted_topic_of_pulsar_wants_a_key_too(
    isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pulsar = "bindings: {pulsar: {namespace: n, persistence: persistent, compaction: 100}}"
    contract = CONTRACT.replace(
        "{k: {host: 'k:9092', protocol: kafka}}", "{k: {host: 'k:6650', protocol: pulsar}}"
    )
    contract = contract.replace("{address: b}", f"{{address: b, {pulsar}}}")
    assert "PK528" in warned(isolated_home, capsys, contract)
