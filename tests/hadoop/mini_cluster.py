"""A real HDFS, and with NodeManagers a real YARN, in one Java process; see MiniCluster.java."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from java_program import JavaProgram, locked_jars

if TYPE_CHECKING:
    from kdc import Kdc

__all__ = ["MiniCluster"]

_ORDER_SECONDS = 60.0
_HEAP = "-Xmx512m"


class MiniCluster:
    """Everything that it writes is below `folder`, in which it also runs: containers log there.

    With a `kdc` everybody is authenticated by Kerberos; its user penstock has the folder /user/penstock.

    with MiniCluster(folder) as cluster:
        cluster.order("safemode on")
    """

    def __init__(self, folder: Path, *, node_managers: int = 0, kdc: Kdc | None = None) -> None:
        self.folder = folder
        self.node_managers = node_managers
        self.address = ""
        """The URL of the HDFS, without a path."""
        self.configuration = folder / "conf"
        """What HADOOP_CONF_DIR names for a client."""
        self._kdc = kdc
        self._program = JavaProgram("MiniCluster.java", folder)

    def __enter__(self) -> MiniCluster:
        import pyspark

        of_spark = str(Path(pyspark.__file__).parent / "jars" / "*")
        jars = [*locked_jars("hadoop"), of_spark]
        options, arguments = [_HEAP], [str(self.folder), str(self.node_managers), of_spark]
        if self._kdc is not None:
            options += [self._kdc.java_option, "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED"]
            arguments += [self._kdc.realm, str(self._kdc.folder)]
            self.configuration.mkdir()
            jars.append(str(self.configuration))
        self.address = self._program.start(jars, options, arguments)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.end()

    def order(self, text: str) -> None:
        """Let it do something: safemode on or off, stop or start namenode or datanode."""
        self._program.write(text)
        self._program.answer("done", _ORDER_SECONDS)
