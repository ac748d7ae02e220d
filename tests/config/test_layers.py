"""penstock.config.layers: which layer wins, and where each value came from."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import KEYS, find_project, layers, load
from penstock.config.layers import check_tree, find_upwards
from penstock.config.tree import parse_tree
from penstock.config.values import Origin
from penstock.errors import ConfigError

KAFKA = "contexts.dev.servers.kafka"


def write(folder: Path, text: str, name: str = "penstock.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


LAYERS = [
    ("", {}, (), 5.0, "default"),
    ("# one\nconnect_timeout: 1s\n", {}, (), 1.0, "penstock.yaml:2"),
    ("connect_timeout: 1s\n", {"PENSTOCK_CONNECT_TIMEOUT": "2s"}, (), 2.0, "env PENSTOCK_CONNECT_TIMEOUT"),
    ("connect_timeout: 1s\n", {"PENSTOCK_CONNECT_TIMEOUT": ""}, (), 1.0, "penstock.yaml:1"),
    (
        "connect_timeout: 1s\n",
        {"PENSTOCK_CONNECT_TIMEOUT": "2s"},
        ("connect_timeout=7s", "connect_timeout=3s"),
        3.0,
        "flag -X",
    ),
    ("connect_timeout: ~\n", {}, (), 5.0, "default"),
]


@pytest.mark.parametrize(("text", "environ", "flags", "value", "origin"), LAYERS)
def test_each_layer_lies_over_the_one_before(
    tmp_path: Path, text: str, environ: dict[str, str], flags: tuple[str, ...], value: float, origin: str
) -> None:
    write(tmp_path, text)
    config = load(start=tmp_path, environ=environ, overrides=flags)
    assert config.get("connect_timeout") == value
    assert str(config.value("connect_timeout").origin) == origin


def test_the_file_is_found_upwards_and_shown_from_here(tmp_path: Path) -> None:
    write(tmp_path, "context: a\n")
    deep = tmp_path / "x" / "y"
    deep.mkdir(parents=True)
    config = load(start=deep, environ={})
    assert config.folder == tmp_path
    assert str(config.value("context").origin) == "../../penstock.yaml:1"


def test_the_search_ends_at_the_repository(tmp_path: Path) -> None:
    write(tmp_path, "context: a\n")
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "sub").mkdir()
    assert find_upwards("penstock.yaml", tmp_path / "repo" / "sub") is None
    assert load(start=tmp_path / "repo" / "sub", environ={}).get("context") is None


@pytest.mark.parametrize("name", ["penstock.yaml", ".git"])
def test_what_another_user_put_where_everybody_may_write_does_not_count(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "context: a\n")
    shared = tmp_path / "shared"
    (shared / "mine").mkdir(parents=True)
    (shared / name).write_text("context: b\n")
    found = {"penstock.yaml": shared / name, ".git": None}[name]
    assert find_upwards("penstock.yaml", shared / "mine") == found
    shared.chmod(0o1777)
    assert find_upwards("penstock.yaml", shared / "mine") == found, "it is ours"
    monkeypatch.setattr(layers, "_trusted", lambda: (os.geteuid() + 1, 0 if os.geteuid() else 1))
    assert find_upwards("penstock.yaml", shared / "mine") == tmp_path / "penstock.yaml"
    assert find_project(shared / "mine") == tmp_path


def test_what_a_group_may_write_counts_whoever_put_it_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People who share a folder mean to."""
    write(tmp_path, "context: a\n")
    (tmp_path / "mine").mkdir()
    tmp_path.chmod(0o775)
    monkeypatch.setattr(layers, "_trusted", lambda: (os.geteuid() + 1, 0 if os.geteuid() else 1))
    assert find_upwards("penstock.yaml", tmp_path / "mine") == tmp_path / "penstock.yaml"


def test_a_link_of_another_user_to_a_file_of_ours_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, stranger = tmp_path / "shared", os.geteuid() + 1
    (shared / "mine").mkdir(parents=True)
    shared.chmod(0o1777)
    (tmp_path / "other.yaml").write_text("context: b\n")
    (tmp_path / ".git").mkdir()
    (shared / "penstock.yaml").symlink_to(tmp_path / "other.yaml")
    assert find_upwards("penstock.yaml", shared / "mine") == shared / "penstock.yaml", "the link is ours"
    lstat = os.lstat

    def of_stranger(path: Any) -> Any:
        return SimpleNamespace(st_uid=stranger) if path == shared / "penstock.yaml" else lstat(path)

    monkeypatch.setattr(layers.os, "lstat", of_stranger)
    assert find_upwards("penstock.yaml", shared / "mine") is None


def test_the_users_file_lies_over_the_generated_one(tmp_path: Path) -> None:
    text = "contexts: {{dev: {{servers: {{kafka: {{address: '{}', security: {{password: x}}}}}}}}}}\n"
    write(tmp_path, text.format("generated:1"), ".penstock/dev.yaml")
    config = load(start=tmp_path, environ={})
    assert config.get(f"{KAFKA}.address") == "generated:1"
    assert config.warnings == ()
    write(tmp_path, text.format("mine:2"))
    assert load(start=tmp_path, environ={}).get(f"{KAFKA}.address") == "mine:2"


def test_relative_paths_start_at_the_file_that_names_them(tmp_path: Path) -> None:
    sub = tmp_path / "sub"
    sub.mkdir()
    write(tmp_path, "contract: a.yaml\n")
    assert load(start=sub, environ={}).get("contract") == tmp_path / "a.yaml"
    assert load(start=sub, environ={"PENSTOCK_CONTRACT": "b.yaml"}).get("contract") == sub / "b.yaml"
    assert load(start=sub, environ={}, contract="/c.yaml").get("contract") == Path("/c.yaml")


WRONG = {
    "conect_timeout: 1s": ("there is no setting 'conect_timeout'", "penstock.yaml:1:1", "connect_timeout"),
    "a:\n  b: 1": ("there is no setting 'a'", "penstock.yaml:1:1", "known here"),
    "connect_timeout: soon": ("not a duration", "penstock.yaml:1", "duration"),
    "contract: ''": ("not a path", "penstock.yaml:1", "path"),
    'contract: "\\0"': ("not a path", "penstock.yaml:1", "path"),
    "connect_timeout: [1s]": ("takes one value", "penstock.yaml:1:1", "duration"),
    "contexts: x": ("must be a mapping", "penstock.yaml:1:1", "contexts name"),
    "contexts: [x]": ("must be a mapping", "penstock.yaml:1:1", "contexts name"),
    "contexts: {a b: {servers: {}}}": ("not a name", "penstock.yaml:1:12", "letters"),
    "contexts: {d: {server: {}}}": ("there is no setting", "penstock.yaml:1:16", "'servers'"),
    "contexts: {d: {servers: {k: {adress: x}}}}": ("there is no setting", "penstock.yaml:1:30", "'address'"),
    "contexts: {d: {servers: {k: {kind: nats}}}}": (
        "none of kafka, pulsar",
        "penstock.yaml:1",
        "kafka | pulsar",
    ),
    "contexts: {d: {servers: {k: {address: '${x}'}}}}": ("not a reference", "penstock.yaml:1", "${env:NAME}"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_says_what_where_and_next(tmp_path: Path, text: str) -> None:
    what, where, advice = WRONG[text]
    write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(start=tmp_path, environ={})
    assert what in caught.value.what
    assert (caught.value.where or "").startswith(where)
    assert advice in (caught.value.next or "")


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("connect_timeout", "KEY=VALUE"),
        ("=1", "KEY=VALUE"),
        ("nope=1", "no setting"),
        ("contexts=1", "no setting"),
        ("connect_timeout=x", "duration"),
        (f"{KAFKA}.port=1", "no setting"),
        ("contexts.a b.servers.k.address=x:1", "no setting"),
    ],
)
def test_a_wrong_flag_is_a_config_error(tmp_path: Path, flag: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(start=tmp_path, environ={}, overrides=[flag])


def test_a_home_of_nobody_is_only_a_path(tmp_path: Path) -> None:
    config = load(start=tmp_path, environ={}, overrides=["contract=~no-such-user/a.yaml"])
    assert config.get("contract") == tmp_path / "~no-such-user" / "a.yaml"


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="gone"):
        load(environ={})


def test_a_flag_reaches_into_a_context(tmp_path: Path) -> None:
    write(tmp_path, "contexts: {dev: {servers: {kafka: {address: 'a:1'}}}}")
    config = load(start=tmp_path, environ={}, overrides=[f"{KAFKA}.address=b:2"])
    context = config.context("dev")
    assert context is not None
    assert context.server("kafka").address == "b:2"


def test_notes_of_the_user_are_left_alone(tmp_path: Path) -> None:
    write(
        tmp_path, "x-shared: &s {username: me}\ncontexts: {d: {servers: {k: {address: 'a:1', security: *s}}}}"
    )
    assert load(start=tmp_path, environ={}).get("contexts.d.servers.k.security.username") == "me"


def test_plain_secrets_are_warned_about_and_never_quoted(tmp_path: Path) -> None:
    write(tmp_path, "contexts:\n  d:\n    servers:\n      k: {address: 'a:1', security: {password: hunter2}}")
    config = load(start=tmp_path, environ={})
    (warning,) = config.warnings
    assert warning.startswith("penstock.yaml:4 holds a password in plain text")
    assert "hunter2" not in warning
    assert "hunter2" not in repr(config)
    assert "hunter2" not in f"{config.value('contexts.d.servers.k.security.password').shown()}"


def test_a_misspelt_variable_is_warned_about(tmp_path: Path) -> None:
    config = load(
        start=tmp_path, environ={"PENSTOCK_CONTEX": "a", "PENSTOCK_SOMETHING_ELSE": "b", "PATH": ""}
    )
    assert config.warnings == (
        "the environment variable PENSTOCK_CONTEX means nothing here; did you mean PENSTOCK_CONTEXT?",
    )


def test_asking_for_an_unknown_setting_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no setting 'contet'"):
        load(start=tmp_path, environ={}).get("contet")


def test_every_setting_has_a_default_that_its_kind_accepts(tmp_path: Path) -> None:
    config = load(start=tmp_path, environ={})
    settings = [key for key in KEYS if key.variable]
    assert {value.name for value in config.values.values()} == {key.name for key in settings}
    for key in KEYS:
        assert key.doc.endswith(".")
        assert key.default is None or key.kind.parse(key.default) is not None


NAMES = st.sampled_from(
    [
        "contexts",
        "dev",
        "servers",
        "kafka",
        "address",
        "security",
        "password",
        "context",
        "x-a",
        "",
        "1",
        "registry",
    ]
)
TREES = st.recursive(
    st.one_of(st.just("null"), st.sampled_from(["'a:1'", "5s", "'${env:X}'", "'${'", "[]"])),
    lambda inner: st.dictionaries(NAMES, inner, max_size=4).map(
        lambda d: "{" + ", ".join(f"'{k}': {v}" for k, v in d.items()) + "}"
    ),
)


@given(TREES)
def test_any_tree_is_values_or_a_config_error(text: str) -> None:
    try:
        values = check_tree(parse_tree(text, "f"), Origin("f"))
    except ConfigError as exc:
        assert exc.where
    else:
        assert all(value.text is not None and value.name for value in values.values())
