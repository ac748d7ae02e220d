"""Text to nodes: values by YAML 1.2, places, bounds; a hostile file gives a finding, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract import parser
from penstock.contract.finding import Report
from penstock.contract.node import Node, plain
from penstock.contract.tree import MAX_DEPTH

SHOP = Path(__file__).parents[2] / "examples" / "shop" / "asyncapi.yaml"


def read(text: str | bytes, file: str = "x.yaml") -> tuple[Node | None, list[tuple[str, str]]]:
    report = Report()
    raw = text.encode() if isinstance(text, str) else text
    node = parser.parse(raw, file, report)
    return node, [(finding.rule.id, str(finding.position)) for finding in report]


@pytest.fixture(params=["libyaml", "ruamel"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "ruamel":
        monkeypatch.setattr(parser, "_engine", parser._ruamel)
    else:
        pytest.importorskip("yaml")
    return str(request.param)


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
)
DEEP_ALIASES = "a0: &a0 " + "[" * 40 + "]" * 40 + "\na1: &a1 " + "[" * 40 + "*a0" + "]" * 40 + "\na2: "
DEEP_ALIASES += "[" * 40 + "*a1" + "]" * 40


@pytest.mark.usefixtures("engine")
class TestYaml:
    def test_values_are_those_of_yaml_1_2(self) -> None:
        node, findings = read(
            "a: 12:30\nb: yes\nc: 010\nd: 0x1F\ne: 1.50\nf: ~\ng: 2026-01-01\nh: '1'\ni: !!str 1\n"
        )
        assert node is not None and findings == []
        assert plain(node) == {
            "a": "12:30",
            "b": "yes",
            "c": 10,
            "d": 31,
            "e": 1.5,
            "f": None,
            "g": "2026-01-01",
            "h": "1",
            "i": "1",
        }

    def test_every_value_and_key_knows_its_place(self) -> None:
        node, _ = read("a:\n  b.c:\n    - x\n    - {y: 1}\n")
        assert node is not None
        deepest = node.value["a"].value["b.c"].value[1].value["y"]  # type: ignore[index,call-overload,union-attr]
        assert str(deepest.position()) == "x.yaml:4:11  a['b.c'][1].y"
        assert str(node.value["a"].position("b.c")) == "x.yaml:2:3  a['b.c']"  # type: ignore[index,call-overload,union-attr]

    def test_merge_keys_and_aliases_share_nodes(self) -> None:
        node, findings = read("x: &x {a: 1, b: 2}\ny: {<<: *x, a: 3}\nz: *x\n")
        assert node is not None and findings == []
        assert plain(node) == {"x": {"a": 1, "b": 2}, "y": {"a": 3, "b": 2}, "z": {"a": 1, "b": 2}}
        assert node.get("x") is node.get("z")

    def test_duplicate_key_is_a_finding_and_the_first_wins(self) -> None:
        node, findings = read("a: 1\nb: 2\na: 3\n")
        assert node is not None and plain(node) == {"a": 1, "b": 2}
        assert findings == [("PK202", "x.yaml:3:1  a")]

    @pytest.mark.parametrize(
        ("text", "rule"),
        [
            ("a: [1", "PK201"),
            ("a: {b: c: d}", "PK201"),
            ("\ta: 1", "PK201"),
            ("a: *nobody", "PK201"),
            ("a: 1\n---\nb: 2", "PK201"),
            ("a: \x01", "PK201"),
            (b"a: \xff\xfe", "PK201"),
            ("%YAML 9.9\n---\na: 1", "PK201"),
            ("a: &a [*a]", "PK203"),
            ("a: &a {b: {c: *a}}", "PK203"),
            (BOMB, "PK203"),
            (DEEP_ALIASES, "PK203"),
            ("[" * 5_000, "PK203"),
            ("a: " + "{a: " * 200 + "}" * 200, "PK203"),
            ("? [a]\n: b", "PK207"),
            ("? {a: b}\n: c", "PK207"),
            ("a: .nan", "PK207"),
            ("a: -.inf", "PK207"),
            ("a: 1e999", "PK207"),
            ("a: " + "9" * 5_000, "PK207"),
            ("a: !!binary aGk=", "PK207"),
            ("a: !mine {b: 1}", "PK207"),
            ("a: !!int x", "PK207"),
            ("a: !!python/object/apply:os.system [x]", "PK207"),
        ],
    )
    def test_hostile_text_is_a_finding(self, text: str | bytes, rule: str) -> None:
        _, findings = read(text)
        assert [found for found, _ in findings] == [rule]

    def test_a_string_of_a_megabyte_is_a_string(self) -> None:
        node, findings = read("a: " + "x" * 1_000_000)
        assert node is not None and findings == []
        assert len(str(plain(node)["a"])) == 1_000_000  # type: ignore[index,call-overload]

    def test_too_many_bytes(self) -> None:
        node, findings = read(b"a: 1\n" + b"#" * parser.MAX_BYTES)
        assert node is None and [rule for rule, _ in findings] == ["PK203"]


def places(node: Node) -> list[str]:
    """Every value with its place; an anchor is left out, because the two libraries count it differently."""
    children = node.value.values() if isinstance(node.value, dict) else node.value
    below = (
        [place for child in children for place in places(child)]
        if isinstance(node.value, dict | list)
        else []
    )
    return [str(node.position()), *below]


def test_both_yaml_libraries_give_the_same_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("yaml")
    fast, _ = read(SHOP.read_bytes())
    monkeypatch.setattr(parser, "_engine", parser._ruamel)
    slow, _ = read(SHOP.read_bytes())
    assert fast is not None and slow is not None
    assert plain(fast) == plain(slow)
    assert places(fast) == places(slow)


class TestJson:
    def test_json_has_places_and_surrogates(self) -> None:
        node, findings = read('{\n  "a": [1, {"b": "\\ud83d\\ude00"}],\n  "c": -1.5e2\n}', "x.json")
        assert node is not None and findings == []
        assert plain(node) == {"a": [1, {"b": "😀"}], "c": -150.0}
        assert str(node.value["c"].position()) == "x.json:3:8  c"  # type: ignore[index,call-overload,union-attr]

    @pytest.mark.parametrize(
        ("text", "rule", "place"),
        [
            ("", "PK201", "x.json:1:1"),
            ("[1,]", "PK201", "x.json:1:4  [1]"),
            ('{"a" 1}', "PK201", "x.json:1:6  a"),
            ("{a: 1}", "PK201", "x.json:1:2  ['']"),
            ("[1] x", "PK201", "x.json:1:5"),
            ('["\\x"]', "PK201", "x.json:1:3  [0]"),
            ('["\\ud800"]', "PK201", "x.json:1:10  [0]"),
            ('["a', "PK201", "x.json:1:2  [0]"),
            ("[01]", "PK201", "x.json:1:3  [1]"),
            ("NaN", "PK201", "x.json:1:1"),
            ("[1e999]", "PK207", "x.json:1:2  [0]"),
        ],
    )
    def test_wrong_json_is_a_finding(self, text: str, rule: str, place: str) -> None:
        _, findings = read(text, "x.json")
        assert findings == [(rule, place)]

    def test_deep_json_is_refused(self) -> None:
        _, findings = read("[" * (MAX_DEPTH + 1), "x.json")
        assert [rule for rule, _ in findings] == ["PK203"]
        node, findings = read("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1), "x.json")
        assert node is not None and findings == []


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_json_round_trip(value: object) -> None:
    node, findings = read(json.dumps(value, indent=1), "x.json")
    assert node is not None and findings == []
    assert plain(node) == value


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_a_tree_or_a_finding(raw: bytes) -> None:
    for file in ("x.yaml", "x.json"):
        node, findings = read(raw, file)
        assert node is not None or findings
