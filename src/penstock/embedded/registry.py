"""Apicurio registry 2.6.13 as a child process, on loopback: schemas over the Confluent-compatible API."""

from __future__ import annotations

from pathlib import Path

from penstock.embedded.artifacts import ensure, unpacked
from penstock.embedded.java import Java
from penstock.embedded.ports import LOOPBACK, ask
from penstock.embedded.server import Server

__all__ = ["REGISTRY_VERSION", "Registry"]

REGISTRY_VERSION = "2.6.13.Final"


class Registry(Server):
    """A real schema registry.

    with Registry() as registry:
        print(registry.url)
    """

    name = "registry"
    # A semicolon begins the options of the database.
    unfit_in_path = r"[^ -~]|;"

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        wipe: bool = False,
        port: int = 0,
        heap_mb: int = 256,
        full_jit: bool = False,
        start_timeout: float = 120.0,
    ) -> None:
        super().__init__(
            data=data,
            wipe=wipe,
            ports={"port": port},
            heap_mb=heap_mb,
            full_jit=full_jit,
            start_timeout=start_timeout,
        )

    @property
    def url(self) -> str:
        """The address of the Confluent-compatible API."""
        return f"{self.apicurio_url}/apis/ccompat/v7"

    @property
    def apicurio_url(self) -> str:
        """The address of Apicurio itself."""
        return f"http://{LOOPBACK}:{self.port('port')}"

    @property
    def addresses(self) -> dict[str, str]:
        """Where clients find it."""
        return {"registry": self.url}

    def _command(self, java: Java) -> list[str]:
        (archive,) = ensure(["registry"])["registry"]
        folder = unpacked(archive)
        runner = next(folder.glob("apicurio-registry-app-*-runner.jar"))
        return [
            f"-Dquarkus.http.host={LOOPBACK}",
            f"-Dquarkus.http.port={self.port('port')}",
            # The shipped settings keep schemas in memory; a file keeps them over a restart, and without the
            # delay over a crash.
            f"-Dquarkus.datasource.jdbc.url=jdbc:h2:file:{self.data / 'data' / 'registry'};WRITE_DELAY=0",
            f"-Dquarkus.log.file.path={self.log}",
            "-Dquarkus.log.file.enable=true",
            "-Dquarkus.log.file.rotation.max-file-size=20M",
            "-Dquarkus.log.file.rotation.max-backup-index=2",
            "-Dquarkus.banner.enabled=false",
            *["-cp", f"{runner}:{folder / 'lib'}/*", "io.quarkus.runner.GeneratedMain"],
        ]

    def _is_ready(self) -> bool:
        return ask(f"{self.url}/subjects") is not None
