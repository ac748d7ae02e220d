"""penstock.config.writer: whole or not at all, comments kept, for the owner only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.config import Secret, choose_context, load, remove_context, write_context
from penstock.errors import ConfigError

DEV = {"servers": {"kafka": {"address": "127.0.0.1:1234"}, "pulsar": {"address": "pulsar://127.0.0.1:1235"}}}


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    write_context(tmp_path / ".penstock" / "dev.yaml", "dev", DEV)
    context = load(start=tmp_path, environ={}).context()
    assert context is not None
    assert [context.server(name).address for name in context.server_names] == [
        "127.0.0.1:1234",
        "pulsar://127.0.0.1:1235",
    ]


def test_a_new_file_is_for_its_owner_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    write_context(path, "dev", DEV)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    choose_context(path, "dev")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["penstock.yaml"]


def test_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    path.write_text("# ours\ncontext: a  # why\ncontexts:\n  a: {servers: {k: {address: 'x:1'}}}\n")
    write_context(path, "dev", DEV)
    choose_context(path, "dev")
    text = path.read_text()
    assert "# ours" in text
    assert "# why" in text
    config = load(start=tmp_path, environ={})
    assert config.context_names == ("a", "dev")
    assert config.get("context") == "dev"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("context: a\n")
    (tmp_path / "penstock.yaml").symlink_to("real.yaml")
    choose_context(tmp_path / "penstock.yaml", "b")
    assert (tmp_path / "penstock.yaml").is_symlink()
    assert (tmp_path / "real.yaml").read_text() == "context: b\n"


def test_a_context_can_be_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    remove_context(path, "dev")
    assert not path.exists()
    write_context(path, "dev", DEV)
    write_context(path, "two", DEV)
    remove_context(path, "dev")
    remove_context(path, "dev")
    assert load(start=tmp_path, environ={}).context_names == ("two",)


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"servers": {"k": {"adress": "x"}}}, "no setting"),
        ({"servers": {"k": {"address": "x:1", "security": {"password": Secret("x")}}}}, "secret"),
        ({"servers": {"a b": {"address": "x:1"}}}, "not a name"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(
    tmp_path: Path, context: dict[str, object], said: str
) -> None:
    path = tmp_path / "penstock.yaml"
    path.write_text("context: a\n")
    with pytest.raises(ConfigError, match=said):
        write_context(path, "dev", context)
    assert path.read_text() == "context: a\n"
    assert os.listdir(tmp_path) == ["penstock.yaml"]


def test_a_broken_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    path.write_text("a: [")
    with pytest.raises(ConfigError, match="not YAML"):
        write_context(path, "dev", DEV)
    assert path.read_text() == "a: ["


def test_a_place_that_cannot_be_written_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        write_context(tmp_path / "file" / "dev.yaml", "dev", DEV)
