"""penstock.config.tree: texts with positions, and bounds against hostile files."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.tree import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_VALUES,
    Branch,
    Leaf,
    Position,
    parse_tree,
    read_tree,
)
from penstock.errors import ConfigError


def leaf(tree: Branch, *path: str) -> Leaf:
    node = tree
    for step in path:
        assert isinstance(node, Branch)
        node = node.children[step]
    assert isinstance(node, Leaf)
    return node


def test_values_stay_texts_with_their_place() -> None:
    tree = parse_tree("a:\n  no: 1e3\n  'b': \"x\"\n", "f.yaml")
    assert leaf(tree, "a", "no") == Leaf("1e3", Position("f.yaml", 2, 7))
    assert leaf(tree, "a", "b").text == "x"
    assert tree.children["a"].keys["no"] == Position("f.yaml", 2, 3)


@pytest.mark.parametrize(
    ("text", "value"), [("a:", None), ("a: ~", None), ("a: null", None), ("a: ''", ""), ("a: 'null'", "null")]
)
def test_null_is_not_the_empty_text(text: str, value: str | None) -> None:
    assert leaf(parse_tree(text, "f"), "a").text == value


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "~"])
def test_an_empty_file_is_an_empty_mapping(text: str) -> None:
    assert parse_tree(text, "f").children == {}


def test_an_alias_shares_what_its_anchor_named() -> None:
    tree = parse_tree("x: &a {b: 1}\ny: *a\n", "f")
    assert tree.children["y"] is tree.children["x"]


def test_a_list_is_keyed_by_index() -> None:
    tree = parse_tree("a: [x, y]", "f")
    assert leaf(tree, "a", "1").text == "y"
    assert tree.children["a"].is_list


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)

HOSTILE = {
    "billion laughs": (BOMB, "aliases expanded"),
    "itself": ("a: &a [*a]", "alias"),
    "unknown alias": ("a: *b", "alias"),
    "deep list": ("[" * 30_000, "deeper"),
    "deep mapping": ("a: " + "{b: " * 5000, "deeper"),
    "deep block": ("".join(f"{' ' * n}a:\n" for n in range(MAX_DEPTH + 2)) + " " * 30 + "b: 1", "deeper"),
    "many values": ("".join(f"k{n}: 1\n" for n in range(MAX_VALUES + 1)), "more than"),
    "long tag": (f"a: !{'x' * 900_000} 1", "longer than"),
    "duplicate key": ("a: 1\nb: 2\na: 3\n", "twice"),
    "duplicate key in flow": ("{a: 1, 'a': 2}", "twice"),
    "key is a mapping": ("{a: 1}: 2", "single word"),
    "key is an alias": ("x: &a y\n*a : 2", "alias"),
    "two documents": ("a: 1\n---\nb: 2\n", "more than one"),
    "root is a list": ("[1]", "mapping"),
    "root is a text": ("hello", "mapping"),
    "not closed": ("a: [1", "not YAML"),
    "tab": ("a:\n\tb: 1", "not YAML"),
    "null byte": ("a: \x00", "not YAML"),
    "escape beyond Unicode": ('a: "\\UFFFFFFFF"', "not YAML"),
    "directive": ("%YAML 99999999999999999999.1\n---\na: 1", "not YAML"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_a_config_error(name: str) -> None:
    text, said = HOSTILE[name]
    with pytest.raises(ConfigError, match=said) as caught:
        parse_tree(text, "f.yaml")
    assert "f.yaml" in (caught.value.where or "")


def test_a_tag_means_nothing() -> None:
    assert leaf(parse_tree("a: !!python/object/apply:os.system x", "f"), "a").text == "x"


def test_a_duplicate_key_names_both_places() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_tree("a:\n  b: 1\n  c: 1\n  b: 2\n", "f.yaml")
    assert caught.value.where == "f.yaml:4:3"
    assert caught.value.why == "first in line 2"


@pytest.mark.parametrize("tail", ["]", '"\\UFFFFFFFF"', "\x01", "\t- x"])
def test_an_error_does_not_quote_the_lines_around_it(tail: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_tree(f"password: hunter2\nb: {tail} hunter2\n: :", "f.yaml")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value, limit=0))


@pytest.mark.parametrize(
    ("raw", "said"),
    [(b"a: \xff\xfe", "not UTF-8"), (b"#" * (MAX_BYTES + 1), "larger than 1 MB")],
)
def test_a_file_that_cannot_be_text_is_refused(tmp_path: Path, raw: bytes, said: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(raw)
    with pytest.raises(ConfigError, match=said):
        read_tree(path, "f.yaml")


def test_a_folder_or_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="cannot read"):
            read_tree(path, "f.yaml")


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert leaf(read_tree(path, "f.yaml"), "a").text == "1"


YAML_WORDS = st.sampled_from(
    list("{}[]:,-?&*!|>'\"%@`# \n\t\\xUu0aA~<.") + ["---", "...", "<<", "&a ", "*a", ": "]
)


@given(
    st.one_of(st.text(), st.lists(YAML_WORDS).map("".join), st.binary().map(lambda b: b.decode("latin-1")))
)
def test_any_text_is_a_tree_or_a_config_error(text: str) -> None:
    try:
        tree = parse_tree(text, "f")
    except ConfigError as exc:
        assert exc.where
    else:
        assert isinstance(tree, Branch)
