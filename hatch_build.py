"""Puts the shop into the wheel, so that `penstock demo` finds it; an editable install has examples/."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShopHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds files to a wheel that is not editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the example, file by file: what a run left beside it stays out."""
        if version == "standard":
            for name in ("asyncapi.yaml", "pipeline.yaml", "functions.py"):
                build_data["force_include"][f"examples/shop/{name}"] = f"penstock/examples/shop/{name}"
