"""The REST edge against a server that answers whatever a test wants; faults that no real server produces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.brokers import rest as rest_module
from penstock.brokers.pulsar_admin import PulsarAdmin
from penstock.brokers.rest import Rest
from penstock.brokers.schema_registry import SchemaRegistry
from penstock.errors import ClusterError, ConfigError, Unreachable


@dataclass
class Scripted:
    """Answers by path: status, body, headers; and the requests that came."""

    url: str = ""
    answers: dict[str, tuple[int, bytes, dict[str, str]]] = field(default_factory=dict)
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)

    def answer(self, path: str, status: int, body: bytes = b"", **headers: str) -> None:
        self.answers[path] = (status, body, headers)


@pytest.fixture
def server() -> Iterator[Scripted]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            script.seen.append((self.command, path, self.headers.get("Authorization")))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body, headers = script.answers.get(path, (404, b"", {}))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        script.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield script
        http.shutdown()
        thread.join()


@pytest.fixture
def client(server: Scripted) -> Iterator[Rest]:
    made = Rest(server.url, name="pulsar", authorization="Bearer t0ken")
    yield made
    made.close()


def test_credentials_follow_a_redirect_to_the_owner(server: Scripted, client: Rest) -> None:
    server.answer("/a", 307, Location=f"{server.url}/b")
    server.answer("/b", 200, b'{"x": 1}')
    assert client.call("GET", "/a").value == {"x": 1}
    assert server.seen == [("GET", "/a", "Bearer t0ken"), ("GET", "/b", "Bearer t0ken")]


def test_a_redirect_in_a_circle(server: Scripted, client: Rest) -> None:
    server.answer("/a", 307, Location="/a")
    with pytest.raises(ClusterError, match="circle"):
        client.call("GET", "/a")
    assert len(server.seen) == rest_module.MAX_REDIRECTS + 1


def test_credentials_do_not_leave_tls(client: Rest) -> None:
    with pytest.raises(ClusterError, match="in the clear"):
        client._next("https://host/a", "http://host/a")


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_without_its_server(server: Scripted, client: Rest, status: int) -> None:
    server.answer("/a", status)
    with pytest.raises(Unreachable, match="not serving"):
        client.call("GET", "/a")


def test_an_error_of_the_server(server: Scripted, client: Rest) -> None:
    server.answer("/a", 500, b'{"reason": "disk full"}')
    with pytest.raises(ClusterError, match="disk full"):
        client.call("GET", "/a")


def test_an_answer_without_end(server: Scripted, client: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_module, "MAX_BYTES", 1000)
    server.answer("/a", 200, b"[" + b"1," * 5000)
    with pytest.raises(ClusterError, match="more than 1000 bytes"):
        client.call("GET", "/a")


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json(server: Scripted, client: Rest, body: bytes) -> None:
    server.answer("/a", 400, body)
    answer = client.call("GET", "/a")
    assert (answer.value, answer.reason) == (None, "HTTP status 400")


def test_a_user_in_the_address_is_masked(server: Scripted) -> None:
    made = Rest(server.url.replace("//", "//me:s3cret@"), name="registry")
    server.answer("/a", 500)
    with pytest.raises(ClusterError) as refused:
        made.call("GET", "/a")
    made.close()
    assert "s3cret" not in str(refused.value)
    assert "******@" in str(refused.value)
    assert (server.seen[0][2] or "").startswith("Basic ")


def test_a_server_that_is_too_slow(server: Scripted) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        made = Rest(f"http://127.0.0.1:{deaf.getsockname()[1]}", name="pulsar", timeout=0.2)
        with pytest.raises(Unreachable, match="timed out"):
            made.call("GET", "/a")
        made.close()


def test_an_address_that_is_none() -> None:
    made = Rest("http://host:port", name="pulsar")
    with pytest.raises(ConfigError, match="is not an address"):
        made.call("GET", "/a")
    made.close()


@pytest.mark.parametrize("body", [b"3", b"null", b"[]", b'"x"', b"", b"{}", b'{"version": "x", "schema": 1}'])
@pytest.mark.parametrize(
    "ask",
    [
        lambda registry: registry.subjects(),
        lambda registry: registry.latest("s"),
        lambda registry: registry.check("s", "AVRO", "1"),
        lambda registry: registry.register("s", "AVRO", "1"),
        lambda registry: registry.compatibility("s"),
    ],
)
def test_strange_answers_of_a_registry(
    server: Scripted, body: bytes, ask: Callable[[SchemaRegistry], object]
) -> None:
    for path in ("/subjects", "/subjects/s/versions/latest", "/subjects/s/versions", "/config/s"):
        server.answer(path, 200, body)
    server.answer("/compatibility/subjects/s/versions/latest", 200, body)
    with SchemaRegistry({"url": server.url}) as registry:
        try:
            answer = ask(registry)
        except ClusterError as exc:
            assert "cannot be read" in exc.what
        else:
            assert isinstance(answer, frozenset | str)


@pytest.mark.parametrize("body", [b"3", b"null", b"[]", b'"x"', b"", b'{"retention_policies": 3}'])
def test_strange_answers_of_pulsar(server: Scripted, body: bytes) -> None:
    server.answer("/admin/v2/namespaces/a/b", 200, body)
    with PulsarAdmin({"url": server.url}) as pulsar, pytest.raises(ClusterError, match="no object"):
        pulsar.namespace("a/b")
