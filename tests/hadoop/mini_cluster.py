"""A real HDFS, and with NodeManagers a real YARN, in one Java process; see MiniCluster.java."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from types import TracebackType

from penstock.embedded.artifact import parse_lock
from penstock.embedded.artifacts import ensure_artifacts
from penstock.embedded.java import find_java

__all__ = ["MiniCluster"]

HERE = Path(__file__).parent
_SMALL = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_SECONDS = 280.0
_ORDER_SECONDS = 60.0
_END_SECONDS = 8.0
"""YARN takes half a minute to stop what nobody uses any more."""


class MiniCluster:
    """Everything that it writes is below `folder`, in which it also runs: containers log there.

    with MiniCluster(folder) as cluster:
        cluster.order("safemode on")
    """

    def __init__(self, folder: Path, *, node_managers: int = 0) -> None:
        self.folder = folder
        self.node_managers = node_managers
        self.address = ""
        """The URL of the HDFS, without a path."""
        self.configuration = folder / "conf"
        """What HADOOP_CONF_DIR names for a client."""
        self._lines: Queue[str | None] = Queue()
        self._said: deque[str] = deque(maxlen=100)

    def __enter__(self) -> MiniCluster:
        import pyspark

        lock = HERE / "hadoop.lock"
        jars = ensure_artifacts(parse_lock(lock.read_text(encoding="utf-8"), origin=lock.name))
        of_spark = str(Path(pyspark.__file__).parent / "jars" / "*")
        path = os.pathsep.join((*map(str, jars), of_spark))
        words = [str(find_java().executable), *_SMALL, "-cp", path, str(HERE / "MiniCluster.java")]
        words += [str(self.folder), str(self.node_managers), of_spark]
        self._process = subprocess.Popen(
            words,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = Thread(target=self._read, name="mini-cluster", daemon=True)
        self._reader.start()
        try:
            self.address = self._answer("ready ", _START_SECONDS)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def order(self, text: str) -> None:
        """Let it do something: safemode on or off, stop or start namenode."""
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        self._answer("done", _ORDER_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def _answer(self, prefix: str, seconds: float) -> str:
        while True:
            try:
                line = self._lines.get(timeout=seconds)
            except Empty:
                line = None
            assert line is not None, "".join(self._said)
            if line.startswith(prefix):
                return line.removeprefix(prefix).strip()

    def _end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        self._reader.join(30)
        self._process.stdout.close()
