"""Where the time of the demo goes: its stages, and the installation before it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

__all__ = ["Stages", "installation"]


@dataclass(slots=True)
class Stages:
    """Seconds by stage, in the order in which they began."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Measure a stage; one that was measured before goes on."""
        began = monotonic()
        before = self.seconds.setdefault(name, 0.0)
        try:
            yield
        finally:
            self.seconds[name] = before + monotonic() - began

    def told(self, apart: Collection[str]) -> str:
        """Say where the time went; stages that are `apart` are not part of the sum.

        >>> Stages({"servers": 11.04, "routing": 30.0, "reading back": 2.5}).told(["routing"])
        '13.5 s of own work (servers 11.0, reading back 2.5); routing 30.0'
        """
        own = {name: seconds for name, seconds in self.seconds.items() if name not in apart}
        others = [name for name in apart if name in self.seconds]
        total = f"{sum(own.values()):.1f} s of own work ({_listed(own)})"
        return "; ".join([total, *(_listed({name: self.seconds[name]}) for name in others)])


def _listed(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {each:.1f}" for name, each in seconds.items())


def installation(path: Path | None) -> dict[str, float]:
    """Take the seconds that an installation has left in a file, which is removed: they count once."""
    if path is None:
        return {}
    try:
        found = json.loads(path.read_bytes())
        path.unlink()
        return {name: float(found[name]) for name in ("downloads", "install")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # nothing was installed, or by other means
