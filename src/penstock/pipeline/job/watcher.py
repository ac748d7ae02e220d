"""Who is told what a job does: a status line, metrics, a test."""

from __future__ import annotations

from penstock.pipeline.job.progress import Progress

__all__ = ["Watcher"]


class Watcher:
    """Is told what happens; does nothing by itself."""

    def begin(self, source: str) -> None:
        """A source will run."""

    def batch(self, progress: Progress) -> None:
        """A batch is written."""

    def lag(self, source: str, records: int) -> None:
        """So many records wait, measured between batches."""

    def lost(self, source: str, records: int) -> None:
        """Records are gone that were not read."""

    def note(self, text: str) -> None:
        """Something that a person may want to know."""
