"""The checkpoint and its fingerprint: what a change means for it, and files that cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import CheckpointMismatch, MachineError, PipelineError
from penstock.pipeline.assembly import sources_of
from penstock.pipeline.compile import check_pipeline
from penstock.pipeline.job.checkpoint import Checkpoint
from penstock.pipeline.job.fingerprint import (
    Fingerprint,
    beyond,
    changes,
    moved,
    read_fingerprint,
    refuse,
    write_fingerprint,
)
from penstock.pipeline.spark.file_system import LocalFileSystem

SHOP = Path(__file__).parents[3] / "examples" / "shop"
OLD = Fingerprint(
    topic="orders",
    cluster_id="c1",
    topic_id="t1",
    partitions=4,
    operations=("onOrder",),
    routes={"a": "1", "b": "2"},
)


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (replace(OLD, cluster_id="c2"), "cluster c1, this is cluster c2"),
        (replace(OLD, topic_id="t2"), "deleted and made again"),
        (replace(OLD, partitions=3), "had 4 partitions and has 3"),
        (replace(OLD, engine="fused"), "by the spark engine, now it is fused"),
    ],
)
def test_what_a_checkpoint_does_not_survive_is_refused(new: Fingerprint, text: str, tmp_path: Path) -> None:
    found = changes(OLD, new)
    assert found[0].fatal
    with pytest.raises(CheckpointMismatch) as caught:
        refuse(found, tmp_path)
    assert text in (caught.value.why or "")
    assert "--fresh-checkpoint" in (caught.value.next or "")


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (replace(OLD, partitions=6), "grown from 4 to 6"),
        (replace(OLD, routes={"a": "1", "b": "3"}), "route b has changed"),
        (replace(OLD, routes={"a": "1"}), "route b is gone"),
        (replace(OLD, routes={"a": "1", "b": "2", "c": "1"}), "route c is new"),
    ],
)
def test_harmless_changes_are_noted(new: Fingerprint, text: str, tmp_path: Path) -> None:
    (change,) = changes(OLD, new)
    assert text in change.text
    refuse([change], tmp_path)


@pytest.mark.parametrize(
    ("was", "now", "refused"),
    [
        ({"0": "x", "1": "x"}, {"0": "x", "1": "x"}, 0),
        ({"0": "x", "1": "x"}, {"0": "y", "1": "y"}, 2),
        ({"0": "x", "1": "x"}, {"0": "x", "1": "y"}, 1),
        ({"0": "x"}, {"0": "x", "1": "y"}, 0),
        ({}, {"0": "y"}, 0),
        ({"0": "x"}, {}, 0),
    ],
)
def test_when_a_topic_on_pulsar_was_created(
    was: dict[str, str], now: dict[str, str], refused: int, tmp_path: Path
) -> None:
    files = LocalFileSystem(tmp_path)
    write_fingerprint(files, "f.json", replace(OLD, created=was))
    kept = read_fingerprint(files, "f.json")
    assert kept is not None
    found = changes(kept, replace(OLD, created=now))
    assert [change.fatal for change in found] == [True] * refused
    assert all("deleted and made again" in change.text for change in found)


BY_NAME = "b2vUrm8MWl6ahl8NWx2aUw"
"""An id that is computed from a name."""


@pytest.mark.parametrize(
    ("was", "now", "fatal"),
    [
        ("z1F125UNQMKaAbNdytGHag", "8371YpmuQFC03h5OcyJwKA", True),
        ("z1F125UNQMKaAbNdytGHag", "z1F125UNQMKaAbNdytGHag", None),
        (BY_NAME, "z1F125UNQMKaAbNdytGHag", False),
        ("z1F125UNQMKaAbNdytGHag", BY_NAME, False),
        (BY_NAME, BY_NAME, None),
        (None, BY_NAME, None),
        ("not an id", "another", True),
    ],
)
def test_only_ids_that_a_topic_was_given_tell_that_it_was_made_again(
    was: str | None, now: str | None, fatal: bool | None
) -> None:
    found = changes(replace(OLD, topic_id=was), replace(OLD, topic_id=now))
    assert [change.fatal for change in found] == ([] if fatal is None else [fatal])


def test_a_gateway_that_has_got_an_id_of_its_own_is_the_same_cluster() -> None:
    assert changes(replace(OLD, cluster_id="penstock"), replace(OLD, cluster_id="c2")) == ()
    assert changes(OLD, replace(OLD, cluster_id="penstock")) == ()


def hash_of(folder: Path = SHOP, **more: str) -> str:
    """Return the hash of a route of the shop."""
    route = {
        "receive": "onOrderPlaced",
        "send": "publishLargeOrder",
        "delivery": {"deadLetterSink": "deadOrders"},
    }
    text = json.dumps({"routes": {"r": {**route, **more}}})
    pipeline = check_pipeline(folder / "pipeline.yaml", raw=text.encode()).pipeline
    assert pipeline is not None
    (source,) = sources_of(pipeline)
    return Fingerprint.of(source, cluster_id=None, topic_id=None, partitions=1).routes["r"]


@pytest.mark.parametrize(
    "more",
    [{"where": "type = 'x'"}, {"sql": "type = 'x'"}, {"send": "deadOrders"}, {"apply": "functions:enrich"}],
)
def test_every_part_of_a_route_that_decides_about_its_output_is_in_its_hash(more: dict[str, str]) -> None:
    assert hash_of() == hash_of()
    assert hash_of(**more) != hash_of()


def test_another_function_is_another_route(tmp_path: Path) -> None:
    (tmp_path / "asyncapi.yaml").write_text((SHOP / "asyncapi.yaml").read_text())
    (tmp_path / "functions.py").write_text(
        "def one(event):\n    return event\n\n\ndef other(event):\n    return event\n"
    )
    assert hash_of(tmp_path, apply="functions:one") != hash_of(tmp_path, apply="functions:other")


def test_an_operation_that_is_read_from_another_topic_is_refused() -> None:
    (change,) = moved(OLD, {"onOrder", "onPayment"}, "orders.v2")
    assert change.fatal
    assert change.text == "operation onOrder was read from orders, now it is orders.v2"
    assert moved(OLD, {"onPayment"}, "payments") == ()


def test_a_topic_that_ends_before_the_checkpoint_is_refused() -> None:
    (change,) = beyond({0: 5, 1: 7}, {0: 5, 1: 6})
    assert change.fatal
    assert change.text == "it stands at 7 of partition 1, which ends at 6"
    assert [each.fatal for each in beyond({3: 1}, {})] == [True]


def test_a_cluster_that_has_no_ids_is_not_compared_by_them() -> None:
    assert changes(OLD, replace(OLD, cluster_id=None, topic_id=None)) == ()
    assert changes(OLD, OLD) == ()


def test_a_fingerprint_is_read_as_it_was_written(tmp_path: Path) -> None:
    files, path = LocalFileSystem(tmp_path), "sub/a.json"
    assert read_fingerprint(files, path) is None
    write_fingerprint(files, path, OLD)
    assert read_fingerprint(files, path) == OLD
    assert files.list("sub") == ["a.json"]


def test_a_fingerprint_is_never_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who dies in the middle leaves the old one whole, and who has it open reads the old one to its end."""
    files = LocalFileSystem(tmp_path)
    write_fingerprint(files, "a.json", OLD)
    (tmp_path / "old.json").hardlink_to(tmp_path / "a.json")
    new = replace(OLD, partitions=6)
    write_fingerprint(files, "a.json", new)
    assert (read_fingerprint(files, "old.json"), read_fingerprint(files, "a.json")) == (OLD, new)

    def dies(self: Path, data: str, **_: str) -> int:
        with self.open("w") as half:
            half.write(data[: len(data) // 2])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", dies)
    with pytest.raises(MachineError) as caught:
        write_fingerprint(files, "a.json", replace(OLD, partitions=8))
    assert "no space" in (caught.value.why or "")
    assert read_fingerprint(files, "a.json") == new


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"topic": 1}', "[" * 100_000, "\ud800"])
def test_a_fingerprint_that_cannot_be_read_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(PipelineError, match="fingerprint"):
        read_fingerprint(LocalFileSystem(tmp_path), "a.json")


def checkpoint(folder: Path, **files: str) -> Checkpoint:
    for name, text in {"metadata": "{}", **files}.items():
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Checkpoint(files=LocalFileSystem(folder), name="source")


def offsets(**parts: int) -> str:
    return json.dumps({"t": {name[1:]: offset for name, offset in parts.items()}})


def test_the_position_is_that_of_the_last_batch_that_was_written(tmp_path: Path) -> None:
    log = "v1\n" + '{"batchWatermarkMs":0}' + "\n"
    files = {
        "sources/0/0": f"v1\n{offsets(p0=0)}",
        "offsets/8": log + offsets(p0=10, p1=7),
        "offsets/9": log + offsets(p0=20, p1=9),
        "commits/8": "v1\n{}",
        "commits/.8.crc": "",
        "commits/9.tmp": "",
        "offsets/10.a-b.tmp": "",
    }
    found = checkpoint(tmp_path, **files)
    assert found.position("t") == {0: 10, 1: 7}
    assert found.planned("t") == {0: 20, 1: 9}
    assert checkpoint(tmp_path / "other").planned("t") == {}


@pytest.mark.parametrize(
    ("planned", "committed", "is_open"),
    [((), (), False), ((0,), (), True), ((0,), (0,), False), ((0, 1), (0,), True), ((9, 10), (9, 10), False)],
)
def test_a_batch_is_open_until_it_is_committed(
    planned: tuple[int, ...], committed: tuple[int, ...], is_open: bool, tmp_path: Path
) -> None:
    files = {f"offsets/{each}": "v1" for each in planned} | {f"commits/{each}": "v1" for each in committed}
    assert checkpoint(tmp_path, **files).has_open_batch is is_open


def test_without_a_written_batch_it_is_where_the_source_began(tmp_path: Path) -> None:
    begun = checkpoint(tmp_path, **{"sources/0/0": f"v1\n{offsets(p0=5)}", "offsets/0": "v1"})
    assert begun.position("t") == {0: 5}
    assert checkpoint(tmp_path / "other").position("t") == {}


@pytest.mark.parametrize(
    "text", ["", "v1\n{", 'v1\n{"t": 5}', 'v1\n{"t": {"a": 1}}', "v1\n" + '{"t":' * 50_000]
)
def test_a_log_that_cannot_be_read_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="checkpoint"):
        checkpoint(tmp_path, **{"sources/0/0": text}).position("t")


def test_an_old_checkpoint_is_kept_beside(tmp_path: Path) -> None:
    for number in (1, 2):
        made = checkpoint(tmp_path)
        write_fingerprint(made.files, made.fingerprint, OLD)
        assert made.exists
        assert made.put_aside() == str(tmp_path / f"source.old-{number}")
        assert not made.exists
        assert not made.files.exists(made.fingerprint)
    assert Checkpoint(files=made.files, name="none").put_aside() is None


@pytest.mark.parametrize(
    "text", ["", "v1", 'v1\n{"batchWatermarkMs":0}', 'v1\n{"batchWatermarkMs":0}\n{"t":{"0"']
)
def test_offsets_that_are_cut_are_told(text: str, tmp_path: Path) -> None:
    """The line about the query looks like offsets: taken for them, the source would begin anew."""
    cut = checkpoint(tmp_path, **{"offsets/0": text, "commits/0": "v1\n{}"})
    for read in (cut.position, cut.planned):
        with pytest.raises(PipelineError, match="cannot be read") as caught:
            read("t")
        assert "offsets/0" in (caught.value.where or "")
