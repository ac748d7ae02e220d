"""Our own gateway as a child process in front of a Pulsar: `penstock gateway` by its command line.

The code of the gateway is not imported here: it is a process like the others.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.config import Child
from penstock.embedded.java import Java
from penstock.embedded.ports import LOOPBACK, ask
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.server import Server

__all__ = ["Gateway"]


class Gateway(Server):
    """A Kafka on a Pulsar that runs already.

    with Pulsar() as pulsar, Gateway(pulsar) as gateway:
        print(gateway.bootstrap)
    """

    name = "gateway"
    child = Child.PENSTOCK

    def __init__(
        self,
        pulsar: Pulsar,
        *,
        data: str | Path | None = None,
        wipe: bool = False,
        port: int = 0,
        metrics_port: int = 0,
        options: tuple[str, ...] = (),
        start_timeout: float = 180.0,
    ) -> None:
        ports = {"port": port, "metrics-port": metrics_port}
        super().__init__(data=data, wipe=wipe, ports=ports, heap_mb=0, start_timeout=start_timeout)
        self._pulsar = pulsar
        self._options = options

    @property
    def bootstrap(self) -> str:
        """The address for Kafka clients: host:port."""
        return f"{LOOPBACK}:{self.port('port')}"

    @property
    def metrics_url(self) -> str:
        """Where metrics, health and readiness are served."""
        return f"http://{LOOPBACK}:{self.port('metrics-port')}"

    @property
    def addresses(self) -> dict[str, str]:
        """Where clients find it."""
        return {"bootstrap": self.bootstrap, "metrics": f"{self.metrics_url}/metrics"}

    # How it starts

    def _where(self) -> list[str]:
        pulsar = self._pulsar
        where = ["--pulsar", pulsar.service_url, "--admin", pulsar.admin_url]
        if pulsar.secured:
            conf = pulsar.data / "conf"
            where += ["--pulsar-token-file", str(conf / "admin.token")]
            where += ["--pulsar-ca-file", str(pulsar.ca_file)]
            # A server for one developer, on loopback: its clients need no token of their own.
            where += ["--trust-clients"]
        return where

    def _command_line(self) -> list[str]:
        listen = ["--listen", self.bootstrap, "--metrics-listen", f"{LOOPBACK}:{self.port('metrics-port')}"]
        # One developer's consumer does not wait for others, and what it commits is seen on Pulsar at once.
        defaults = ["--rebalance-delay", "0", "--cursor-period", "1"]
        command = [sys.executable, "-m", "penstock.cli", "gateway", *self._where(), *listen]
        return [*command, *defaults, *self._options]

    def _command(self, java: Java) -> list[str]:
        raise NotImplementedError("the gateway needs no Java")

    @property
    def _out(self) -> Path:
        return self.log

    def _is_ready(self) -> bool:
        return ask(f"{self.metrics_url}/readyz") is not None
