"""The one way the command line fetches jars: with a bar that counts files and megabytes."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli import output

__all__ = ["fetch"]


def fetch(locks: Sequence[str]) -> None:
    """Fetch what is missing of these locks; silent if nothing is."""
    from penstock.embedded.artifacts import Fetched, ensure, status

    if all(present == total for present, total in map(status, locks)):
        ensure(locks)
        return
    with output.progress("fetching jars", total=100, counted=False) as bar:
        shown = 0.0

        def report(now: Fetched) -> None:
            nonlocal shown
            percent = 100.0 * now.bytes / max(1, now.of_bytes)
            bar.describe(
                f"fetching jars: {now.files} of {now.of_files} files, "
                f"{now.bytes / 1e6:.1f} of {now.of_bytes / 1e6:.1f} MB"
            )
            bar.advance(max(0.0, percent - shown))
            shown = max(shown, percent)

        ensure(locks, report)
