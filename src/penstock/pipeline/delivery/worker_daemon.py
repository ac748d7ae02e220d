"""The parent of workers that call the routing kernel: as `penstock.pipeline.daemon`, with that kernel."""

from __future__ import annotations

from typing import Final

from penstock.pipeline import daemon

__all__ = ["KERNEL"]

KERNEL: Final = "penstock.pipeline.evaluators.kernel.batch_router"

if __name__ == "__main__":
    daemon.main(KERNEL)
