"""penstock.errors: the drawn tree is the real one, and every error can tell its story."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from penstock import errors
from penstock.errors import InternalError, MissingExtra, PenstockError, Refused, Unreachable, UsageError

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, Exception)
}
BRANCH = re.compile(r"^(?P<indent>(?:│   |    )*)[├└]── (?P<name>\w+)")


def drawn_parents() -> dict[str, str]:
    """Read the tree in the module's docstring: each class with the one above it."""
    parents, above = {}, {0: "PenstockError"}
    for line in (errors.__doc__ or "").splitlines():
        if found := BRANCH.match(line):
            depth = len(found["indent"]) // 4 + 1
            parents[found["name"]] = above[depth - 1]
            above[depth] = found["name"]
    return parents


def test_the_drawn_tree_is_the_real_tree() -> None:
    real = {name: cls.__mro__[1].__name__ for name, cls in CLASSES.items() if cls is not PenstockError}
    assert drawn_parents() == real


def test_everything_is_exported() -> None:
    assert sorted(CLASSES) == sorted(errors.__all__) == list(errors.__all__)


def test_codes_are_unique_and_in_their_range() -> None:
    # A class without a code of its own shares that of what it is a kind of.
    codes = [cls.code for cls in CLASSES.values() if "code" in vars(cls)]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"PK[0-69]\d\d", code) for code in codes)


def test_exit_codes_are_those_of_the_command_line() -> None:
    assert {cls.exit_code for cls in CLASSES.values()} == {1, 2, 4, 5}
    assert (UsageError.exit_code, Refused.exit_code, Unreachable.exit_code) == (2, 4, 5)


def test_every_class_says_whose_fault_it_is() -> None:
    assert all(
        cls.__doc__ and cls.__doc__ != PenstockError.__doc__ or cls is PenstockError
        for cls in CLASSES.values()
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PenstockError("it broke"), "it broke"),
        (
            PenstockError("it broke", where="f:1", why="rust", next="paint it"),
            "it broke; at f:1; rust; next: paint it",
        ),
        (InternalError("it broke", next="tell us"), "it broke; next: tell us"),
    ],
)
def test_the_story_on_one_line(error: PenstockError, line: str) -> None:
    assert str(error) == line


def test_a_missing_extra_names_the_command() -> None:
    error = MissingExtra("spark", "pyspark", purpose="penstock run")
    assert str(error) == (
        "penstock run needs the Python package pyspark, which is not installed; "
        "next: pip install 'penstock[spark]'"
    )


@pytest.mark.parametrize(
    "error",
    [
        MissingExtra("spark", "pyspark", purpose="a pipeline"),
        errors.ApiError("no such topic", error_code=3),
        errors.UnsupportedFormat("application/cloudevents+xml"),
        errors.InvalidEvent("id is missing", attribute="id", clause="core, id", fix="set it"),
    ],
)
def test_errors_survive_a_pickle(error: PenstockError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
