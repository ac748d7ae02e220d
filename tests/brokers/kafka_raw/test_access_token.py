"""Tokens from an endpoint on loopback: kept, replaced, refused, and never shown."""

from __future__ import annotations

import base64
import logging
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from token_endpoint import CLIENT, SECRET, TokenEndpoint, jwt, serving

from penstock.brokers.kafka_raw import access_token as module
from penstock.brokers.kafka_raw.access_token import access_token
from penstock.brokers.kafka_raw.settings import Settings
from penstock.config.secret import Reference
from penstock.errors import AccessDenied, ClusterError, ConfigError, PenstockError, Unreachable


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenEndpoint]:
    monkeypatch.setattr(module, "_clients", {})
    with serving() as made:
        yield made


def settings_of(endpoint: TokenEndpoint, **more: Any) -> Settings:
    options = {
        "bootstrap.servers": "127.0.0.1:1",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
    }
    return Settings.of(options, **more)


def test_a_token_is_fetched_once_by_client_credentials(endpoint: TokenEndpoint) -> None:
    settings = settings_of(endpoint)
    found = access_token(settings)
    assert access_token(pickle.loads(pickle.dumps(settings))) is found
    assert found.value == endpoint.issued[0]
    assert endpoint.requests == [("/token", {"grant_type": ["client_credentials"]})]


def test_a_scope_is_asked_for(endpoint: TokenEndpoint) -> None:
    access_token(settings_of(endpoint, scope="kafka write"))
    assert endpoint.requests[0][1]["scope"] == ["kafka write"]


def test_many_threads_make_one_request(endpoint: TokenEndpoint) -> None:
    settings = settings_of(endpoint)
    barrier = threading.Barrier(8)

    def get(_: int) -> str:
        barrier.wait()
        return access_token(settings).value

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(get, range(8))) == {endpoint.issued[0]}
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("expires_in", "exp", "seconds"),
    [
        (100, None, 100),
        ("100", None, 100),
        (100, 50, 50),
        (50, 100, 50),
        (None, 100, 100),
        (None, None, 300),
        (0, None, 0),
        (-5, None, 300),
        (True, None, 300),
        ("soon", None, 300),
        ([1], None, 300),
        (1e300, None, 300),
        (10**11, None, 30 * 24 * 3600),
        (None, -100, 0),
    ],
)
def test_how_long_a_token_is_used(
    endpoint: TokenEndpoint, expires_in: object, exp: float | None, seconds: float
) -> None:
    token = jwt(exp=time.time() + exp) if exp is not None else "opaque-token"
    more = {} if expires_in is None else {"expires_in": expires_in}
    endpoint.answers(200, {"access_token": token, **more})
    before = time.monotonic()
    found = access_token(settings_of(endpoint))
    after = time.monotonic()
    assert before + seconds - 1 <= found.expires_at <= after + seconds + 1
    assert found.renew_at <= found.expires_at


def test_a_token_is_replaced_before_it_expires(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(endpoint)
    first = access_token(settings)
    now = time.monotonic
    monkeypatch.setattr(module.time, "monotonic", lambda: now() + 0.81 * endpoint.lifetime)
    assert access_token(settings).value != first.value
    assert len(endpoint.requests) == 2


def test_a_token_that_is_still_good_is_used_while_its_endpoint_is_away(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(endpoint)
    first = access_token(settings)
    now = time.monotonic
    endpoint.answers(503, {})
    monkeypatch.setattr(module.time, "monotonic", lambda: now() + 0.9 * endpoint.lifetime)
    with caplog.at_level(logging.DEBUG):
        assert [access_token(settings) for _ in range(5)] == [first] * 5
    # It is not asked again for each connection.
    assert len(endpoint.requests) == 2
    assert "no new access token" in caplog.text
    assert first.value not in caplog.text
    assert SECRET not in caplog.text
    monkeypatch.setattr(module.time, "monotonic", lambda: now() + 1.1 * endpoint.lifetime)
    with pytest.raises(Unreachable, match="gives no token now"):
        access_token(settings)


def test_a_token_that_a_broker_refused_is_replaced_once_for_all(endpoint: TokenEndpoint) -> None:
    settings = settings_of(endpoint)
    first = access_token(settings)
    second = access_token(settings, refused=first)
    assert second.value != first.value
    # Whoever comes later with the first one gets the second, without a request.
    assert access_token(settings, refused=first) is second
    assert len(endpoint.requests) == 2


def test_another_secret_does_not_get_the_token_of_the_right_one(endpoint: TokenEndpoint) -> None:
    access_token(settings_of(endpoint))
    with pytest.raises(AccessDenied):
        access_token(replace(settings_of(endpoint), password="wrong-hunter3"))


def test_a_secret_from_a_file_is_read_again(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    revealed = Reference("${file:secret}", "penstock.yaml", tmp_path)()
    settings = replace(settings_of(endpoint), password=revealed)
    access_token(settings)
    endpoint.secret = "second"
    file.write_text("third\n")
    with pytest.raises(AccessDenied, match="does not accept this client"):
        access_token(settings)
    with pytest.raises(Unreachable, match="a password that worked before"):
        access_token(replace(settings, proven=True))
    file.write_text("second\n")
    assert access_token(pickle.loads(pickle.dumps(settings))).value == endpoint.issued[1]


def hides(error: PenstockError, *more: str) -> bool:
    pair = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
    return not any(hidden in str(error) + repr(error) for hidden in (SECRET, pair, *more))


@pytest.mark.parametrize(
    ("status", "body", "kind", "what"),
    [
        (401, {"error": "invalid_client", "error_description": f"not {SECRET}"}, AccessDenied, "client id"),
        (400, {"error": "unauthorized_client"}, AccessDenied, "unauthorized_client"),
        (403, b"<html>", AccessDenied, "HTTP status 403"),
        (400, {"error": "invalid_scope"}, ClusterError, "refused to give a token.*invalid_scope"),
        (404, b"", ClusterError, "refused to give a token.*404"),
        (302, b"", ClusterError, "refused to give a token.*302"),
        (200, b"<html>", ClusterError, "has given no token"),
        (200, b"", ClusterError, "has given no token"),
        (200, b"[" * 100_000, ClusterError, "has given no token"),
        (200, ["access_token"], ClusterError, "has given no token"),
        (200, {"access_token": 7}, ClusterError, "has given no token"),
        (200, {"access_token": ""}, ClusterError, "has given no token"),
        (200, {"access_token": "a\1auth=Bearer b"}, ClusterError, "has given no token"),
        (200, {"access_token": "a b"}, ClusterError, "has given no token"),
        (200, {"access_token": "a" * 70_000}, ClusterError, "has given no token"),
        (200, b'{"access_token": "' + b"a" * 300_000 + b'"}', ClusterError, "more than 262144 bytes"),
        (500, {"error": "server_error"}, Unreachable, "no token now.*server_error"),
        (503, b"", Unreachable, "no token now"),
        (429, b"", Unreachable, "no token now"),
    ],
)
def test_what_an_endpoint_may_answer(
    endpoint: TokenEndpoint, status: int, body: object, kind: type[ClusterError], what: str
) -> None:
    endpoint.answers(status, body)
    with pytest.raises(kind, match=what) as caught:
        access_token(settings_of(endpoint))
    assert type(caught.value) is kind
    assert endpoint.url in str(caught.value.where)
    assert hides(caught.value)


def test_what_an_endpoint_echoes_is_masked(endpoint: TokenEndpoint) -> None:
    with pytest.raises(AccessDenied, match="Basic ") as caught:
        access_token(replace(settings_of(endpoint), username="other"))
    pair = base64.b64encode(f"other:{SECRET}".encode()).decode()
    assert hides(caught.value, pair)


def test_an_endpoint_that_is_away(endpoint: TokenEndpoint) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = replace(settings_of(endpoint), token_url=f"http://127.0.0.1:{port}/token")
    with pytest.raises(Unreachable, match="cannot reach the token endpoint") as caught:
        access_token(settings)
    assert caught.value.where == f"http://127.0.0.1:{port}/token"


def test_an_endpoint_that_answers_in_drops_does_not_hold_us(endpoint: TokenEndpoint) -> None:
    ended = threading.Event()

    def drops() -> Iterator[bytes]:
        try:
            for _ in range(600):
                time.sleep(0.05)
                yield b" "
        finally:
            ended.set()

    endpoint.answer = lambda: (200, {}, drops())
    with pytest.raises(Unreachable, match="within 0.5 s"):
        access_token(settings_of(endpoint, connect_timeout=0.5))
    assert ended.wait(60)


def test_an_endpoint_that_says_nothing_does_not_hold_us(endpoint: TokenEndpoint) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = replace(
            settings_of(endpoint, connect_timeout=0.5),
            token_url=f"http://127.0.0.1:{silent.getsockname()[1]}/token",
        )
        with pytest.raises(Unreachable, match="cannot reach the token endpoint"):
            access_token(settings)


def test_a_redirect_to_another_host_gets_no_credentials(endpoint: TokenEndpoint) -> None:
    with serving() as other:
        endpoint.answers(307, b"", Location=other.url)
        with pytest.raises(AccessDenied, match="asks for credentials") as caught:
            access_token(settings_of(endpoint))
        assert len(other.requests) == 1
        assert other.issued == []
        assert hides(caught.value)


def test_one_client_does_not_wait_for_another(endpoint: TokenEndpoint) -> None:
    """While an endpoint is slow for one client, another one of the process logs in elsewhere."""
    entered, go = threading.Event(), threading.Event()

    def slow() -> tuple[int, dict[str, str], bytes]:
        entered.set()
        assert go.wait(60)
        return 503, {}, b""

    endpoint.answer = slow
    with serving() as other, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(access_token, settings_of(endpoint, connect_timeout=60.0))
        assert entered.wait(60)
        assert access_token(settings_of(other)).value == other.issued[0]
        go.set()
        with pytest.raises(Unreachable):
            waiting.result(60)


@pytest.mark.parametrize("url", ["ftp://h/token", "h/token", ""])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="token endpoint"):
        settings_of(TokenEndpoint(url=url))


def test_other_ways_to_tokens_are_refused_at_once(endpoint: TokenEndpoint) -> None:
    with pytest.raises(ConfigError, match="oidc"):
        Settings.of({"bootstrap.servers": "h", "sasl.oauthbearer.method": "default"})


def test_neither_token_nor_secret_is_shown(endpoint: TokenEndpoint) -> None:
    settings = settings_of(endpoint)
    shown = repr(access_token(settings)) + repr(settings)
    assert SECRET not in shown
    assert endpoint.issued[0] not in shown
