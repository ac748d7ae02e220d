"""Puts the shop into the wheel, so that `penstock demo` finds it; an editable install has examples/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHOP = "examples/shop"


class ShopHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds files to a wheel that is not editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the sources of the example: its own tests and what a run left beside it stay out."""
        if version == "standard":
            for path in Path(self.root, SHOP).iterdir():
                if path.suffix in (".yaml", ".py") and path.name != "penstock.yaml":
                    build_data["force_include"][f"{SHOP}/{path.name}"] = f"penstock/{SHOP}/{path.name}"
