"""The process between Penstock and a server: it ends the server when Penstock is gone.

Run as a script: `python guard.py GRACE_SECONDS LOG COMMAND...`. Standard input is a pipe whose other
end only Penstock holds: end of file means that Penstock stopped or was killed, even by SIGKILL.
Prints the server's process id, then exits with the server's exit code. Needs only the standard library.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

CANNOT_RUN = 126


def guard(grace: float, log: str, command: list[str]) -> int:
    """Run `command` until it ends or standard input does; stop it then, gently first."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        # A handler that does nothing, not SIG_IGN: the server would inherit that and ignore its own end.
        signal.signal(signum, _stay)
    with open(log, "ab") as out:
        try:
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        except OSError as exc:
            out.write(f"Error: {exc}\n".encode())
            return CANNOT_RUN
    os.write(1, f"{server.pid}\n".encode())
    os.close(1)
    while server.poll() is None:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 64)
        if 0 in readable and not os.read(0, 64):
            return _stop(server, grace)
    return server.returncode


def _stay(signum: int, frame: object) -> None:
    """Outlive signals meant for Penstock: only the end of the pipe ends the guard."""


def _stop(server: subprocess.Popen[bytes], grace: float) -> int:
    server.terminate()
    try:
        return server.wait(timeout=grace)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        return server.wait()


if __name__ == "__main__":
    sys.exit(guard(float(sys.argv[1]), sys.argv[2], sys.argv[3:]) & 0xFF)
