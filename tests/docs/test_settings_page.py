"""The table of our default settings of Spark says what the code does."""

from __future__ import annotations

from pathlib import Path

from penstock.pipeline.spark.session import DEFAULTS, QUERY_SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "pipeline" / "cluster.md"


def rows() -> list[str]:
    return [
        f"| `{key}` | `{default.value}` | {default.scope.value} | {default.reason} |"
        for key, default in DEFAULTS.items()
    ]


def test_the_table_has_every_default_and_no_other() -> None:
    text = PAGE.read_text(encoding="utf-8")
    _, _, table = text.partition("| setting | default | where | why |\n|---|---|---|---|\n")
    found = table.partition("\n\n")[0].splitlines()
    assert found == rows()


def test_the_settings_of_queries_are_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for key, (value, _) in QUERY_SETTINGS.items():
        assert f"`{key}={value}`" in text
