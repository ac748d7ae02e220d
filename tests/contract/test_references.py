"""`$ref`: across files, in circles, out of the folder, over the network; traits that are references."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.contract import Validation, load, resolve, validate
from penstock.contract.pointer import MalformedReference, parse_reference, write_pointer

HEAD = "asyncapi: 3.0.0\ninfo: {title: t, version: '1'}\n"


def check(folder: Path, text: str, **files: str) -> Validation:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".yaml").write_text(content)
    (folder / "asyncapi.yaml").write_text(HEAD + text)
    return validate(folder / "asyncapi.yaml")


def ids(result: Validation) -> list[str]:
    return [finding.rule.id for finding in result.findings]


def test_references_across_files_and_back(tmp_path: Path) -> None:
    result = check(
        tmp_path,
        "channels: {c: {address: a, messages: {m: {$ref: 'parts/messages.yaml#/all/m~1x'}}}}\n"
        "components: {schemas: {back: {type: integer}}}\n",
        parts__messages="all: {m/x: {payload: {properties: {"
        "a: {$ref: '../asyncapi.yaml#/components/schemas/back'}, b: {$ref: 'schemas.yaml#/s%20t'}}}}}\n",
        parts__schemas="s t: {type: string}\n",
    )
    assert ids(result) == []
    assert result.contract is not None
    payload = result.contract.channels["c"].messages["m"].payload
    assert payload is not None
    assert payload.definition == {
        "properties": {
            "a": {"$ref": "#/definitions/penstock-0"},
            "b": {"$ref": "#/definitions/penstock-1"},
        },
        "definitions": {"penstock-0": {"type": "integer"}, "penstock-1": {"type": "string"}},
    }


def test_findings_name_the_file_that_holds_the_problem(tmp_path: Path) -> None:
    result = check(
        tmp_path,
        "channels: {c: {$ref: 'c.yaml'}}\n",
        c="address: a\nbindings:\n  kafka:\n    partitions: 0\n",
    )
    assert [str(f.position) for f in result.findings] == [
        f"{tmp_path}/c.yaml:4:17  bindings.kafka.partitions"
    ]


def test_a_recursive_schema_is_no_circle(tmp_path: Path) -> None:
    tree = "{type: object, properties: {left: {$ref: '#/components/schemas/tree'}}}"
    examples = "[{payload: {left: {left: {}}}}, {payload: {left: {left: 5}}}]"
    result = check(
        tmp_path,
        f"components: {{schemas: {{tree: {tree}}}, messages: {{m: {{"
        f"payload: {{$ref: '#/components/schemas/tree'}}, examples: {examples}}}}}}}\n",
    )
    assert ids(result) == ["PK270"]
    assert result.findings[0].position.path == "components.messages.m.examples[1].payload.left.left"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("channels: {a: {$ref: '#/channels/b'}, b: {$ref: '#/channels/a'}}", "PK222"),
        ("channels: {a: {$ref: '#/channels/a'}}", "PK222"),
        ("channels: {a: {$ref: '#/channels/a/b'}}", "PK222"),
        ("channels: {a: {$ref: '#/channels/b/x'}, b: {$ref: '#/channels/a/y'}}", "PK222"),
        ("channels: {a: {$ref: '#/nowhere'}}", "PK220"),
        ("channels: {a: {$ref: '#/info/title/deeper'}}", "PK220"),
        ("channels: {a: {$ref: 'none.yaml'}}", "PK221"),
        ("channels: {a: {$ref: '.'}}", "PK221"),
        ("channels: {a: {$ref: '../secret.yaml'}}", "PK223"),
        ("channels: {a: {$ref: '/etc/passwd'}}", "PK223"),
        ("channels: {a: {$ref: '%2e%2e/secret.yaml'}}", "PK223"),
        ("channels: {a: {$ref: 'link.yaml'}}", "PK223"),
        ("channels: {a: {$ref: 'https://example.com/x.yaml'}}", "PK223"),
        ("channels: {a: {$ref: 'file:///etc/passwd'}}", "PK227"),
        ("channels: {a: {$ref: '#channels'}}", "PK227"),
        ("channels: {a: {$ref: '#/a~2'}}", "PK227"),
        ("channels: {a: {$ref: 'x%00.yaml'}}", "PK227"),
        ("channels: {a: {$ref: 5}}", "PK227"),
        ("channels: {a: {$ref: 'broken.yaml'}}", "PK201"),
        ("channels: {a: {$ref: '#/components/messages/m'}}\ncomponents: {messages: {m: {}}}", "PK228"),
    ],
)
def test_references_that_lead_nowhere(tmp_path: Path, text: str, rule: str) -> None:
    folder = tmp_path / "contract"
    folder.mkdir()
    (tmp_path / "secret.yaml").write_text("address: secret\n")
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    found = ids(check(folder, text, broken="a: [\n"))
    assert rule in found
    assert set(found) <= {rule, "PK220", "PK222", "PK255"}


def test_outside_is_read_when_allowed(tmp_path: Path) -> None:
    (tmp_path / "shared.yaml").write_text("address: shared\n")
    folder = tmp_path / "contract"
    folder.mkdir()
    check(folder, "channels: {a: {$ref: '../shared.yaml'}}")
    contract = load(folder / "asyncapi.yaml", allow_outside=True)
    assert contract.channels["a"].address == "shared"


def test_a_chain_through_many_references_ends(tmp_path: Path) -> None:
    chain = ", ".join(f"c{n}: {{$ref: '#/channels/c{n + 1}/x'}}" for n in range(400))
    assert "PK227" in ids(check(tmp_path, f"channels: {{{chain}, c400: {{address: a}}}}"))


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """A web server on loopback that serves one channel and a redirect."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/c.yaml" else 302)
            self.send_header("Location", "/c.yaml")
            self.end_headers()
            self.wfile.write(b"address: remote\nmessages: {m: {$ref: 'm.yaml'}}\n")

        def log_message(self, format: str, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_remote_references_only_when_allowed(tmp_path: Path, web: str) -> None:
    assert ids(check(tmp_path, f"channels: {{a: {{$ref: '{web}/c.yaml'}}}}")) == ["PK223"]
    result = validate(tmp_path / "asyncapi.yaml", allow_remote=True)
    assert result.contract is not None
    assert result.contract.channels["a"].address == "remote"
    # The relative reference inside it stays remote, and a redirect is not followed.
    assert ids(result) == ["PK221"]
    assert result.findings[0].position.file == f"{web}/c.yaml"


TRAITS = """
servers: {k: {host: 'h:1', protocol: kafka}}
channels: {c: {address: a}}
operations:
  o:
    action: receive
    channel: {$ref: '#/channels/c'}
    title: mine
    bindings: {$ref: '#/components/operationBindings/own'}
    tags: [{name: own}]
    traits:
      - title: first
        summary: first
        tags: [{name: one}, {name: two}]
        bindings: {kafka: {groupId: {type: string, const: first}}}
      - $ref: '#/components/operationTraits/second'
components:
  operationBindings: {own: {kafka: {clientId: {type: string, const: me}}}}
  operationTraits:
    second: {summary: second, bindings: {kafka: {groupId: {const: second}, clientId: {const: other}}}}
"""


def test_traits_merge_in_order_and_the_target_wins(tmp_path: Path) -> None:
    result = check(tmp_path, TRAITS)
    assert ids(result) == []
    assert result.contract is not None
    operation = result.contract.operations["o"]
    assert (operation.title, operation.summary) == ("mine", "second")
    assert [tag.name for tag in operation.tags] == ["own"]
    resolved = resolve(result.contract, "o")
    assert (resolved.group_id, resolved.client_id) == ("second", "me")


def test_a_finding_in_a_trait_stands_in_the_trait(tmp_path: Path) -> None:
    text = TRAITS.replace("groupId: {const: second}", "groupId: second")
    (finding,) = check(tmp_path, text).errors
    assert finding.rule.id == "PK232"
    assert finding.position.path == "components.operationTraits.second.bindings.kafka.groupId"


def test_pointers_are_written_as_they_are_read() -> None:
    assert parse_reference(write_pointer("a/b", "c~d", "")).tokens == ("a/b", "c~d", "")
    with pytest.raises(MalformedReference):
        parse_reference("ftp://host/x")


LIBRARY = """
components:
  servers: {k: {host: 'k:9092', protocol: kafka}}
  channels:
    orders:
      address: orders
      servers: [{$ref: '#/components/servers/k'}]
      messages: {m: {payload: {type: object}}, n: {x-penstock-type: t.n}}
      x-penstock-dead-letter: {$ref: '#/components/channels/dead'}
    dead: {address: dead}
  operations:
    onOrder:
      action: receive
      channel: {$ref: '#/components/channels/orders'}
      messages: [{$ref: '#/components/channels/orders/messages/n'}]
      reply: {channel: {$ref: '#/components/channels/dead'}}
"""


@pytest.mark.parametrize("place", ["", "library.yaml"])
def test_what_components_store_may_point_anywhere(tmp_path: Path, place: str) -> None:
    own = "channels: {}\n" if not place else f"channels: {{}}\noperations: {{}}\nx-y: {{$ref: '{place}'}}\n"
    assert ids(check(tmp_path, own + (LIBRARY if not place else ""), library=LIBRARY)) == []


ACTIVE = """
servers: {main: {host: 'o:1', protocol: kafka}, prod: {$ref: 'HERE#/components/servers/k'}}
channels:
  placed: {$ref: 'HERE#/components/channels/orders'}
  letters: {$ref: 'HERE#/components/channels/dead'}
operations: {read: {$ref: 'HERE#/components/operations/onOrder'}}
"""


@pytest.mark.parametrize("place", ["", "library.yaml"])
def test_what_is_used_of_components_is_known_by_its_name_here(tmp_path: Path, place: str) -> None:
    text = ACTIVE.replace("HERE", place) + ("" if place else LIBRARY)
    result = check(tmp_path, text, library=LIBRARY)
    assert result.contract is not None and result.errors == ()
    operation = resolve(result.contract, "read")
    assert (operation.channel, operation.server, operation.kafka_topic) == ("placed", "prod", "orders")
    assert [message.name for message in operation.messages] == ["n"]
    assert operation.dead_letter_channel == "letters"
    reply = result.contract.operations["read"].reply
    assert reply is not None and reply.channel == "letters"


@pytest.mark.parametrize(
    ("left_out", "broken"),
    [
        ("  placed: {$ref: 'HERE#/components/channels/orders'}\n", ["channel", "messages"]),
        ("  letters: {$ref: 'HERE#/components/channels/dead'}\n", ["channel", "x-penstock-dead-letter"]),
        (", prod: {$ref: 'HERE#/components/servers/k'}", ["servers"]),
    ],
)
def test_what_is_used_of_components_must_be_here_in_the_end(
    tmp_path: Path, left_out: str, broken: list[str]
) -> None:
    text = ACTIVE.replace(left_out, "").replace("HERE", "") + LIBRARY
    found = [finding for finding in check(tmp_path, text).findings if finding.rule.id == "PK226"]
    assert sorted(finding.message.split()[0] for finding in found) == broken
