"""penstock.config.contexts: servers put together on demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Config, Context, Security, Server, load
from penstock.errors import ConfigError

TEXT = """\
contexts:
  staging:
    servers:
      kafka:
        address: a.example:9093,b.example:9093
        security:
          protocol: SASL_SSL
          mechanism: SCRAM-SHA-512
          username: app
          password: ${env:TEST_KAFKA_PASSWORD}
          ca_file: certs/ca.pem
      events:
        address: pulsar+ssl://p.example
        admin: https://p.example:8443
        security: {token: "${file:token.txt}"}
      broken: {kind: kafka}
    registry: {address: "http://${env:TEST_HOST}:8081/apis"}
  local:
    servers: {kafka: {address: "localhost:9092"}}
    gateway: {address: "localhost:9192"}
    functions: {environment: {REGION: eu, API_KEY: "${env:TEST_API_KEY}"}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "penstock.yaml").write_text(TEXT)
    (tmp_path / "token.txt").write_text("jwt\n")
    return load(start=tmp_path, environ={})


@pytest.fixture
def staging(config: Config) -> Context:
    return config.named_context("staging")


def test_a_kafka_server(staging: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = staging.server("kafka")
    assert (server.kind, server.origin) == ("kafka", "penstock.yaml:5")
    assert server.endpoints() == (("a.example", 9093), ("b.example", 9093))
    assert (server.security.protocol, server.security.mechanism) == ("sasl_ssl", "scram-sha-512")
    assert server.security.ca_file == tmp_path / "certs" / "ca.pem"
    assert server.security.uses_tls
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", "pw")
    assert server.security.password is not None
    assert server.security.password.reveal() == "pw"


def test_a_pulsar_server(staging: Context) -> None:
    server = staging.server("events")
    assert server.kind == "pulsar"
    assert server.endpoints() == (("p.example", 6651),)
    assert server.admin == "https://p.example:8443"
    assert server.security.token is not None
    assert server.security.token.reveal() == "jwt"


def test_a_missing_password_is_told_when_it_is_asked_for(
    staging: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_KAFKA_PASSWORD", raising=False)
    password = staging.server("kafka").security.password
    assert password is not None
    with pytest.raises(ConfigError, match="TEST_KAFKA_PASSWORD") as caught:
        password.reveal()
    assert "penstock.yaml:10" in (caught.value.where or "")


def test_trouble_of_one_server_is_not_trouble_of_another(staging: Context) -> None:
    assert staging.server_names == ("kafka", "events", "broken")
    with pytest.raises(ConfigError, match="no address"):
        staging.server("broken")
    with pytest.raises(ConfigError, match="TEST_HOST"):
        staging.registry()
    assert staging.gateway() is None


def test_an_unknown_server_is_suggested(staging: Context) -> None:
    with pytest.raises(ConfigError) as caught:
        staging.server("kafak")
    assert caught.value.next == "did you mean 'kafka'?"


@pytest.mark.parametrize("part", ["servers: {k: {address: '%s'}}", "gateway: {address: '%s'}"])
@pytest.mark.parametrize("address", ["sasl_ssl://me:hunter2@a:9093", "a:9093,ssl://b:9093", "kafka://a"])
def test_an_address_of_kafka_has_no_scheme(tmp_path: Path, part: str, address: str) -> None:
    (tmp_path / "penstock.yaml").write_text(f"contexts: {{one: {{{part % address}}}}}")
    context = load(start=tmp_path, environ={}).named_context("one")
    with pytest.raises(ConfigError, match="has no scheme") as caught:
        context.server("k") if part.startswith("servers") else context.gateway()
    assert (caught.value.next or "").startswith("write host:port")
    assert "hunter2" not in str(caught.value)


def test_a_gateway(config: Config) -> None:
    gateway = config.named_context("local").gateway()
    assert gateway == Server(
        name="gateway", kind="gateway", address="localhost:9192", origin="penstock.yaml:20"
    )


@pytest.mark.parametrize(
    ("chosen", "name"),
    [({}, None), ({"context": "local"}, "local"), ({"environ": {"PENSTOCK_CONTEXT": "staging"}}, "staging")],
)
def test_which_context_is_used(
    config: Config, tmp_path: Path, chosen: dict[str, object], name: str | None
) -> None:
    options: dict[str, object] = {"environ": {}, **chosen}
    context = load(start=tmp_path, **options).context()  # type: ignore[arg-type]
    assert (context and context.name) == name


def test_the_only_context_needs_no_choice(tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text("contexts: {one: {servers: {k: {address: 'a:1'}}}}")
    context = load(start=tmp_path, environ={}).context()
    assert context is not None
    assert context.name == "one"


def test_an_unknown_context_says_who_chose_it(config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'stagin'") as caught:
        load(start=tmp_path, environ={}, context="stagin").context()
    assert (caught.value.where, caught.value.next) == ("flag -C", "did you mean 'staging'?")
    empty = tmp_path / "empty"
    (empty / ".git").mkdir(parents=True)
    with pytest.raises(ConfigError, match="no context 'x'"):
        load(start=empty, environ={}, context="x").context()


@pytest.mark.parametrize(
    ("address", "endpoints"),
    [
        ("h:1", (("h", 1),)),
        ("h", (("h", 9092),)),
        ("[::1]:5", (("::1", 5),)),
        ("pulsar://a,b:7", (("a", 6650), ("b", 7))),
        ("https://u:p@h/path", (("h", 443),)),
        ("http://h:8081/apis", (("h", 8081),)),
    ],
)
def test_endpoints(address: str, endpoints: tuple[tuple[str, int], ...]) -> None:
    assert Server(name="s", kind="kafka", address=address).endpoints() == endpoints


@pytest.mark.parametrize("address", ["", "h:x", "h:99999", ",", "http://", "ftp://h", "[::1", "h:0"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="not an address"):
        Server(name="s", kind="kafka", address=address).endpoints()


@pytest.mark.parametrize(
    ("security", "tls"),
    [
        (Security(), False),
        (Security(protocol="ssl"), True),
        (Security(protocol="sasl_plaintext", ca_file=Path("x")), False),
        (Security(ca_file=Path("x")), True),
    ],
)
def test_tls(security: Security, tls: bool) -> None:
    assert security.uses_tls is tls


def test_variables_for_functions_are_looked_up_when_they_are_asked_for(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = config.named_context("local")
    monkeypatch.delenv("TEST_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="TEST_API_KEY is not set"):
        local.function_environment()
    monkeypatch.setenv("TEST_API_KEY", "k")
    assert local.function_environment() == {"REGION": "eu", "API_KEY": "k"}
    assert config.named_context("staging").function_environment() == {}
