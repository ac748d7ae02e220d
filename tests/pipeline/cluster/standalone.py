"""A Spark cluster on loopback, and a history server, from PySpark's own classes."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from penstock.embedded.java import find_java
from penstock.embedded.ports import choose_port
from penstock.embedded.process import ServerProcess

__all__ = [
    "SHORT_LIVED",
    "HistoryServer",
    "Standalone",
    "environment_of",
    "python_without_penstock",
    "submit",
]

SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of a Java that starts with less CPU and is slow with many records."""


class Standalone:
    """A master and workers; each worker has so many cores.

    with Standalone(folder, workers=2, cores=1) as cluster:
        cluster.address
    """

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1) -> None:
        self.folder = folder
        self.address = f"spark://127.0.0.1:{choose_port(0, setting='master')}"
        self.workers: list[ServerProcess] = []
        self._running: list[ServerProcess] = []
        self._first = workers
        self._cores = cores
        self._numbers = iter(range(100))

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._running):
            process.close()

    def _start(self) -> None:
        port = self.address.rpartition(":")[2]
        words = ("--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        head = _daemon("master.Master", self.folder, *words)
        self._running.append(head)
        head.wait_until(lambda: "I have been elected leader" in _text(head), timeout=90)
        for _ in range(self._first):
            self.add_worker()

    def add_worker(self) -> None:
        number = next(self._numbers)
        own = ("--cores", str(self._cores), "--memory", "2g", "--webui-port", "0", "--host", "127.0.0.1")
        work = ("--work-dir", str(self.folder / f"work-{number}"))
        worker = _daemon("worker.Worker", self.folder, *own, *work, self.address, number=number)
        self._running.append(worker)
        self.workers.append(worker)
        worker.wait_until(lambda: "Successfully registered" in _text(worker), timeout=90)

    def kill_worker(self) -> None:
        """Kill a worker with its executor and their Python, as a machine that is switched off."""
        (log,) = {worker.out for worker in self.workers[:1]}
        work = str(self.folder / f"work-{log.stem.rpartition('-')[2]}")
        worker = next(each for each in psutil.process_iter() if work in _command_of(each))
        family = [worker, *worker.children(recursive=True)]
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=30)
        self.workers.pop(0)


class HistoryServer:
    """Shows the event logs of a folder."""

    def __init__(self, folder: Path, logs: Path) -> None:
        port = choose_port(0, setting="history server")
        self.address = f"http://127.0.0.1:{port}"
        options = f"-Dspark.history.fs.logDirectory=file://{logs} -Dspark.history.ui.port={port}"
        self._process = _daemon("history.HistoryServer", folder, SPARK_HISTORY_OPTS=options)

    def __enter__(self) -> Self:
        try:
            self._process.wait_until(lambda: "and started at" in _text(self._process), timeout=90)
        except BaseException:
            self._process.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.close()


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _daemon(name: str, folder: Path, *words: str, number: int = 0, **more: str) -> ServerProcess:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        "PENSTOCK_HOME": str(folder),
        **more,
    }
    given = [f"{key}={value}" for key, value in environment.items()]
    command = ["env", *given, "bash", str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    return ServerProcess(name, [*command, *words], out=folder / f"{name}-{number}.log")


def _text(process: ServerProcess) -> str:
    return process.out.read_text(encoding="utf-8", errors="replace")


def python_without_penstock(folder: Path) -> str:
    """Make a Python that has the libraries of REQUIREMENTS, and no Penstock."""
    venv.create(folder, with_pip=False, symlinks=True)
    # A folder named in a .pth file is searched; the .pth files in it, which install Penstock, are not read.
    libraries = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (libraries / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    probe = "import pyarrow, sys\ntry:\n import penstock\nexcept ImportError:\n sys.exit(0)\nsys.exit(1)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([python, "-c", probe], check=True, cwd=folder, env=environment)
    return str(python)


def submit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run spark-submit where no Python but the one it is told is found."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {name: text for name, text in environment_of(folder).items() if name != "PYTHONPATH"}
    environment |= {"SPARK_HOME": str(home), "JAVA_HOME": str(find_java().home), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        ["bash", str(home / "bin" / "spark-submit"), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env=environment,
    )


def environment_of(folder: Path) -> dict[str, str]:
    """On loopback, with executors that compile little: they live for seconds."""
    defaults = folder / "conf" / "spark-defaults.conf"
    defaults.parent.mkdir(exist_ok=True)
    defaults.write_text(f"spark.executor.extraJavaOptions {SHORT_LIVED}\n")
    return {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(defaults.parent)}
