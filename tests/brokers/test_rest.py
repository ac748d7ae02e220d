"""The REST edge against a server that answers whatever a test wants; faults that no real server produces."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.brokers import rest as rest_module
from penstock.brokers.pulsar import Admin
from penstock.brokers.pulsar.admin import EntryHead, NoEntry
from penstock.brokers.pulsar_admin import PulsarAdmin
from penstock.brokers.rest import BROKERS_SECONDS, Rest
from penstock.brokers.schema_registry import SchemaRegistry
from penstock.config.secret import Secret
from penstock.errors import AccessDenied, ClusterError, ConfigError, Unreachable
from penstock.wire.pulsar import MessageId


@dataclass
class Scripted:
    """Answers by path: status, body, headers; and the requests that came. It has an address on two hosts."""

    urls: list[str] = field(default_factory=list)
    answers: dict[str, tuple[int, bytes, dict[str, str]]] = field(default_factory=dict)
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)
    private: set[str] = field(default_factory=set)
    """Paths that are refused without credentials."""
    refused: threading.Event = field(default_factory=threading.Event)
    held: float = 0.0
    """For so many seconds the list of brokers is held back, or until somebody is refused."""

    @property
    def url(self) -> str:
        return self.urls[0]

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
            if path in script.private and self.headers.get("Authorization") is None:
                script.refused.set()
                status, body, headers = 401, b"{}", {}
            if path == "/admin/v2/brokers":
                script.refused.wait(script.held)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with ExitStack() as servers:
        for host in ("127.0.0.1", "127.0.0.2"):
            http = servers.enter_context(ThreadingHTTPServer((host, 0), Handler))
            script.urls.append(f"http://{host}:{http.server_port}")
            thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            servers.callback(thread.join)
            servers.callback(http.shutdown)
        yield script


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


@pytest.fixture
def stranger(server: Scripted) -> str:
    """The same server on another host."""
    return server.urls[1]


def test_credentials_stay_with_their_host(server: Scripted, client: Rest, stranger: str) -> None:
    server.answer("/a", 307, Location=f"{stranger}/b")
    server.answer("/b", 200, b'{"x": 1}')
    assert client.call("POST", "/a", {"secret": 1}).value == {"x": 1}
    assert server.seen == [("POST", "/a", "Bearer t0ken"), ("POST", "/b", None)]


@pytest.mark.parametrize(
    ("base", "url", "gets_them"),
    [
        ("http://h:8081", "http://h:8081/x", True),
        ("http://h:8081", "http://H:8081/x", True),
        ("http://h", "http://h:80/x", True),
        ("http://h:8081", "http://h:8082/x", False),
        ("http://h", "https://h/x", False),
        ("http://h", "http://h.evil/x", False),
        ("http://h", "http://h@evil/x", False),
    ],
)
def test_another_port_is_another_host(base: str, url: str, gets_them: bool) -> None:
    rest = Rest(base, name="registry", authorization="Basic x")
    assert ("Authorization" in rest._headers_for(url)) is gets_them
    rest.close()


def test_the_credentials_of_a_registry_stay_with_it(server: Scripted, stranger: str) -> None:
    server.answer("/subjects", 308, Location=f"{stranger}/other")
    server.answer("/other", 200, b"[]")
    with SchemaRegistry({"url": server.url, "basic.auth.user.info": "u:p"}) as registry:
        assert registry.subjects() == frozenset()
    assert [seen[2] is None for seen in server.seen] == [False, True]


def test_who_does_not_get_the_credentials_and_asks_for_them_is_named(
    server: Scripted, client: Rest, stranger: str
) -> None:
    server.answer("/a", 307, Location=f"{stranger}/b")
    server.answer("/b", 401, b"{}")
    with pytest.raises(AccessDenied, match="redirects to 127.0.0.2"):
        client.call("GET", "/a")


@pytest.mark.parametrize("location", ["http://[::1", "http://h:999999/", "http://h:x/"])
def test_a_redirect_to_no_address(server: Scripted, client: Rest, location: str) -> None:
    server.answer("/a", 307, Location=location)
    with pytest.raises(ClusterError):
        client.call("GET", "/a")


OWNER = "/admin/v2/persistent/public/default"


def ask_pulsar(options: dict[str, str]) -> None:
    with PulsarAdmin({"authorization": "Bearer t0ken", **options}) as admin:
        admin._rest.call("GET", "/persistent/public/default")


def ask_pulsar_async(options: dict[str, str]) -> None:
    async def ask() -> None:
        hosts = options.get("hosts", "").split(",")
        async with Admin(options["url"], token=Secret("t0ken"), hosts=hosts) as admin:
            await admin._rest.ask("GET", "/persistent/public/default")

    asyncio.run(ask())


@pytest.mark.parametrize("ask", [ask_pulsar, ask_pulsar_async])
@pytest.mark.parametrize(
    ("named", "listed", "gets_them"),
    [
        ("", (200, b'["127.0.0.2:8080"]'), True),
        ("127.0.0.2", (403, b"{}"), True),
        ("", (200, b'["127.0.0.3:8080", "[::1", 5]'), False),
        ("", (403, b"{}"), False),
        ("", (200, b'{"127.0.0.2": 1}'), False),
    ],
)
def test_brokers_of_the_cluster_get_the_credentials(
    server: Scripted,
    stranger: str,
    ask: Callable[[dict[str, str]], None],
    named: str,
    listed: tuple[int, bytes],
    gets_them: bool,
) -> None:
    server.answer(OWNER, 307, Location=f"{stranger}/owner")
    server.answer("/owner", 200, b"[]")
    server.answer("/admin/v2/brokers", *listed)
    ask({"url": server.url, "hosts": named})
    assert server.seen[-1] == ("GET", "/owner", "Bearer t0ken" if gets_them else None)
    assert (("GET", "/admin/v2/brokers", "Bearer t0ken") in server.seen) is (not named)


def at_once_by_threads(options: dict[str, str]) -> None:
    with (
        PulsarAdmin({"authorization": "Bearer t0ken", **options}) as admin,
        ThreadPoolExecutor(8) as pool,
    ):
        list(pool.map(lambda _: admin._rest.call("GET", "/persistent/public/default"), range(8)))


def at_once_by_tasks(options: dict[str, str]) -> None:
    async def ask() -> None:
        async with Admin(options["url"], token=Secret("t0ken")) as admin:
            await asyncio.gather(*(admin._rest.ask("GET", "/persistent/public/default") for _ in range(8)))

    asyncio.run(ask())


@pytest.mark.parametrize("ask", [at_once_by_threads, at_once_by_tasks])
def test_nobody_goes_without_credentials_while_the_brokers_are_asked_for(
    server: Scripted, stranger: str, ask: Callable[[dict[str, str]], None]
) -> None:
    server.answer(OWNER, 307, Location=f"{stranger}/owner")
    server.answer("/owner", 200, b"[]")
    server.answer("/admin/v2/brokers", 200, b'["127.0.0.2:8080"]')
    server.private, server.held = {"/owner"}, 0.3
    ask({"url": server.url})
    assert {seen[2] for seen in server.seen} == {"Bearer t0ken"}
    assert sum(path == "/admin/v2/brokers" for _, path, _ in server.seen) == 1


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 1), (BROKERS_SECONDS, 3)])
def test_a_host_that_is_no_broker_does_not_make_us_ask_each_time(
    server: Scripted, stranger: str, seconds: float, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(rest_module.time, "monotonic", lambda: now)
    server.answer(OWNER, 307, Location=f"{stranger}/owner")
    server.answer("/owner", 200, b"[]")
    server.answer("/admin/v2/brokers", 200, b'["127.0.0.3:8080"]')
    with PulsarAdmin({"authorization": "Bearer t0ken", "url": server.url}) as admin:
        for _ in range(3):
            admin._rest.call("GET", "/persistent/public/default")
            now += seconds
    assert sum(path == "/admin/v2/brokers" for _, path, _ in server.seen) == asked
    assert [authorization for _, path, authorization in server.seen if path == "/owner"] == [None] * 3


def again_by_threads(options: dict[str, str], then: Callable[[], None]) -> None:
    with PulsarAdmin({"authorization": "Bearer t0ken", **options}) as admin:
        with pytest.raises(Unreachable):
            admin._rest.call("GET", "/persistent/public/default")
        then()
        assert admin._rest.call("GET", "/persistent/public/default").ok


def again_by_tasks(options: dict[str, str], then: Callable[[], None]) -> None:
    async def ask() -> None:
        async with Admin(options["url"], token=Secret("t0ken")) as admin:
            with pytest.raises(Unreachable):
                await admin._rest.ask("GET", "/persistent/public/default")
            then()
            answer, _ = await admin._rest.ask("GET", "/persistent/public/default")
            assert answer.ok

    asyncio.run(ask())


@pytest.mark.parametrize("ask", [again_by_threads, again_by_tasks])
def test_a_list_of_brokers_that_cannot_be_had_now_is_no_missing_right(
    server: Scripted, stranger: str, ask: Callable[[dict[str, str], Callable[[], None]], None]
) -> None:
    server.answer(OWNER, 307, Location=f"{stranger}/owner")
    server.answer("/owner", 200, b"[]")
    server.answer("/admin/v2/brokers", 503)
    server.private = {"/owner"}
    ask({"url": server.url}, lambda: server.answer("/admin/v2/brokers", 200, b'["127.0.0.2:8080"]'))


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


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b"5", b'[1, "a"]', b'{"a": 1}'])
def test_strange_lists_of_topics(server: Scripted, body: bytes) -> None:
    server.answer("/admin/v2/persistent/a/b", 200, body)
    server.answer("/admin/v2/persistent/a/b/partitioned", 200, body)

    async def ask(name: str) -> None:
        async with Admin(server.url) as admin:
            await getattr(admin, name)("a/b")

    for name in ("topics", "partitioned_topics"):
        with pytest.raises(ClusterError, match="no names"):
            asyncio.run(ask(name))


@pytest.mark.parametrize(
    ("headers", "hidden", "held_back"),
    [
        ({}, False, False),
        ({"x-pulsar-marker-type": "21"}, True, False),
        ({"x-pulsar-txn-aborted": "true"}, True, False),
        ({"x-pulsar-txn-aborted": "false", "x-pulsar-txn-uncommitted": "true"}, False, True),
    ],
)
def test_which_entries_readers_are_given(
    server: Scripted, headers: dict[str, str], hidden: bool, held_back: bool
) -> None:
    index = {"x-pulsar-broker-entry-metadata-index": "9", "x-pulsar-num-batch-message": "3"}
    path = "/admin/v2/persistent/public/default/x/ledger/1/entry/2"
    server.answer(path, 200, b"", **index, **headers)

    async def ask() -> EntryHead:
        async with Admin(server.url) as admin:
            return await admin.entry_head("persistent://public/default/x", MessageId(1, 2))

    found = asyncio.run(ask())
    assert found.index == (9, 3)
    assert (found.is_hidden, found.is_held_back) == (hidden, held_back)


BROKEN = "\n --- An unexpected error occurred in the server ---\n\nMessage: {}\n\nStacktrace:\n\n{}: {}\n"
MLEDGER = "org.apache.bookkeeper.mledger.ManagedLedgerException"


@pytest.mark.parametrize(
    ("status", "body", "is_absent"),
    [
        (404, {"reason": "Message id not found"}, True),
        (
            500,
            {"reason": BROKEN.format("x", MLEDGER, "LastConfirmedEntry is 5:-1 when reading entry 0")},
            True,
        ),
        (
            500,
            {"reason": BROKEN.format("x", f"{MLEDGER}$NonRecoverableLedgerException", "No such entry")},
            True,
        ),
        # Older brokers: a page instead of a reason.
        (500, None, True),
        (500, {"reason": BROKEN.format("x", MLEDGER, "Bookie handle is not available")}, False),
        (500, {"reason": BROKEN.format("x", MLEDGER, "Not enough non-faulty bookies available")}, False),
        (500, {"reason": BROKEN.format("x", f"{MLEDGER}$TooManyRequestsException", "Timeout")}, False),
        (403, {"reason": "role may not peek, topic not found in its rights"}, False),
        (503, {"reason": "Message id not found"}, False),
    ],
)
def test_an_entry_that_is_not_there_is_told_from_one_that_cannot_be_read(
    server: Scripted, status: int, body: dict[str, str] | None, is_absent: bool
) -> None:
    path = "/admin/v2/persistent/public/default/x/ledger/1/entry/2"
    server.answer(path, status, b"<html>" if body is None else json.dumps(body).encode())

    async def ask() -> None:
        async with Admin(server.url) as admin:
            await admin.entry_head("persistent://public/default/x", MessageId(1, 2))

    with pytest.raises(ClusterError) as caught:
        asyncio.run(ask())
    assert isinstance(caught.value, NoEntry) is is_absent
