"""penstock gateway: what it refuses before it starts, and the table of what it serves."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.pulsar import Host
from penstock.cli.app import main
from penstock.cli.gateway import _beside, _listeners, _metrics_address
from penstock.cli.gateway_limits import LIMITS, limited
from penstock.embedded.gateway import Gateway
from penstock.errors import ConfigError
from penstock.gateway import life
from penstock.gateway.dispatch import HANDLERS, advertised
from penstock.gateway.entrance import listener_names
from penstock.gateway.process import Options
from penstock.wire.kafka import APIS

PAGE = Path(__file__).parents[2] / "docs" / "gateway" / "index.md"
NOWHERE = ["--pulsar", "pulsar://127.0.0.1:1"]


def test_apis_are_those_that_clients_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "--apis", "-o", "json"]) == 0
    rows = [tuple(row.values()) for row in json.loads(capsys.readouterr().out)]
    assert rows == [(APIS[key].name, key, lowest, highest) for key, lowest, highest in advertised()]


def test_the_table_of_the_docs_is_computed_from_the_handlers() -> None:
    rows = [
        f"| {APIS[key].name} | {key} | {handler.lowest} to {handler.highest} |"
        for key, handler in sorted(HANDLERS.items())
    ]
    assert re.findall(r"^\| \w+ \| \d+ \| .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == rows


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which Pulsar?"),
        (["--pulsar", "kafka://x"], "is not the address of a Pulsar"),
        ([*NOWHERE, "--listen", "9092"], "'9092' is no address"),
        ([*NOWHERE, "--listen", "a:b"], "'a:b' is no address"),
        ([*NOWHERE, "--listen", "a:99999"], "'a:99999' is no address"),
        ([*NOWHERE, "--listen", "a:1/x"], "'a:1/x' is no address"),
        ([*NOWHERE, "--listen", "0.0.0.0:9092"], "add --advertise HOST:9092"),
        ([*NOWHERE, "--listen", "a:1", "--listen", "b:2", "--advertise", "c:3"], "2 times --listen, 1 times"),
        ([*NOWHERE, "--default-namespace", "public"], "'public' is no namespace"),
        ([*NOWHERE, "--offsets", "packs"], "--offsets"),
        ([*NOWHERE, "--pulsar-token-file", "nothing"], "next: name a text file that you may read"),
        ([*NOWHERE, "--pulsar-ca-file", "nothing"], "certificate files cannot be used"),
        ([*NOWHERE, "--metrics-listen", "x"], "'x' is no address"),
        ([*NOWHERE, "--listen", "http://a:1"], "'http' is no protocol of a listener"),
        ([*NOWHERE, "--listen", "://a:1"], "'' is no protocol of a listener"),
        ([*NOWHERE, "--beside-broker", "a:b"], "'a:b' is no broker"),
        ([*NOWHERE, "--beside-broker", "pulsar://a"], "'pulsar://a' is no broker"),
        ([*NOWHERE, "--limit", "connections"], "'' is no number for the limit connections"),
        ([*NOWHERE, "--limit", "connections=0"], "a whole number from 1 to 2147483647"),
        ([*NOWHERE, "--limit", "connections=-3"], "'-3' is no number for the limit connections"),
        ([*NOWHERE, "--tls-cert-file", "c.pem"], "no listener has TLS"),
        ([*NOWHERE, "--listen", "sasl_plaintext://a:1", "--tls-key-file", "k.pem"], "no listener has TLS"),
        ([*NOWHERE, "--limit", "beds=3"], "'beds=3' is no limit"),
    ],
)
def test_wrong_usage(
    words: list[str], said: str, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_pulsar_that_is_not_there(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert main(["gateway", "--pulsar", f"pulsar://127.0.0.1:{port}"]) == 5
    talk = capsys.readouterr().err
    assert "error[PK401] cannot reach the broker" in talk
    assert f"127.0.0.1:{port}" in talk


def test_the_pulsar_of_the_context(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    servers = f"{{pulsar: {{address: 'pulsar://127.0.0.1:{port}', kind: pulsar}}}}"
    (isolated_home / "penstock.yaml").write_text(
        f"context: here\ncontexts: {{here: {{servers: {servers}}}}}\n"
    )
    assert main(["gateway"]) == 5
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_listeners_and_what_they_advertise() -> None:
    first, second = _listeners(["0.0.0.0:9092", "[::1]:0"], ["a.example:19092", "[::1]:9093"])
    assert (str(first.address), str(first.advertised)) == ("0.0.0.0:9092", "a.example:19092")
    assert (str(second.address), str(second.advertised)) == ("[::1]:0", "[::1]:9093")
    assert _listeners(["localhost:9092"], [])[0].advertised is None


def test_protocols_of_listeners() -> None:
    found = _listeners(["SASL_SSL://127.0.0.1:1", "ssl://[::1]:2", "plaintext://a:3", "b:4"], [])
    assert [str(each) for each in found] == [
        *("sasl_ssl://127.0.0.1:1", "ssl://[::1]:2", "plaintext://a:3", "plaintext://b:4")
    ]


def test_names_of_listeners() -> None:
    words = ["in=sasl_ssl://a:1", "b:2", "out=c:3", "d:4", "sasl_ssl://e:5"]
    found = _listeners(words, [])
    assert [str(each) for each in found][:2] == ["sasl_ssl://a:1", "plaintext://b:2"]
    assert listener_names(found) == ("in", "plaintext", "out", "plaintext-2", "sasl_ssl")
    with pytest.raises(ConfigError, match="two listeners have the name 'plaintext'"):
        _listeners(["a:1", "plaintext=ssl://b:2"], [])
    with pytest.raises(ConfigError, match="'a b' is no name of a listener"):
        _listeners(["a b=c:1"], [])


def test_limits_by_their_names() -> None:
    words = [f"{name}={number}" for number, name in enumerate(LIMITS, 1)]
    found = limited(Options(pulsar="pulsar://x"), words)
    parts = [getattr(found, part) if part else found for part, _ in LIMITS.values()]
    given = [getattr(part, name) for part, (_, name) in zip(parts, LIMITS.values(), strict=True)]
    assert given == list(range(1, len(LIMITS) + 1))


def test_the_table_of_limits_is_that_of_the_code() -> None:
    page = (PAGE.parent / "security.md").read_text(encoding="utf-8")
    default = Options(pulsar="pulsar://x")
    rows = [
        (name, str(getattr(getattr(default, part) if part else default, attribute)))
        for name, (part, attribute) in LIMITS.items()
    ]
    assert re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", page, re.MULTILINE) == rows


@pytest.mark.parametrize(
    ("flags", "delay"), [([], 3.0), (["--rebalance-delay", "0"], 0.0), (["--rebalance-delay", "0.5"], 0.5)]
)
def test_the_delay_of_the_first_rebalance(
    flags: list[str], delay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Options] = []
    monkeypatch.setattr(life, "run", given.append)
    assert main(["gateway", *NOWHERE, *flags, "--limit", "members=7"]) == 0
    assert [(each.group_limits.initial_delay, each.group_limits.max_members) for each in given] == [
        (delay, 7)
    ]


def test_the_embedded_gateway_does_not_wait_unless_told_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[Options] = []
    monkeypatch.setattr(life, "run", given.append)
    for number, options in enumerate(((), ("--rebalance-delay", "2"))):
        pulsar: Any = SimpleNamespace(
            service_url="pulsar://127.0.0.1:1", admin_url="http://127.0.0.1:2", secured=False
        )
        gateway = Gateway(pulsar, data=tmp_path / str(number), port=1, metrics_port=2, options=options)
        monkeypatch.setattr(gateway, "port", lambda name: 1)
        assert main(gateway._command_line()[3:]) == 0
    assert [each.group_limits.initial_delay for each in given] == [0.0, 2.0]


def test_the_broker_that_it_sits_beside() -> None:
    assert _beside(None) is None
    assert _beside("none") == ()
    assert _beside("Broker-1") == (Host("broker-1", 0),)
    assert _beside("[::1]:6650") == (Host("::1", 6650),)


def test_metrics_are_on_loopback_unless_told_otherwise() -> None:
    assert str(_metrics_address("9100")) == "127.0.0.1:9100"
    assert str(_metrics_address("0.0.0.0:9100")) == "0.0.0.0:9100"
    assert _metrics_address(None) is None
