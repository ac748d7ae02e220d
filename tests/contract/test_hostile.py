"""Documents from somebody who wants us to fail: wrong types everywhere, explosions, random changes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from penstock.contract import Validation, load, resolve, shape, validate
from penstock.contract.finding import MAX_FINDINGS
from penstock.errors import ContractError, PenstockError, UsageError

SHOP_FILE = Path(__file__).parents[2] / "examples" / "shop" / "asyncapi.yaml"
SHOP = YAML(typ="safe", pure=True).load(SHOP_FILE.read_text())


def judge(document: object) -> Validation:
    return validate("asyncapi.json", raw=json.dumps(document).encode())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


def changed(document: Any, path: tuple[Any, ...], value: object) -> Any:
    if not path:
        return value
    result = copy.deepcopy(document)
    at = result
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return result


PLACES = places(SHOP)
WRONG = [
    None,
    True,
    5,
    -1,
    1.5,
    "",
    "x",
    [],
    [1],
    {},
    {"$ref": "#/info"},
    {"$ref": 1},
    {"$ref": "#"},
    {"a": {"b": []}},
]
ROOT_ROUTES = (("servers",), ("channels",), ("operations",), ("components",), ("info",))


def assert_usable(result: Validation) -> None:
    """Every finding says where, what and what next; a document without errors can be used."""
    assert all(f.position.line >= 1 and f.message and f.fix for f in result.findings)
    if result.contract is None:
        assert result.errors
    elif not result.errors:
        for operation in result.contract.operations:
            try:
                resolve(result.contract, operation)
            except PenstockError as refused:
                assert refused.what


@given(st.sampled_from(PLACES), st.sampled_from(WRONG))
def test_any_value_anywhere_is_judged(path: tuple[Any, ...], value: object) -> None:
    assert_usable(judge(changed(SHOP, path, value)))


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_wrong_type_as_the_document(value: object) -> None:
    result = judge(value)
    assert result.contract is None
    assert [finding.rule.id for finding in result.findings] == ["PK206"]


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("path", ROOT_ROUTES, ids=str)
def test_wrong_types_at_the_top(path: tuple[str, ...], value: object) -> None:
    result = judge(changed(SHOP, path, value))
    assert_usable(result)
    (name,) = path
    here = [f.rule.id for f in result.errors if f.position.path == name]
    below = [f.rule.id for f in result.errors if f.position.path.startswith(f"{name}.")]
    if not isinstance(value, dict):
        assert (here, below) == (["PK232"], [])
    elif value and "$ref" in value:
        # Only a map takes `$ref` for a name; an object of the specification is written out here.
        assert here == (["PK225"] if name in ("components", "info") else [])
        assert set(below) <= {"PK232", "PK237"}
        assert here or "PK232" in below
    elif value:
        assert "PK231" in below
    else:
        assert here == (["PK230", "PK230"] if name == "info" else [])


REQUIRED = {
    ("info",): {"title", "version"},
    ("servers", "*"): {"host", "protocol"},
    ("operations", "*"): {"action", "channel"},
    ("channels", "*", "bindings", "pulsar"): {"namespace", "persistence"},
}


def is_required(path: tuple[Any, ...]) -> bool:
    return path == ("info",) or any(
        len(owner) == len(path) - 1
        and path[-1] in fields
        and all(o in ("*", p) for o, p in zip(owner, path, strict=False))
        for owner, fields in REQUIRED.items()
    )


def pointers(document: Any) -> set[str]:
    """Every `$ref` into the document itself."""
    ways = (way for way in places(document) if way and way[-1] == "$ref")
    found = (str(value_at(document, way)) for way in ways)
    return {text for text in found if text.startswith("#/")}


def value_at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


@given(st.data())
def test_a_removed_part_is_judged(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([place for place in PLACES if place and isinstance(place[-1], str)]))
    document = copy.deepcopy(SHOP)
    del value_at(document, path[:-1])[path[-1]]
    result = judge(document)
    assert_usable(result)
    rules = {finding.rule.id for finding in result.errors}
    if path == ("asyncapi",):
        assert rules == {"PK206"}
        return
    if is_required(path):
        assert "PK230" in rules
    gone = "#/" + "/".join(map(str, path))
    if any(text == gone or text.startswith(f"{gone}/") for text in pointers(document)):
        assert rules & {"PK220", "PK228"}


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "null", "[]", "5", "hello", "{}", "asyncapi:", "info: {}"]
)
def test_what_is_no_asyncapi_document(text: str, tmp_path: Path) -> None:
    result = validate("asyncapi.yaml", raw=text.encode())
    assert result.contract is None
    assert [f.rule.id for f in result.findings] in (["PK206"], ["PK204"])
    (tmp_path / "asyncapi.yaml").write_text(text)
    with pytest.raises(ContractError):
        load(tmp_path / "asyncapi.yaml")


def test_a_missing_document_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load(tmp_path / "none.yaml")
    with pytest.raises(UsageError):
        load(tmp_path)


def doubling(inner: str) -> dict[str, Any]:
    schemas: dict[str, Any] = {
        f"s{n}": json.loads(inner.replace("NEXT", f"#/components/schemas/s{n + 1}")) for n in range(40)
    }
    schemas["s40"] = {"type": "integer"}
    return schemas


DEEP: Any = "leaf"
for _ in range(45):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    "schemas",
    [
        doubling('{"allOf": [{"$ref": "NEXT"}, {"$ref": "NEXT"}]}'),
        doubling('{"properties": {"a": {"allOf": [{"$ref": "NEXT"}, {"$ref": "NEXT"}]}}}'),
        {"s0": {"properties": {"a": {"allOf": [{"$ref": "#/components/schemas/s0"}] * 2}}, "type": "object"}},
    ],
    ids=["in place", "one level each", "recursive"],
)
def test_schemas_that_explode_are_refused_before_they_run(schemas: dict[str, Any]) -> None:
    message = {"payload": {"$ref": "#/components/schemas/s0"}, "examples": [{"payload": DEEP}]}
    document = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1"},
        "components": {"schemas": schemas, "messages": {"m": message}},
    }
    assert [f.rule.id for f in judge(document).findings] == ["PK203"]


def test_schemas_that_refer_to_each_other_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "MAX_BUNDLED", 50_000)
    count = 400
    schemas = {
        f"s{n}": {"properties": {"a": {"$ref": f"#/components/schemas/s{n + 1}"}}} for n in range(count)
    }
    document = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1"},
        "components": {"schemas": {**schemas, f"s{count}": {}}},
    }
    assert [f.rule.id for f in judge(document).findings] == ["PK203"]


def test_findings_are_bounded_and_short() -> None:
    servers = {
        f"s{n}": {"host": "x" * 5_000 + "{" + "y" * 5_000 + "}", "protocol": "kafka"} for n in range(1_500)
    }
    result = judge({"asyncapi": "3.0.0", "info": {"title": "t", "version": "1"}, "servers": servers})
    assert len(result.findings) == MAX_FINDINGS
    assert result.omitted == 500
    assert max(len(f.message) + len(f.fix) for f in result.findings) < 1_000


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"pattern": "("},
        {"required": "a"},
        {"minimum": "1"},
        {"properties": []},
        {"$ref": 5},
    ],
    ids=str,
)
def test_schemas_that_do_not_compile(schema: dict[str, Any]) -> None:
    document = changed(SHOP, ("components", "messages", "auditEntry", "payload"), schema)
    assert {f.rule.id for f in judge(document).errors} & {"PK271", "PK227"}
