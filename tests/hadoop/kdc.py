"""A real Kerberos: a key distribution center in a Java process; see Kdc.java."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from java_program import JavaProgram, locked_jars

__all__ = ["Kdc"]


class Kdc:
    """Knows the daemons of Hadoop on this machine, and the user penstock.

    with Kdc(folder) as kdc, MiniCluster(other, kdc=kdc) as cluster:
        ...
    """

    realm = "PENSTOCK.TEST"
    principal = f"penstock@{realm}"
    """A user without any right beside those of a user."""

    def __init__(self, folder: Path, *, ticket_seconds: int = 86_400) -> None:
        self.folder = folder
        self.keytab = folder / "penstock.keytab"
        """The key of this user."""
        self.ticket_cache = folder / "penstock.ccache"
        """A ticket of this user, as kinit writes it."""
        self.java_option = f"-Djava.security.krb5.conf={folder / 'krb5.conf'}"
        """How a Java finds this realm instead of that of the machine."""
        self._ticket_seconds = ticket_seconds
        self._program = JavaProgram("Kdc.java", folder)

    def __enter__(self) -> Kdc:
        principals = ("hdfs/localhost", "HTTP/localhost", "penstock")
        words = [str(self.folder), self.realm, str(self._ticket_seconds), *principals]
        self._program.start(locked_jars("kdc"), ["-Xmx64m"], words)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.end()
