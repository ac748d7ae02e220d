"""The life of a gateway that is a process of its own: it serves until a signal, drains, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from dataclasses import replace

from penstock.gateway import memory
from penstock.gateway.client_log import RateLimit
from penstock.gateway.client_log import log as client_log
from penstock.gateway.open_files import fitting
from penstock.gateway.process import Gateway, Options

__all__ = ["run"]

log = logging.getLogger("penstock.gateway")


def run(options: Options) -> None:
    """Serve until SIGTERM or SIGHUP; SIGINT ends it as an interruption. A second signal does not wait."""
    memory.keep_what_is_freed()
    options = replace(options, limits=fitting(options.limits))
    limit = RateLimit()
    client_log.addFilter(limit)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            interrupted = runner.run(_serve(options))
    finally:
        client_log.removeFilter(limit)
    if interrupted:
        raise KeyboardInterrupt


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None


async def _serve(options: Options) -> bool:
    """Live one life; give whether SIGINT ended it."""
    gateway, stop = Gateway(options), asyncio.Event()
    life = asyncio.create_task(_live(gateway, stop))
    signals: list[signal.Signals] = []

    def on_signal(which: signal.Signals) -> None:
        if stop.is_set() or not gateway.serving:
            life.cancel()
        signals.append(which)
        stop.set()

    loop = asyncio.get_running_loop()
    for which in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(which) is not signal.SIG_IGN:  # SIGHUP below nohup
            loop.add_signal_handler(which, on_signal, which)
    try:
        await life
    except asyncio.CancelledError:
        log.info("ended without waiting")
    return signals[:1] == [signal.SIGINT]


async def _live(gateway: Gateway, stop: asyncio.Event) -> None:
    await gateway.start()
    memory.settle()
    await stop.wait()
    log.info("draining")
    await gateway.drain()
