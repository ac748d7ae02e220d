"""A Pulsar cluster for callers that block: our asyncio client and the admin API on a thread of their own.

Tasks of Spark and the loop are threads without asyncio. A private thread keeps connections alive (PING) while
the caller is busy, as in a function that takes minutes, and kernels that convert entries run there beside
those that route, since neither holds the GIL.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from penstock.brokers.outage import Outages
from penstock.brokers.pulsar import Admin, Options, PulsarClient, ServiceUrl
from penstock.brokers.tls import tls_context
from penstock.config.secret import Secret, current
from penstock.errors import ClusterError, PenstockError, PulsarRefused, Unreachable
from penstock.pipeline.delivery.pulsar.settings import PulsarSettings
from penstock.wire.pulsar.pulsar_pb2 import ServerError

__all__ = ["PulsarCluster", "PulsarSettings", "as_outage", "partition_name"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

DELIVERY_SECONDS: Final = 120.0
"""For the receipt of an entry, reconnects included: as long as the delivery timeout of the Kafka producer."""
_FULL: Final = ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION
_UNBOUNDED: Final = 1 << 40
_CLOSE_SECONDS: Final = 10.0
_STOP_LOOK_SECONDS: Final = 0.25
_STOP_SECONDS: Final = 2.0
"""For the answer to what is asked when the end is asked for."""


def partition_name(topic: str, partition: int, partitions: int) -> str:
    """Return the name of the Pulsar topic that holds a partition; 0 partitions are a topic without.

    >>> partition_name("persistent://public/default/t", 2, 4)
    'persistent://public/default/t-partition-2'
    """
    return f"{topic}-partition-{partition}" if partitions else topic


def as_outage(error: PenstockError) -> PenstockError:
    """Return a refusal that passes, such as that of a full disk or a broker that starts, as an outage.

    Whoever runs a source waits for a cluster that is away, says so once, and goes on. Whether a full backlog
    holds its producers or fails them is a policy for clients that have nobody else to wait.
    """
    if isinstance(error, PulsarRefused) and (error.retriable or error.server_error == _FULL):
        return Unreachable(error.what, where=error.where, why=error.why, next=error.next)
    return error


class PulsarCluster:
    """Client and admin API; `call` runs a coroutine on its thread and returns what that returns."""

    client: PulsarClient
    admin: Admin

    def __init__(
        self, settings: PulsarSettings, *, options: Options | None = None, stop: threading.Event | None = None
    ) -> None:
        """Start the thread; nothing is connected yet. Raises ConfigError for settings that cannot be.

        When `stop` is set, a `call` that waits for a broker ends after a moment with Unreachable.
        """
        self.settings = settings
        self._stop_calls = stop
        # The sink bounds what is under way over all of its producers, so the window of one has no bound.
        self._options = options or Options(
            send_timeout=DELIVERY_SECONDS, window_entries=_UNBOUNDED, window_bytes=_UNBOUNDED
        )
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="penstock-pulsar", daemon=True)
        self._thread.start()
        try:
            self.call(self._open())
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened with it, the connections and the thread."""
        if self._loop.is_closed():
            return
        try:
            self.call(self._shut(), timeout=_CLOSE_SECONDS)
        except TimeoutError:
            pass  # a broker that does not answer is left: the process must be able to end
        finally:
            self._stop()

    def call(self, work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        """Run a coroutine on the thread and wait; what it raises is raised here, see `as_outage`.

        Raises TimeoutError after `timeout` seconds; the coroutine is cancelled then, if `stop` is set for
        some seconds (Unreachable), and also if the caller is interrupted.
        """
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            raise ClusterError("this client of Pulsar is closed, or was called by its own thread")
        running: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(timeout) if self._stop_calls is None else self._until_stop(running, timeout)
        except PulsarRefused as exc:
            raise as_outage(exc) from exc
        except BaseException:
            running.cancel()
            raise

    def _until_stop(self, running: Future[T], timeout: float | None) -> T:
        assert self._stop_calls is not None
        began, stopped = time.monotonic(), None
        while True:
            done, _ = wait((running,), _STOP_LOOK_SECONDS)
            now = time.monotonic()
            if done:
                return running.result()
            if timeout is not None and now - began > timeout:
                raise TimeoutError
            if self._stop_calls.is_set():
                stopped = now if stopped is None else stopped
                if now - stopped > _STOP_SECONDS:
                    raise Unreachable("Pulsar did not answer before the end", where=self.settings.service_url)

    def post(self, work: Callable[..., object], *arguments: Any) -> None:
        """Let the thread call something soon, in the order of these calls."""
        self._loop.call_soon_threadsafe(work, *arguments)

    # On the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _open(self) -> None:
        settings = self.settings
        token = settings.token
        secret = None if token is None else Secret(lambda: current(token))
        tls = tls_context(
            ca_file=settings.ca_file,
            cert_file=settings.cert_file,
            key_file=settings.key_file,
            key_password=settings.key_password,
        )
        url = ServiceUrl.parse(settings.service_url)
        self.client = PulsarClient(
            settings.service_url,
            token=secret,
            tls=tls,
            by_certificate=settings.cert_file is not None,
            options=self._options,
            outages=_Untold(_log),
        )
        hosts = [host.name for host in url.hosts]
        self.admin = Admin(settings.admin_url or url.usual_admin, token=secret, tls=tls, hosts=hosts)

    async def _shut(self) -> None:
        await self.client.close()
        await self.admin.close()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


class _Untold(Outages):
    """Logs nothing: who reads or writes logs an outage once, whatever number of clients it has."""

    def failed(self, subject: str, reason: object) -> None:
        """Leave it to the caller."""

    def worked(self, subject: str) -> None:
        """Leave it to the caller."""


def _new_loop() -> asyncio.AbstractEventLoop:
    """Make a loop of uvloop where it is installed: it takes less CPU for the same frames."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
