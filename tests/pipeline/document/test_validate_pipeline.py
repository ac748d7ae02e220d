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
        ("", "large: onA -> toB; engine spark, exactly once on k"),
        (", apply: 'functions:enrich'", "large: onA -> toB; engine spark, exactly once on k"),
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


KERBEROS = CONTRACT.replace(
    "servers: {k: {host: 'k:9092', protocol: kafka}}",
    "servers: {k: {host: 'k:9092', protocol: kafka, security: [{type: gssapi}]}}",
)
SCRAM = """\
contexts:
  test:
    servers:
      k:
        kind: kafka
        address: 'k:9092'
        security: {protocol: sasl_plaintext, mechanism: scram-sha-512, username: u, password: p}
"""
NOT_OVER_CONNECT = "a pipeline does not run over Spark Connect: its queries need the driver's own Java"


@pytest.mark.parametrize("words", [["validate"], ["routes", "--explain"], ["run", "--once"]])
def test_kerberos_to_kafka_is_refused_before_anything_starts(
    words: list[str], isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(isolated_home, KERBEROS)
    verb, *options = words
    assert main([verb, "pipeline.yaml", *options]) == 1
    said = " ".join("".join(capsys.readouterr()).split())
    assert "PK532" in said
    assert "server k wants GSSAPI (Kerberos), which no engine speaks to Kafka" in said
    assert "use SCRAM, PLAIN" in said if verb == "validate" else "penstock validate" in said


def test_a_context_may_give_another_login_than_kerberos(
    isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(isolated_home, KERBEROS)
    (isolated_home / "penstock.yaml").write_text(SCRAM)
    assert main(["validate", "pipeline.yaml"]) == 0
    assert "PK532" not in "".join(capsys.readouterr())


def test_kerberos_where_only_dead_letters_go_is_refused_too(
    isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = "k: {host: 'k:9092', protocol: kafka}"
    both = f"{plain}, other: {{host: 'o:9092', protocol: kafka, security: [{{type: gssapi}}]}}"
    there = CONTRACT.replace(plain, both).replace(
        "dead: {address: dead}", "dead: {address: dead, servers: [{$ref: '#/servers/other'}]}"
    )
    for channel in "ab":
        there = there.replace(
            f"{channel}: {{address: {channel}}}",
            f"{channel}: {{address: {channel}, servers: [{{$ref: '#/servers/k'}}]}}",
        )
    write(isolated_home, there)
    assert main(["routes", "pipeline.yaml", "--explain"]) == 0
    assert "the pipeline cannot run: PK532: server other wants GSSAPI" in capsys.readouterr().out
    assert main(["run", "pipeline.yaml", "--once"]) == 1
    assert "server other wants GSSAPI" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"), [(["validate"], 0), (["routes", "--explain"], 0), (["run", "--once"], 1)]
)
def test_spark_connect_is_said_not_to_be_served(
    words: list[str],
    code: int,
    isolated_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(isolated_home, CONTRACT)
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.example")
    verb, *options = words
    assert main([verb, "pipeline.yaml", *options]) == code
    said = " ".join("".join(capsys.readouterr()).split())
    assert NOT_OVER_CONNECT in said
    assert "PK533" in said
    assert "exactly once" not in said
    if verb != "routes":
        assert "--engine loop" in said


def test_the_loop_does_not_care_about_spark_connect(
    isolated_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(isolated_home, CONTRACT)
    (isolated_home / "pipeline.yaml").write_text("engine: loop\n" + PIPELINE.replace("EXTRA", ""))
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.example")
    assert main(["validate", "pipeline.yaml"]) == 0
    assert "PK533" not in "".join(capsys.readouterr())


def write(folder: Path, contract: str) -> None:
    (folder / ".git").mkdir()
    (folder / "asyncapi.yaml").write_text(contract)
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("EXTRA", ""))
