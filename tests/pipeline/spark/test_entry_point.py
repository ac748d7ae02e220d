"""The program that spark-submit runs, with a Penstock that only reports how it was called."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

import pytest

from penstock.pipeline.spark import entry_point

CALLED = """
import json, os, sys
names = ("PENSTOCK_FILES", "PYTHONPATH", "PENSTOCK_CONTRACT_ROOT")
print(json.dumps([sys.argv[1:], os.getcwd(), *map(os.environ.get, names), sys.path[0]]))
"""


PYSPARK = """
import os
class SparkContext:
    _jvm = None
    @classmethod
    def _ensure_initialized(cls):
        cls._jvm = os.environ["SETTINGS"]
class SparkConf:
    def __init__(self, _jvm):
        self.settings = dict(line.split("=") for line in _jvm.split())
    def get(self, key, default):
        return self.settings.get(key, default)
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """Make an application by hand."""
    about = {
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "platform": sysconfig.get_platform(),
        "folder": "shop",
        "pipeline": "p.yaml",
        "options": ["-C", "prod"],
    }
    parts = tmp_path / "parts"
    write(
        parts,
        {
            "application.json": json.dumps(about),
            "application/shop/p.yaml": "",
            "python/penstock/__init__.py": "",
            "python/penstock/cli/__init__.py": "",
            "python/penstock/cli/__main__.py": CALLED,
            "python/pyspark/__init__.py": PYSPARK,
        },
    )
    folder = tmp_path / "application"
    folder.mkdir()
    (folder / "main.py").write_bytes(Path(entry_point.__file__).read_bytes())
    with tarfile.open(folder / "application.tar.gz", "w:gz") as archive:
        archive.add(parts, ".")
    return folder


def entered(application: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", str(application / "main.py"), "--once"]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def test_the_entry_point_unpacks_the_archive_once(application: Path, tmp_path: Path) -> None:
    here = tmp_path / "elsewhere"
    here.mkdir()
    for _ in range(2):
        result = entered(application, here, PYTHONPATH="/theirs")
        assert result.returncode == 0, result.stderr
        words, folder, files, paths, contracts, first = json.loads(result.stdout)
        assert words == ["-C", "prod", "run", "p.yaml", "--once"]
        assert (Path(folder) / "p.yaml").is_file()
        assert files == str(here)
        assert paths == f"{first}:/theirs"
        # What a contract refers to may lie beside the folder of the pipeline.
        assert Path(contracts) == Path(folder).parent
        assert (Path(first) / "penstock" / "__init__.py").is_file()
    (unpacked,) = application.glob("penstock_application-*")
    (unpacked / "left").touch()
    (application / "application.tar.gz").touch()  # written again
    assert entered(application, here).returncode == 0
    assert len(list(application.glob("penstock_application-*"))) == 2


def test_an_application_that_cannot_be_written_to_is_unpacked_elsewhere(
    application: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, registered = tempfile.mkdtemp, list[tuple[object, ...]]()

    def refused(prefix: str, dir: Path | None = None) -> str:
        if dir is not None:
            raise PermissionError(13, "Permission denied")
        return make(prefix=prefix, dir=tmp_path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    monkeypatch.setattr(atexit, "register", lambda *what, **_: registered.append(what))
    found = entry_point.unpacked(application)
    assert (found / "application.json").is_file()
    assert found.parent == tmp_path
    assert registered == [(shutil.rmtree, found)]


def test_of_two_drivers_that_unpack_an_application_both_go_on(
    application: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp

    def quicker(prefix: str, dir: Path) -> str:
        """Let another driver unpack it meanwhile."""
        monkeypatch.setattr(tempfile, "mkdtemp", make)
        entry_point.unpacked(application)
        return make(prefix=prefix, dir=dir)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "mkdtemp", quicker)
    found = entry_point.unpacked(application)
    assert (found / "application.json").is_file()
    assert [*application.glob("penstock_application-*")] == [found]


def unpack(application: Path, container: Path) -> Path:
    with tarfile.open(application / "application.tar.gz") as archive:
        archive.extractall(container / "penstock_application", filter="data")
    return container


def test_the_entry_point_uses_what_spark_has_unpacked(application: Path, tmp_path: Path) -> None:
    container = unpack(application, tmp_path / "container")
    result = entered(application, container)
    assert json.loads(result.stdout)[1] == str(container / "penstock_application" / "application" / "shop")
    assert not list(application.glob("penstock_application-*"))


@pytest.mark.parametrize("key", ["spark.files", "spark.yarn.dist.files"])
def test_a_driver_in_client_mode_finds_what_is_sent_to_the_workers(
    key: str, application: Path, tmp_path: Path
) -> None:
    urls = "file:///secrets/pass%20word,file:/tls/ca.pem#ca.pem,/tls/key,hdfs://n/token,local:/image/store"
    settings = f"{key}={urls}"
    result = entered(application, tmp_path, PYSPARK_GATEWAY_PORT="1", SETTINGS=settings)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)[2].split(os.pathsep)
    assert found == ["/secrets/pass word", "/tls/ca.pem", "/tls/key", "/image/store", str(tmp_path)]
    # Also if it is submitted from the folder of the application.
    result = entered(application, application, PYSPARK_GATEWAY_PORT="1", SETTINGS=settings)
    assert json.loads(result.stdout)[2].split(os.pathsep) == [*found[:-1], str(application)]
    # What the user says goes first.
    result = entered(application, tmp_path, PYSPARK_GATEWAY_PORT="1", SETTINGS=settings, PENSTOCK_FILES="/m")
    assert json.loads(result.stdout)[2] == "/m"


def test_a_driver_in_a_container_has_what_was_sent_in_its_folder(application: Path, tmp_path: Path) -> None:
    container = unpack(application, tmp_path / "container")
    settings = "spark.files=file:///elsewhere/password"
    result = entered(application, container, PYSPARK_GATEWAY_PORT="1", SETTINGS=settings)
    assert json.loads(result.stdout)[2] == str(container)


@pytest.mark.parametrize(("key", "value"), [("python", "2.7"), ("platform", "linux-vax")])
def test_an_application_for_another_machine_is_refused(
    key: str, value: str, application: Path, tmp_path: Path
) -> None:
    container = unpack(application, tmp_path / "container")
    description = container / "penstock_application" / "application.json"
    description.write_text(json.dumps({**json.loads(description.read_text()), key: value}))
    result = entered(application, container)
    assert result.returncode == 1
    assert value in result.stderr
    assert "spark.pyspark.python" in result.stderr
    assert not result.stdout
