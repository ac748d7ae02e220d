"""`penstock validate` and `penstock explain`: golden output, exit codes, forms, finding the document."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from penstock.cli import app
from penstock.contract.finding import Rule
from penstock.contract.rules.table import RULES
from penstock.pipeline.rules import RULES as PIPELINE_RULES

GOLDEN = Path(__file__).parent / "golden"
SHOP = Path(__file__).parents[2] / "examples" / "shop" / "asyncapi.yaml"


@pytest.fixture(autouse=True)
def project(isolated_home: Path) -> Path:
    """A repository with the broken document."""
    shutil.copy(GOLDEN / "broken.yaml", isolated_home / "asyncapi.yaml")
    (isolated_home / ".git").mkdir()
    return isolated_home


def test_findings_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["validate", "asyncapi.yaml"]) == 1
    done = capsys.readouterr()
    assert done.out == (GOLDEN / "broken.txt").read_text()
    assert (
        done.err
        == "broken 1.0.0: 7 errors, 1 warning, 1 info; 1 server, 2 channels, 1 operation, 1 message\n"
    )


def test_findings_as_json_and_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["validate", "-o", "json", "-q"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["valid"] is False
    assert told["findings"][0] == {
        "rule": "PK240",
        "severity": "error",
        "message": "host uses the variable region, which is not defined",
        "file": "asyncapi.yaml",
        "line": 7,
        "column": 11,
        "path": "servers.prod.host",
        "why": RULES["PK240"].why,
        "fix": "add variables.region with a default, or remove the braces",
        "clause": RULES["PK240"].clause,
    }
    assert app.main(["-o", "yaml", "validate", "-q"]) == 1
    assert YAML(typ="safe", pure=True).load(capsys.readouterr().out) == told


def test_findings_as_sarif(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["validate", "-o", "sarif", "-q"]) == 1
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    known = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert known == {*RULES, *(rule.id for rule in PIPELINE_RULES)}
    assert {result["ruleId"] for result in run["results"]} <= known
    assert {result["level"] for result in run["results"]} == {"error", "warning", "note"}
    location = run["results"][0]["locations"][0]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "asyncapi.yaml"},
        "region": {"startLine": 7, "startColumn": 11},
    }


def test_a_valid_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["validate", "--strict", str(SHOP)]) == 0
    done = capsys.readouterr()
    assert done.out == ""
    assert done.err == "shop 1.0.0: valid; 2 servers, 6 channels, 9 operations, 7 messages\n"


def test_warnings_fail_only_when_strict(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "asyncapi.yaml").write_text(
        "asyncapi: 3.0.0\ninfo: {title: t, version: '1'}\n"
        "channels: {c: {address: a, bindings: {kafka: {bindingVersion: latest}}}}\n"
    )
    assert app.main(["validate"]) == 0
    assert "warning[PK283]" in capsys.readouterr().out
    assert app.main(["validate", "--strict"]) == 1


def test_the_document_is_found_upwards(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(project / "a" / "b")
    assert app.main(["validate"]) == 1
    assert "--> ../../asyncapi.yaml:7:11" in capsys.readouterr().out
    (project / "a" / ".git").mkdir()
    assert app.main(["validate"]) == 2
    assert "The search ends at the root of the repository." in capsys.readouterr().err
    assert app.main(["-f", str(SHOP), "validate"]) == 0


def test_a_pipeline_says_what_was_checked_of_its_routes(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["validate", str(SHOP.parent / "pipeline.yaml")]) == 0
    told = capsys.readouterr().err
    assert "shop 1.0.0: valid; " in told
    assert "pipeline.yaml: 1 route (large-orders): conditions, attributes, keys, functions, targets" in told


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["validate", "folder"], "name a file in it: folder/asyncapi.yaml"),
        (["validate", "empty"], "name an AsyncAPI document"),
        (["validate", "nope.yaml"], "name an AsyncAPI document that is there"),
        (["plan"], "name the document: -f FILE, or `contract: FILE` in penstock.yaml"),
        (["event", "decode", "nope.jsonl"], "name a file that is there, or - for standard input"),
        (["publish", "c", "nope.jsonl"], "name a file that is there, or - for standard input"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_what_is_not_there_has_a_next_step(
    project: Path, words: list[str], advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "folder").mkdir()
    (project / "empty").mkdir()
    shutil.move(project / "asyncapi.yaml", project / "folder" / "asyncapi.yaml")
    (project / "penstock.yaml").write_text("contexts: {c: {servers: {k: {address: 'localhost:1'}}}}")
    assert app.main(words) != 0
    assert advice in " ".join(capsys.readouterr().err.split())


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["validate", "--rules", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["rule"] for row in listed] == [*RULES, *(rule.id for rule in PIPELINE_RULES)]
    assert app.main(["validate", "--rules"]) == 0
    assert "PK250" in capsys.readouterr().out


@pytest.mark.parametrize("code", ["PK254", "pk254"])
def test_explain_a_rule(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["explain", code]) == 0
    assert capsys.readouterr().out == (
        "PK254  error of the contract\n"
        "\n"
        "  channel <channel> says <field> <found> for topic <topic>, channel <other> says <wanted>\n"
        "\n"
        "  why     Both channels stand for one topic on one server, and a topic has one value.\n"
        "  fix     write the same value in both, or give one channel another topic\n"
        "  source  Kafka bindings, Channel Binding Object\n"
    )


@pytest.mark.parametrize("rule", (*RULES.values(), *PIPELINE_RULES), ids=lambda rule: rule.id)
def test_what_a_rule_says_is_not_left_to_others(rule: Rule) -> None:
    assert not re.fullmatch(r"\{\w+\}", rule.message)


def test_explain_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["explain", "PK401"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("PK401  Unreachable, a kind of ClusterError\n")
    assert out.endswith("exit code  5\n")


def test_explain_an_unknown_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["explain", "PK2544"]) == 2
    assert "did you mean PK254" in capsys.readouterr().err


def test_every_code_means_one_thing() -> None:
    from penstock import errors

    classes = [getattr(errors, name).code for name in errors.__all__]
    assert set(classes).isdisjoint(RULES)
    assert all(rule.id == key for key, rule in RULES.items())
    assert all("PK201" <= key <= "PK299" for key in RULES)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_pipeline_that_is_written_as_json(
    project: Path, capsys: pytest.CaptureFixture[str], indent: int | None
) -> None:
    shop = Path(__file__).parents[2] / "examples" / "shop"
    shutil.copy(shop / "asyncapi.yaml", project / "shop.yaml")
    route = {"receive": "onOrderPlaced", "send": "publishLargeOrder", "where": "type = 'x'"}
    path = project / "pipeline.json"
    path.write_text(json.dumps({"contract": "shop.yaml", "routes": {"r": route}}, indent=indent))
    assert app.main(["validate", str(path)]) == 0
    assert "AsyncAPI" not in capsys.readouterr().err
    path.write_text(
        json.dumps({"contract": "shop.yaml", "routes": {"r": {**route, "where": "type ="}}}, indent=indent)
    )
    assert app.main(["validate", str(path)]) == 1
    assert "PK513" in capsys.readouterr().out


def test_a_contract_that_is_written_as_json_is_no_pipeline(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {"asyncapi": "3.0.0", "info": {"title": "t", "version": "1"}, "x-routes": 1, "channels": {}}
    (project / "asyncapi.json").write_text(json.dumps({**document, "x-more": {"routes": {}}}))
    app.main(["validate", str(project / "asyncapi.json")])
    assert "PK51" not in capsys.readouterr().out
