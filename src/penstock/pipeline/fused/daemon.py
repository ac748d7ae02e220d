"""The parent of workers that run fused tasks: as `penstock.pipeline.daemon`, with the kernels that route."""

from __future__ import annotations

from typing import Final

from penstock.pipeline import daemon

__all__ = ["FUSED"]

FUSED: Final = "penstock.pipeline.fused.task"

if __name__ == "__main__":
    daemon.main(FUSED)
