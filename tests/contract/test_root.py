"""The root of a contract: which files outside its folder a document may refer to, the same for every verb."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.app import main
from penstock.contract import load, validate
from penstock.contract.memory import MemoryClusters
from penstock.errors import ConfigError, UsageError

DOCUMENT = """\
asyncapi: 3.0.0
info: {title: t, version: '1'}
servers: {k: {host: '{where}.example:9092', protocol: kafka, variables: {where: {$ref: 'REF#/where'}}}}
channels:
  in:
    address: in.{id}
    parameters: {id: {$ref: 'REF#/id'}}
    messages: {m: {$ref: 'REF#/m'}}
  out: {address: out, messages: {m: {$ref: 'REF#/m'}}}
  dead: {address: dead}
operations:
  onIn: {action: receive, channel: {$ref: '#/channels/in'}}
  send: {action: send, channel: {$ref: '#/channels/out'}}
"""
COMMON = """\
id: {enum: [a], default: a}
where: {default: eu}
m: {payload: {type: object}, x-penstock-type: t.a}
"""
PIPELINE = "routes: {r: {receive: onIn, send: send, delivery: {deadLetterSink: dead}}}\n"
EVENT = '{"specversion":"1.0","id":"1","source":"/s","type":"t.a","data":{}}\n'


@pytest.fixture
def top(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose document is in services/a, the working directory, and uses common/parts.yaml."""
    service = isolated_home / "services" / "a"
    service.mkdir(parents=True)
    (isolated_home / "common").mkdir()
    (isolated_home / "common" / "parts.yaml").write_text(COMMON)
    (service / "asyncapi.yaml").write_text(DOCUMENT.replace("REF", "../../common/parts.yaml"))
    (service / "pipeline.yaml").write_text(PIPELINE)
    (service / "events.jsonl").write_text(EVENT)
    monkeypatch.chdir(service)
    return isolated_home


def findings() -> list[tuple[str, str]]:
    return [(finding.rule.id, finding.message) for finding in validate("asyncapi.yaml").findings]


@pytest.mark.parametrize("mark", ["penstock.yaml", ".git"])
def test_the_root_is_that_of_the_project(top: Path, mark: str) -> None:
    (top / mark).mkdir() if mark == ".git" else (top / mark).write_text("")
    assert findings() == []
    contract = load("asyncapi.yaml")
    assert contract.channels["in"].parameters["id"].enum == ("a",)
    assert contract.channels["in"].parameters["id"].node.file == "../../common/parts.yaml"


def test_the_settings_stand_before_the_repository(top: Path) -> None:
    (top / ".git").mkdir()
    (top / "services" / "penstock.yaml").write_text("")
    assert {rule for rule, _ in findings()} == {"PK223"}


def test_without_a_project_the_folder_is_the_root_and_nothing_else_is_wrong(top: Path) -> None:
    found = findings()
    # What could not be read is neither an undeclared parameter nor an undefined variable.
    assert {rule for rule, _ in found} == {"PK223"}
    assert len(found) == 4
    assert f"outside {top}/services/a" in found[0][1]


def test_a_link_does_not_lead_out_of_the_root(top: Path, tmp_path: Path) -> None:
    (top / ".git").mkdir()
    (tmp_path / "secret.yaml").write_text(COMMON)
    (top / "common" / "parts.yaml").unlink()
    (top / "common" / "parts.yaml").symlink_to(tmp_path / "secret.yaml")
    assert {rule for rule, _ in findings()} == {"PK223"}


VERBS = (
    ["validate"],
    ["validate", "pipeline.yaml"],
    ["plan"],
    ["drift"],
    ["apply", "--yes"],
    ["routes", "pipeline.yaml"],
    ["test", "pipeline.yaml", "--events", "events.jsonl"],
    ["run", "pipeline.yaml"],
    ["doctor"],
    ["topics"],
)


class Memory(MemoryClusters):
    """Clusters that are closed and stay."""

    def close(self) -> None:
        """Keep what is there."""


def no_servers(*_args: object, **_options: object) -> None:
    raise UsageError("the contract is read, and there are no servers here")


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
@pytest.mark.parametrize("by", ["file", "flag", "environment"])
def test_every_verb_obeys_the_setting(
    top: Path, verb: list[str], by: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("penstock.contract.clusters.ContractClusters", lambda *_a, **_kw: Memory())
    for name in ("penstock.cli.run.start_spark", "penstock.cli.topics.find_clusters"):
        monkeypatch.setattr(name, no_servers)
    for root, refused in ((".", True), ("../..", False)):
        setting = f"contract_root: {root}" if by == "file" else ""
        Path("penstock.yaml").write_text(setting)
        if by == "environment":
            monkeypatch.setenv("PENSTOCK_CONTRACT_ROOT", root)
        main([*(["-X", f"contract_root={root}"] if by == "flag" else []), *verb])
        shown = "".join(capsys.readouterr())
        signs = ("is outside", "errors: 4", "PK510: the contract asyncapi.yaml cannot be used: PK223 ")
        assert any(sign in shown for sign in signs) == refused, shown
    # What one invocation was told is not told to the next.
    monkeypatch.setenv("PENSTOCK_CONTRACT_ROOT", "")
    Path("penstock.yaml").write_text("")
    assert {rule for rule, _ in findings()} == {"PK223"}


def test_the_folder_of_the_document_may_be_read_whatever_the_root_is(
    top: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.yaml").write_text("address: own\n")
    document = (
        Path("asyncapi.yaml").read_text().replace("channels:\n", "channels:\n  own: {$ref: own.yaml}\n")
    )
    Path("asyncapi.yaml").write_text(document)
    for root, code in (("../../common", 0), ("../..", 0), ("..", 1)):
        Path("penstock.yaml").write_text(f"contract_root: {root}")
        assert main(["validate"]) == code
        assert "own.yaml" not in "".join(capsys.readouterr())


def test_the_flags_of_validate_still_open_more(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate"]) == 1
    assert "set contract_root in penstock.yaml" in " ".join("".join(capsys.readouterr()).split())
    assert main(["validate", "--allow-outside"]) == 0
    assert main(["validate", "--allow-outside", "pipeline.yaml"]) == 0


def test_the_network_is_a_setting_too(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCUMENT.replace("REF", "http://127.0.0.1:1/parts.yaml")
    Path("asyncapi.yaml").write_text(text)
    for setting, rule in (("contract_remote: false", "PK223"), ("contract_remote: true", "PK221")):
        Path("penstock.yaml").write_text(setting)
        main(["validate", "-o", "json"])
        assert {each["rule"] for each in json.loads(capsys.readouterr().out)["findings"]} == {rule}
        main(["plan"])
        assert rule in "".join(capsys.readouterr())
    assert main(["-X", "contract_remote=perhaps", "validate"]) == 2


def test_python_obeys_the_settings_of_the_invocation_too(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / ".git").mkdir()
    for root, rules in (("../..", set()), (".", {"PK223"}), ("'~'", set()), ("${env:ROOT}", set())):
        monkeypatch.setenv("ROOT", str(top))
        monkeypatch.setenv("HOME", str(top))
        Path("penstock.yaml").write_text(f"contract_root: {root}")
        assert {rule for rule, _ in findings()} == rules
    # The environment goes before the file.
    monkeypatch.setenv("PENSTOCK_CONTRACT_ROOT", ".")
    assert {rule for rule, _ in findings()} == {"PK223"}


def test_python_obeys_the_setting_of_the_network_too(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("asyncapi.yaml").write_text(DOCUMENT.replace("REF", "http://127.0.0.1:1/parts.yaml"))
    for setting, rule in (("contract_remote: false", "PK223"), ("contract_remote: true", "PK221")):
        Path("penstock.yaml").write_text(setting)
        assert {rule for rule, _ in findings()} == {rule}
    monkeypatch.setenv("PENSTOCK_CONTRACT_REMOTE", "false")
    assert {rule for rule, _ in findings()} == {"PK223"}


def test_a_settings_file_beside_a_foreign_document_opens_nothing(
    top: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("penstock.yaml").write_text("contract_root: ../..\ncontract_remote: true\n")
    assert findings() == []
    document = Path("asyncapi.yaml").absolute()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert {finding.rule.id for finding in validate(document).findings} == {"PK223"}


def test_settings_that_cannot_be_read_are_not_left_out(top: Path) -> None:
    Path("penstock.yaml").write_text("contract_rot: .")
    with pytest.raises(ConfigError, match="contract_rot"):
        findings()


@pytest.mark.parametrize("root", ["nowhere", "penstock.yaml"])
def test_a_root_that_is_no_folder_is_told(
    root: str, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("penstock.yaml").write_text(f"contract_root: {root}\n")
    Path("asyncapi.yaml").write_text("asyncapi: 3.0.0\ninfo: {title: t, version: '1'}\n")
    assert main(["validate"]) == 2
    assert "contract_root is no folder" in capsys.readouterr().err
