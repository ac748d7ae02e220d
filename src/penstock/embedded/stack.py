"""Several embedded servers as one: started side by side, stopped together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from penstock.embedded.artifact import LOCKS
from penstock.embedded.artifacts import Progress, ensure
from penstock.embedded.gateway import Gateway
from penstock.embedded.home import require_disk_space
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.registry import Registry
from penstock.embedded.server import Server
from penstock.errors import UsageError

__all__ = ["SERVERS", "Stack"]

SERVERS = ("kafka", "pulsar", "registry", "gateway")

_S = TypeVar("_S", bound=Server)


class Stack:
    """The servers named, each in its own folder below `data` (or in temporary ones).

    with Stack(servers=["kafka", "pulsar"]) as stack:
        print(stack.kafka.bootstrap, stack.pulsar.service_url)
    """

    def __init__(
        self,
        servers: Iterable[str] = SERVERS,
        *,
        data: str | Path | None = None,
        wipe: bool = False,
        durable: bool = True,
        secured: bool = False,
        kafka_port: int = 0,
        pulsar_port: int = 0,
        pulsar_http_port: int = 0,
        registry_port: int = 0,
        gateway_port: int = 0,
        record_classes: bool = False,
        kafka_settings: dict[str, str] | None = None,
    ) -> None:
        self._data = Path(data).absolute() if data is not None else None
        makers: dict[str, Callable[[], Server]] = {
            "kafka": lambda: Kafka(
                data=self._folder("kafka"),
                wipe=wipe,
                secured=secured,
                port=kafka_port,
                settings=kafka_settings,
            ),
            "pulsar": lambda: Pulsar(
                data=self._folder("pulsar"),
                wipe=wipe,
                secured=secured,
                durable=durable,
                port=pulsar_port,
                http_port=pulsar_http_port,
            ),
            "registry": lambda: Registry(data=self._folder("registry"), wipe=wipe, port=registry_port),
            "gateway": lambda: Gateway(
                self.pulsar, data=self._folder("gateway"), wipe=wipe, port=gateway_port
            ),
        }
        self.servers: dict[str, Server] = {}
        # The gateway comes last: it is made for the Pulsar of this stack.
        for name in sorted(servers, key=lambda name: name == "gateway"):
            if name not in makers:
                raise UsageError(
                    f"there is no embedded server {name}", next=f"choose from {', '.join(makers)}"
                )
            self.servers[name] = makers[name]()
            self.servers[name].records_classes = record_classes

    def _folder(self, name: str) -> Path | None:
        return self._data / name if self._data else None

    @property
    def kafka(self) -> Kafka:
        """The Kafka of this stack."""
        return self._server("kafka", Kafka)

    @property
    def pulsar(self) -> Pulsar:
        """The Pulsar of this stack."""
        return self._server("pulsar", Pulsar)

    @property
    def registry(self) -> Registry:
        """The schema registry of this stack."""
        return self._server("registry", Registry)

    @property
    def gateway(self) -> Gateway:
        """The gateway of this stack."""
        return self._server("gateway", Gateway)

    def _server(self, name: str, kind: type[_S]) -> _S:
        server = self.servers.get(name)
        if not isinstance(server, kind):
            raise UsageError(f"this stack has no {name}", next=f"name it in Stack(servers=[..., {name!r}])")
        return server

    def start(
        self, progress: Progress | None = None, *, on_ready: Callable[[str], None] | None = None
    ) -> Self:
        """Fetch what is missing, then start all servers; if one fails, none is left running.

        `on_ready` is called, in any thread, with the name of each server that serves.
        """
        if self._data:
            require_disk_space(self._data)
        ensure([name for name in self.servers if name in LOCKS], progress)
        pool = ThreadPoolExecutor(max_workers=max(1, len(self.servers)), thread_name_prefix="penstock-start")
        starts: dict[str, Future[None]] = {}

        def start(name: str) -> None:
            if name == "gateway" and "pulsar" in starts:
                starts["pulsar"].result()
            self.servers[name].start()
            if on_ready is not None:
                on_ready(name)

        try:
            for name in self.servers:
                starts[name] = pool.submit(start, name)
            done, _ = wait(starts.values(), return_when=FIRST_EXCEPTION)
            for each in done:
                each.result()
        except BaseException:
            for server in self.servers.values():
                server.abandon()
            pool.shutdown(wait=True, cancel_futures=True)
            self.kill() if any(server.records_classes for server in self.servers.values()) else self.close()
            raise
        pool.shutdown()
        return self

    def close(self) -> None:
        """End all servers, side by side; the gateway first, so that it can finish what it has."""
        if "gateway" in self.servers:
            self.servers["gateway"].close()
        with ThreadPoolExecutor(max_workers=max(1, len(self.servers))) as pool:
            for end in [pool.submit(server.close) for server in self.servers.values()]:
                end.result()

    def kill(self) -> None:
        """End all servers as a crash would, and remove temporary folders: for when nobody wants to wait."""
        for server in self.servers.values():
            server.kill()
        self.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
