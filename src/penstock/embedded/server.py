"""The life of an embedded server: prepared, started, ready, stopped, started again, gone.

A server given a data folder keeps it; without one it uses a temporary folder that goes with it.
Ports are chosen once, so that a server started again is found where it was.
"""

from __future__ import annotations

import re
import shutil
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from penstock.config import Child
from penstock.embedded.class_archive import ClassArchive, jars_of
from penstock.embedded.home import require_disk_space
from penstock.embedded.java import Java, find_java
from penstock.embedded.ports import choose_port
from penstock.embedded.private import make_folder, remove_folder, write_private
from penstock.embedded.process import ServerProcess, last_lines, size_of
from penstock.errors import MachineError, PortTaken, StartupError

__all__ = ["Server", "write_arguments"]

_PORT_LOST = ("Address already in use", "BindException", "Port already bound", f"[{PortTaken.code}]")
"""What Kafka, Pulsar, the registry and our gateway say."""
_ATTEMPTS = 3
_PARTS = ("conf", "logs", "data")
_TEMPORARY = "java-tmp"
"""What Java unpacks for itself, such as native libraries: it stays there if the server is killed."""
_GRACE = 15.0
_RECORDING_GRACE = 60.0
"""Seconds that a server may take to end; one that writes its class archive takes a few more."""
_ENDED_WELL = (0, 128 + signal.SIGTERM)


class Server(ABC):
    """A real server as a child process, used as a context manager or by `start` and `close`."""

    name: ClassVar[str]
    unfit_in_path: ClassVar[str] = r"[^ -~]"
    """What the path of its data folder cannot hold; beyond ASCII it depends on Java's locale."""
    child: ClassVar[Child] = Child.SERVER
    """Which environment its process gets."""
    records_classes = False
    """Whether it writes its class archive when it is stopped, if it has none: the next one starts quicker."""

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        wipe: bool = False,
        ports: Mapping[str, int],
        heap_mb: int,
        full_jit: bool = False,
        start_timeout: float = 120.0,
    ) -> None:
        self._given = Path(data).absolute() if data is not None else None
        self._wipe = wipe
        self._wanted_ports = dict(ports)
        self._ports: dict[str, int] = {}
        self._choosing = threading.Lock()
        self._heap_mb = heap_mb
        self._full_jit = full_jit
        self._start_timeout = start_timeout
        self._process: ServerProcess | None = None
        self._archive: ClassArchive | None = None
        """Written when the process ends; None if it is not."""
        self._folder: Path | None = None
        self._abandoned = threading.Event()
        self._log_start = 0

    # What each server adds

    @abstractmethod
    def _command(self, java: Java) -> list[str]:
        """Write the configuration into the data folder and give the arguments for Java."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Say whether the server serves."""

    @property
    def addresses(self) -> dict[str, str]:
        """Where clients find it, by name."""
        return {}

    # The life

    def start(self) -> Self:
        """Start the server and wait until it is ready."""
        if self._process is not None:
            return self
        try:
            require_disk_space(self.data)
            self._prepare_folder()
            self._start_on_free_ports()
        except BaseException:
            self._end_start()
            self.close()
            raise
        return self

    def abandon(self) -> None:
        """Make a `start` that runs in another thread give up; it then leaves nothing running."""
        self._abandoned.set()

    def stop(self) -> None:
        """End the server; its data and its ports stay for the next `start`."""
        process = self._process
        if process is not None:
            process.close()
            # Only now: who does not want to wait for its end can still kill it, from another thread.
            self._process = None
            self._keep_classes(process)

    def kill(self) -> None:
        """End the server as a crash would; its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process = None
        self._archive = None

    def close(self) -> None:
        """End the server and remove a temporary data folder."""
        self.stop()
        self._abandoned.clear()
        if self._given is None and self._folder is not None:
            remove_folder(self._folder)
            self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What people ask of it

    @property
    def data(self) -> Path:
        """The folder that holds configuration, logs and data."""
        if self._given is not None:
            return self._given
        if self._folder is None:
            self._folder = make_folder(f"penstock-{self.name}-")
        return self._folder

    @property
    def log(self) -> Path:
        """The file that holds what the server says."""
        return self.data / "logs" / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self._process is not None and self._process.running

    @property
    def is_recording(self) -> bool:
        """Whether it writes its class archive when it is stopped."""
        return self._archive is not None

    def port(self, name: str) -> int:
        """Give the port chosen under this name."""
        with self._choosing:  # whoever asks first while it starts in another thread
            if name not in self._ports:
                self._ports[name] = self._choose(name)
            return self._ports[name]

    def _choose(self, name: str) -> int:
        """Choose a port that is no other one of this server: those look free while it is down."""
        wanted, setting = self._wanted_ports[name], f"{self.name} {name}"
        port = choose_port(wanted, setting=setting)
        while not wanted and port in self._ports.values():
            port = choose_port(wanted, setting=setting)
        return port

    # How it starts

    def _prepare_folder(self) -> None:
        if unfit := re.search(self.unfit_in_path, str(self.data)):
            raise MachineError(
                f"{self.name} cannot keep data below a folder with {unfit.group()!r} in its name",
                where=str(self.data),
                next="choose another folder (PENSTOCK_HOME, or the data option)",
            )
        try:
            for part in (self.data / name for name in _PARTS):
                if self._wipe and part.is_dir():
                    shutil.rmtree(part)  # only what is ours: the folder may hold other things
                part.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.data / _TEMPORARY, ignore_errors=True)
            (self.data / _TEMPORARY).mkdir(exist_ok=True)
        except OSError as exc:
            raise MachineError(
                f"the data folder of {self.name} cannot be used: {exc.strerror}",
                where=str(self.data),
                next="choose another folder, or mend its rights",
            ) from exc
        self._wipe = False

    def _start_on_free_ports(self) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._start_once()
            except StartupError as exc:
                self._end_start()
                # A free port can be lost between our look and the server's: take others.
                if attempt == _ATTEMPTS or any(self._wanted_ports.values()) or not self._lost_a_port(exc):
                    raise
                self._ports.clear()

    def _end_start(self) -> None:
        """End a process that has not become ready: classes that it records are not those of a whole start."""
        self.kill() if self._archive is not None else self.stop()

    def _start_once(self) -> None:
        for name, wanted in self._wanted_ports.items():
            if name in self._ports and self._process is None:
                choose_port(self._ports[name], setting=f"{self.name} {name}")
            elif wanted:
                self.port(name)
        self._log_start = size_of(self.log)
        command = self._command_line()
        grace = _GRACE if self._archive is None else _RECORDING_GRACE
        self._process = ServerProcess(
            self.name, command, out=self._out, log=self.log, grace=grace, kind=self.child
        )
        self._process.wait_until(self._is_ready_or_abandoned, timeout=self._start_timeout)

    def _command_line(self) -> list[str]:
        java = find_java()
        arguments = self.data / "conf" / f"{self.name}.args"
        command = self._command(java)
        classes = self._class_options(java, command)
        write_arguments(arguments, [*self._jvm_options(), *classes, *command])
        return [str(java.executable), f"@{arguments}"]

    def _class_options(self, java: Java, command: list[str]) -> tuple[str, ...]:
        archive = ClassArchive(self.name, java, jars_of(command))
        recording = archive.record() if self.records_classes else ()
        self._archive = archive if recording else None
        return recording or archive.use()

    def _keep_classes(self, process: ServerProcess) -> None:
        archive, self._archive = self._archive, None
        if archive is not None:
            archive.keep(has_ended_well=process.returncode in _ENDED_WELL)

    @property
    def _out(self) -> Path:
        """The file for what the server prints outside of its log."""
        return self.log.with_suffix(".out")

    def _is_ready_or_abandoned(self) -> bool:
        if self._abandoned.is_set():
            raise StartupError(f"the start of {self.name} was given up")
        return self._is_ready()

    def _jvm_options(self) -> list[str]:
        compiler = [] if self._full_jit else ["-XX:TieredStopAtLevel=1"]
        heap = [f"-Xms{min(64, self._heap_mb)}m", f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC"]
        temporary = f"-Djava.io.tmpdir={self.data / _TEMPORARY}"
        return [*heap, *compiler, "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true", temporary]

    def _lost_a_port(self, exc: StartupError) -> bool:
        said = [exc.why or "", *last_lines(self.log, 200, self._log_start)]
        return any(mark in line for mark in _PORT_LOST for line in said)


def write_arguments(path: Path, arguments: list[str]) -> None:
    """Write a Java argument file that only its owner can read: class paths are long, passwords private."""
    quoted = ('"' + argument.replace("\\", "\\\\").replace('"', '\\"') + '"' for argument in arguments)
    write_private(path, ("\n".join(quoted) + "\n").encode())
