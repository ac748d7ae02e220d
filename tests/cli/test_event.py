"""penstock event: any binding, mode and format to any other, offline, with clear errors and exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app import main

Run = Callable[..., tuple[int, list[Any], str]]
EVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "/s",
    "type": "t",
    "partitionkey": "p",
    "datacontenttype": "application/json",
    "data": {"total": 10.5},
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a verb of `penstock event` on lines; gives exit code, parsed lines of stdout, and stderr."""

    def call(*args: str, lines: list[Any] | str) -> tuple[int, list[Any], str]:
        text = lines if isinstance(lines, str) else "\n".join(map(json.dumps, lines))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code = main(["event", *args])
        out, err = capfd.readouterr()
        return code, [json.loads(line) for line in out.splitlines()] if out.startswith("{") else [out], err

    return call


@pytest.mark.parametrize("binding", ["kafka", "pulsar", "pulsar-1.0", "http"])
@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_encode_then_decode(run: Run, binding: str, mode: str) -> None:
    code, records, _ = run("encode", "--to", binding, "--mode", mode, lines=[EVENT, EVENT])
    assert (code, len(records)) == (0, 2)
    code, events, _ = run("decode", "--from", binding, lines=records)
    assert (code, events) == (0, [EVENT, EVENT])


@pytest.mark.parametrize("form", ["json", "avro", "protobuf"])
def test_every_format(run: Run, form: str) -> None:
    _, records, _ = run("encode", "--mode", "structured", "--format", form, lines=[EVENT])
    assert run("decode", lines=records)[:2] == (0, [EVENT])


def test_convert_carries_key_and_foreign_headers(run: Run) -> None:
    _, (record,), _ = run("encode", "--key", "partitionkey", lines=[EVENT])
    record["headers"].append(["app", "x"])
    code, (message,), _ = run("convert", "--to", "pulsar", lines=[record])
    assert code == 0
    assert ["CE-EventID", "1"] in message["properties"] and ["app", "x"] in message["properties"]
    code, (back,), _ = run("convert", "--from", "pulsar", "--to", "kafka", lines=[message])
    assert (back["key"], sorted(back["headers"])) == ("p", sorted(record["headers"]))


def test_check_says_why(run: Run) -> None:
    good = {"headers": [["ce_id", "1"], ["ce_source", "/s"], ["ce_type", "t"], ["ce_specversion", "1.0"]]}
    bad = {"headers": [["ce_id", "1"], ["ce_source", "/a b"], ["ce_type", "t"], ["ce_specversion", "1.0"]]}
    code, (out,), _ = run("check", "-o", "json", lines=[good, bad, {"value": "x"}])
    rows = json.loads(out)
    assert code == 1
    assert [(row["line"], row["verdict"], row["attribute"]) for row in rows] == [
        (1, "event", None),
        (2, "tolerated", "source"),
        (3, "foreign", None),
    ]
    assert run("check", "-o", "json", "--level", "lenient", lines=[good, bad])[0] == 0


def test_a_refused_line_is_told_and_the_others_go_on(run: Run) -> None:
    code, (event,), err = run("decode", lines=[{"value": "x"}, {"headers": [*pairs(EVENT)], "value": "{}"}])
    assert (code, event["id"]) == (1, "1")
    assert "PK301" in err and "line 1" in err


def pairs(event: dict[str, Any]) -> list[list[str]]:
    return [[f"ce_{name}", text] for name, text in event.items() if name not in ("data", "datacontenttype")]


def test_lenient_reports_what_it_forgives(run: Run) -> None:
    twice = {"headers": [*pairs(EVENT), ["ce_id", "2"]]}
    code, (event,), err = run("decode", "--level", "lenient", lines=[twice])
    assert (code, event["id"]) == (0, "2")
    assert "repeated" in err


@pytest.mark.parametrize(
    ("args", "lines", "words"),
    [
        (("decode",), "not json", "line 1"),
        (("encode", "--format", "xml"), "{}", "no event format"),
        (("decode", "/no/such/file"), "", "cannot read"),
    ],
)
def test_clear_errors(run: Run, args: tuple[str, ...], lines: str, words: str) -> None:
    code, _, err = run(*args, lines=lines)
    assert code in (1, 2) and words in err and "Traceback" not in err


def test_an_http_batch_gives_every_event(run: Run) -> None:
    body = json.dumps([EVENT, EVENT | {"id": "2"}])
    line = {"headers": [["Content-Type", "application/cloudevents-batch+json"]], "body": body}
    code, events, _ = run("decode", "--from", "http", lines=[line])
    assert (code, [event["id"] for event in events]) == (0, ["1", "2"])


def test_a_file_is_read_too(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(json.dumps(EVENT) + "\n\n" + json.dumps(EVENT))
    assert len(run("encode", str(file), lines="")[1]) == 2


def test_the_base_install_is_enough() -> None:
    """Nothing but the base dependencies is imported to check events."""
    code = (
        "import sys, penstock.cli.event, penstock.events.lines, penstock.events as e\n"
        "[f.encode(e.CloudEvent({'id': '1', 'source': '/s', 'type': 't'})) for f in e.FORMATS]\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extras = {"fastavro", "google", "pydantic", "httpx", "numpy", "pyspark", "confluent_kafka", "cloudevents"}
    assert extras & set(done.stdout.split()) == set()


def test_convert_carries_headers_that_are_no_text(run: Run) -> None:
    _, (record,), _ = run("encode", lines=[EVENT])
    foreign = [["app", "x"], ["app", None], ["app", {"base64": "/w=="}], ["kafka~mine", "y"]]
    record["headers"] += foreign
    code, (message,), _ = run("convert", "--to", "pulsar", lines=[record])
    assert code == 0
    assert message["properties"][-4:] == [
        ["app", "x"],
        ["kafka~n~app", ""],
        ["kafka~b~app", "/w=="],
        ["kafka~t~kafka~mine", "y"],
    ]
    code, (back,), _ = run("convert", "--from", "pulsar", "--to", "kafka", lines=[message])
    assert (code, back["headers"][-4:]) == (0, foreign)


def test_a_structured_record_without_headers_is_decoded_if_asked_for(run: Run) -> None:
    line = {"value": json.dumps(EVENT)}
    code, _, err = run("decode", lines=[line])
    assert (code, "no CloudEvents header" in err) == (1, True)
    assert run("decode", "--sniff", lines=[line])[:2] == (0, [EVENT])


def test_decode_what_the_javascript_sdk_writes(run: Run) -> None:
    headers = {"content-type": "application/json", "ce_id": "2", "ce_type": "t", "ce_source": "s"}
    line = {
        "headers": {**headers, "ce_specversion": "1.0", "ce_datacontenttype": "application/json"},
        "value": "{}",
    }
    code, (event,), _ = run("decode", lines=[line])
    assert (code, event["datacontenttype"], event["data"]) == (0, "application/json", {})
