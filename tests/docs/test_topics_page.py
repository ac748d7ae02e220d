"""The page about topics names every setting, with what the gateway itself says about it."""

from __future__ import annotations

from pathlib import Path

from penstock.gateway.topic_settings import TOPIC_SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "gateway" / "topics.md"


def test_the_table_of_settings_is_that_of_the_gateway() -> None:
    rows = [
        f"| `{name}` | {setting.only + ' ' if setting.only else ''}| {setting.about} |"
        for name, setting in TOPIC_SETTINGS.items()
    ]
    text = PAGE.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("| `")] == rows
