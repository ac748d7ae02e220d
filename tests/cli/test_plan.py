"""The words and exit codes of `plan`, `apply` and `drift`, on clusters in memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli import output
from penstock.cli.app import main
from penstock.contract.memory import MemoryClusters

CONTRACT = """\
asyncapi: 3.0.0
info: {title: shop, version: 1.0.0}
servers:
  kafka: {host: 'kafka.example:9092', protocol: kafka}
  other: {host: 'other.example:9092', protocol: kafka}
channels:
  orders:
    address: orders
    bindings: {kafka: {partitions: 2, topicConfiguration: {retention.ms: 5000}}}
  paid:
    address: paid
    servers: [{$ref: '#/servers/kafka'}]
"""
CONFIG = """\
context: staging
contexts:
  staging: {servers: {kafka: {address: 'localhost:9092'}}}
  production: {servers: {kafka: {address: 'localhost:9093'}, other: {address: 'localhost:9094'}}}
"""


PIPELINE = """\
routes:
  copy: {receive: onOrder, send: copyOrder}
"""
BETWEEN = """\
asyncapi: 3.0.0
info: {title: shop, version: 1.0.0}
servers:
  kafka: {host: 'kafka.example:9092', protocol: kafka}
  other: {host: 'other.example:9092', protocol: kafka}
channels:
  orders:
    address: orders
    servers: [{$ref: '#/servers/kafka'}]
    x-penstock-dead-letter: {$ref: '#/channels/dead'}
  kept: {address: kept, servers: [{$ref: '#/servers/kafka'}]}
  dead: {address: dead, servers: [{$ref: '#/servers/kafka'}]}
  copies: {address: copies, servers: [{$ref: '#/servers/other'}]}
operations:
  onOrder: {action: receive, channel: {$ref: '#/channels/orders'}}
  copyOrder: {action: send, channel: {$ref: '#/channels/copies'}}
  keepOrder: {action: send, channel: {$ref: '#/channels/kept'}}
"""


class Shared(MemoryClusters):
    """Clusters that outlive a command."""

    def close(self) -> None:
        """Keep what is there."""


@pytest.fixture
def clusters(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    (isolated_home / ".git").mkdir()
    (isolated_home / "asyncapi.yaml").write_text(CONTRACT)
    (isolated_home / "penstock.yaml").write_text(CONFIG)
    shared = Shared()
    monkeypatch.setattr("penstock.contract.clusters.ContractClusters", lambda *_args, **_kw: shared)
    return shared


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_plan_shows_the_clusters_of_the_context(clusters: Shared, run: Any) -> None:
    code, shown, talk = run("plan")
    assert code == 0
    assert shown == (
        "contract shop 1.0.0 -> context staging (kafka 3 brokers)\n"
        "\n"
        "+ topic orders  kafka  partitions 2, retention.ms 5000\n"
        "+ topic paid    kafka  the broker's defaults\n"
        "  0 unchanged\n"
        "\n"
        "2 to add\n"
    )
    assert talk == "server other is not in context staging: left out\n"
    assert run("plan", "--exit-code")[0] == 3
    assert run("drift")[0] == 3
    assert clusters.kafka("kafka").state == {}


def test_plan_over_all_servers_of_a_context(clusters: Shared, run: Any) -> None:
    code, shown, talk = run("-C", "production", "plan")
    assert (code, talk) == (0, "")
    assert shown.count("+ topic orders") == 2
    assert run("plan", "--server", "nope")[0] == 2
    assert "+ topic paid" not in run("plan", "--server", "other")[1]


@pytest.mark.parametrize("answer", [True, False])
def test_apply_asks(clusters: Shared, run: Any, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    asked: list[str] = []
    monkeypatch.setattr(output, "interactive", lambda: True)
    monkeypatch.setattr(typer, "confirm", lambda question, err: asked.append(question) or answer)
    code, _, _ = run("apply")
    assert asked == ["do 2 steps?"]
    assert code == (0 if answer else 1)
    assert set(clusters.kafka("kafka").state) == ({"orders", "paid"} if answer else set())


def test_apply_changes_nothing_where_nobody_can_be_asked(
    clusters: Shared, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "interactive", lambda: False)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: pytest.fail("nobody can be asked"))
    code, shown, talk = run("apply")
    assert (code, "nobody can be asked" in talk, "add --yes" in talk) == (2, True, True)
    assert "+ topic orders" in shown
    assert clusters.kafka("kafka").state == {}


def test_apply_then_nothing_is_left(clusters: Shared, run: Any) -> None:
    code, _, talk = run("apply", "--yes")
    assert code == 0
    assert "apply: 2 in" in talk
    code, shown, _ = run("plan", "--exit-code")
    assert code == 0
    assert shown.endswith("nothing to do: the clusters are as the contract says\n")
    code, shown, _ = run("apply")
    assert code == 0
    assert "2 unchanged" in shown


def test_apply_as_data(clusters: Shared, run: Any) -> None:
    code, shown, _ = run("apply", "--yes", "-o", "json")
    assert code == 0
    data = json.loads(shown)
    assert [step["name"] for step in data["steps"]] == ["orders", "paid"]
    assert len(data["done"]) == 2
    assert data["left"] == []
    code, shown, _ = run("apply", "-o", "json")
    assert (json.loads(shown)["done"], json.loads(shown)["steps"]) == ([], [])


def test_a_dangerous_step_alone(clusters: Shared, run: Any) -> None:
    assert run("apply", "--yes")[0] == 0
    clusters.kafka("kafka").change_settings("orders", {"retention.ms": "-1"})
    code, shown, talk = run("apply", "--yes")
    assert code == 4
    assert "refused without --allow change-settings:kafka/orders:retention.ms\n" in shown
    assert "error[PK004] 1 step is refused" in talk
    assert clusters.kafka("kafka").state["orders"].settings["retention.ms"] == "-1"
    code, shown, _ = run("apply", "--yes", "--allow", "change-settings:kafka/orders:retention.ms")
    assert code == 0
    assert "; allowed" in shown
    assert clusters.kafka("kafka").state["orders"].settings["retention.ms"] == "5000"


def test_what_was_allowed_and_is_done_does_not_stop_the_rest(
    clusters: Shared, run: Any, isolated_home: Path
) -> None:
    (isolated_home / "before.yaml").write_text(
        CONTRACT + "  old: {address: old, servers: [{$ref: '#/servers/kafka'}]}\n"
    )
    assert run("-f", "before.yaml", "apply", "--yes")[0] == 0
    words = ["apply", "--yes", "--previous", "before.yaml"]
    allow = ["--allow", "delete-topic:kafka/old", "--allow", "change-settings:kafka/orders:retention.ms"]
    code, _, talk = run(*words, *allow[:2])
    assert (code, set(clusters.kafka("kafka").state)) == (0, {"orders", "paid"})
    clusters.kafka("kafka").change_settings("orders", {"retention.ms": "-1"})
    code, _, talk = run(*words, *allow)
    assert code == 0
    assert "delete-topic:kafka/old is allowed and there is nothing to do" in talk
    assert clusters.kafka("kafka").state["orders"].settings["retention.ms"] == "5000"
    code, shown, talk = run(*words, *allow)
    assert code == 0
    assert "nothing to do" in shown


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("orders", "--allow change-settings:kafka/orders:retention.ms"),
        ("delete-topic:kafka/orders", "change-settings:kafka/orders:retention.ms"),
        ("change-settings:other/orders:retention.ms", "change-settings:kafka/orders:retention.ms"),
        ("nope", "dangerous here: change-settings:kafka/orders:retention.ms"),
    ],
)
def test_what_cannot_be_allowed_is_a_slip(clusters: Shared, run: Any, written: str, advice: str) -> None:
    assert run("apply", "--yes")[0] == 0
    clusters.kafka("kafka").change_settings("orders", {"retention.ms": "-1"})
    code, _, talk = run("apply", "--yes", "--allow", written)
    assert code == 2
    assert advice in " ".join(talk.split())
    assert clusters.kafka("kafka").state["orders"].settings["retention.ms"] == "-1"


def test_a_saved_plan_knows_its_context(clusters: Shared, run: Any) -> None:
    _, _, talk = run("plan", "--out", "x.plan")
    assert talk.endswith("plan saved to x.plan; next: penstock apply x.plan\n")
    code, _, talk = run("-C", "production", "apply", "x.plan", "--yes")
    assert code == 4
    assert "penstock -C staging apply x.plan" in talk
    assert run("apply", "x.plan", "--yes", "--env", "dev")[0] == 2
    assert run("apply", "x.plan", "--yes")[0] == 0
    assert set(clusters.kafka("kafka").state) == {"orders", "paid"}


def test_a_saved_plan_is_found_from_another_folder(
    clusters: Shared, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated_home: Path
) -> None:
    run("plan", "--out", str(tmp_path / "x.plan"))
    below = isolated_home / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert run("apply", str(tmp_path / "x.plan"), "--yes")[0] == 0


def test_a_contract_with_errors_is_not_planned(clusters: Shared, run: Any, isolated_home: Path) -> None:
    (isolated_home / "asyncapi.yaml").write_text(CONTRACT.replace("partitions: 2", "partitions: 0"))
    code, shown, talk = run("plan")
    assert (code, shown) == (1, "")
    assert "penstock validate" in talk


@pytest.mark.parametrize("form", ["table", "json", "yaml", "markdown"])
def test_every_form(clusters: Shared, run: Any, form: str) -> None:
    code, shown, _ = run("plan", "-o", form)
    assert code == 0
    assert "orders" in shown


def test_explain(clusters: Shared, run: Any) -> None:
    _, shown, _ = run("plan", "--explain")
    assert "  --> asyncapi.yaml:9:23  channels.orders.bindings.kafka" in shown
    assert "What the contract leaves out is the broker's default." in shown


def test_an_interruption_tells_what_was_done(
    clusters: Shared, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = clusters.kafka("kafka")
    create = type(kafka).create_topic

    def interrupted(self: Any, topic: str, **rest: Any) -> None:
        if topic == "paid":
            raise KeyboardInterrupt
        create(self, topic, **rest)

    run("plan", "--out", "x.plan")
    monkeypatch.setattr(type(kafka), "create_topic", interrupted)
    code, _, talk = run("apply", "x.plan", "--yes")
    assert code == 130
    assert "done:     + topic orders" in talk
    monkeypatch.setattr(type(kafka), "create_topic", create)
    code, shown, _ = run("apply", "x.plan", "--yes")
    assert code == 0
    assert [line[:12] for line in shown.splitlines() if line.startswith("+")] == ["+ topic paid"]


@pytest.fixture
def between(clusters: Shared, isolated_home: Path) -> Path:
    """A project whose pipeline reads one cluster and writes to another one."""
    (isolated_home / "shop").mkdir()
    (isolated_home / "shop" / "asyncapi.yaml").write_text(BETWEEN)
    (isolated_home / "shop" / "pipeline.yaml").write_text(PIPELINE)
    return isolated_home


def test_a_pipeline_brings_its_contract_and_the_topic_of_its_progress(
    clusters: Shared, run: Any, between: Path
) -> None:
    words = ("-C", "production", "--pipeline", "shop/pipeline.yaml")
    code, shown, _ = run("plan", *words)
    assert code == 0
    assert "+ topic copies" in shown
    assert shown.count("__penstock_progress") == 1
    assert re.search(r"\+ topic __penstock_progress +other +partitions 1, cleanup.policy compact", shown)
    assert run("--yes", "apply", *words)[0] == 0
    assert clusters.kafka("other").state["__penstock_progress"].settings["cleanup.policy"] == "compact"
    assert "__penstock_progress" not in clusters.kafka("kafka").state
    assert run("plan", *words, "--exit-code")[0] == 0
    assert run("drift", *words)[0] == 0
    # Without the pipeline nobody misses it.
    assert run("drift", "-C", "production", "-f", "shop/asyncapi.yaml")[0] == 0


def test_a_pipeline_that_keeps_no_marks_elsewhere_wants_no_topic(
    clusters: Shared, run: Any, between: Path
) -> None:
    edit = PIPELINE.replace("copyOrder", "keepOrder")
    (between / "shop" / "pipeline.yaml").write_text(edit)
    code, shown, _ = run("plan", "-C", "production", "--pipeline", "shop/pipeline.yaml")
    assert (code, "+ topic copies" in shown, "__penstock_progress" in shown) == (0, True, False)


def test_a_saved_plan_with_a_pipeline_is_stale_after_an_edit(
    clusters: Shared, run: Any, between: Path
) -> None:
    words = ("-C", "production", "--pipeline", "shop/pipeline.yaml")
    assert run("plan", *words, "--out", "shop/saved.plan")[0] == 0
    (between / "shop" / "pipeline.yaml").write_text(PIPELINE.replace("copyOrder", "keepOrder"))
    code, _, told = run("--yes", "apply", "shop/saved.plan")
    assert (code, "is stale: the contract changed" in " ".join(told.split())) == (4, True), told
    (between / "shop" / "pipeline.yaml").write_text(PIPELINE)
    assert run("--yes", "apply", "shop/saved.plan")[0] == 0
    assert "__penstock_progress" in clusters.kafka("other").state


def test_more_partitions_of_the_progress_topic_are_no_drift(
    clusters: Shared, run: Any, between: Path
) -> None:
    words = ("-C", "production", "--pipeline", "shop/pipeline.yaml")
    assert run("--yes", "apply", *words)[0] == 0
    clusters.kafka("other").add_partitions("__penstock_progress", 3)
    assert run("drift", *words)[0] == 0


def test_no_plan_removes_the_progress_topic(clusters: Shared, run: Any, between: Path) -> None:
    """Not even if an earlier contract has declared it."""
    channel = "  progress: {address: __penstock_progress, servers: [{$ref: '#/servers/other'}]}\n"
    (between / "old.yaml").write_text(BETWEEN.replace("operations:\n", f"{channel}operations:\n"))
    assert run("--yes", "apply", "-C", "production", "-f", "old.yaml")[0] == 0
    words = ("-C", "production", "-f", "shop/asyncapi.yaml", "--previous", "old.yaml")
    code, shown, _ = run("plan", *words, "--exit-code")
    assert (code, "is kept: __penstock_progress" in shown) == (0, True), shown
