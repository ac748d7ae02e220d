"""Where the time of the demo goes: its stages, side by side or one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

__all__ = ["Stages"]


@dataclass(slots=True)
class Stages:
    """Seconds by stage, in the order in which they began."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Measure a stage."""
        began = monotonic()
        self.seconds[name] = 0.0
        try:
            yield
        finally:
            self.seconds[name] = monotonic() - began

    def told(self, apart: str) -> str:
        """Say where the time went, and how much of it is not that of one stage.

        >>> Stages({"servers": 11.04, "routing": 30.0, "reading back": 2.5}).told("routing")
        'servers 11.0 s, routing 30.0 s, reading back 2.5 s: 13.5 s without routing'
        """
        each = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        rest = sum(seconds for name, seconds in self.seconds.items() if name != apart)
        return f"{each}: {rest:.1f} s without {apart}"
