"""The wheel: what is in it, and that it works in a fresh environment with its base dependencies only."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli.app import VERBS

ROOT = Path(__file__).parents[1]
LOCKS = sorted(path.name for path in (ROOT / "src/penstock/embedded/locks").glob("*.lock"))

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a command of an environment that has the wheel and nothing else that was not asked for."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "venv", with_pip=True)
    binaries = folder / "venv" / "bin"
    hidden = ("PYTHON", "PENSTOCK_", "VIRTUAL_ENV")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environ |= {"PENSTOCK_HOME": str(folder / "home"), "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}

    def run(command: str, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binaries / command, *args], env=environ, cwd=folder, capture_output=True, text=True, check=False
        )

    installed = run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    assert installed.returncode == 0, installed.stderr
    return run


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"penstock/embedded/locks/{lock}" for lock in LOCKS} <= names
    assert {"penstock/py.typed", "penstock/cli/app.py"} <= names
    shop = ("asyncapi.yaml", "both-brokers.yaml", "functions.py", "pipeline.yaml")
    assert {name for name in names if "/examples/" in name} == {
        f"penstock/examples/shop/{name}" for name in shop
    }
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert {name.split("/")[0] for name in names} == {"penstock", f"penstock-{__version__}.dist-info"}


PERMISSIVE = re.compile(r"MIT|BSD|ISC|Apache|PSF|Python Software|Zlib|0BSD|CC0|Unlicense", re.IGNORECASE)


def licence_of(package: importlib.metadata.Distribution) -> str:
    fields = package.metadata
    named = fields.get("License-Expression") or (fields.get("License") or "").splitlines()
    classes = [each for each in fields.get_all("Classifier") or () if each.startswith("License")]
    return str(named if isinstance(named, str) else [*named[:1], *classes])


def required(name: str, seen: dict[str, str]) -> dict[str, str]:
    """Give the licences of a package and of what it requires, as far as it is installed here."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    if name in seen or name == "penstock":
        return seen
    try:
        package = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return seen  # for another platform
    seen[name] = licence_of(package)
    for each in package.requires or ():
        if "extra ==" not in each:
            required(re.split(r"[ ;<>=!~\[(]", each)[0], seen)
    return seen


def test_the_notice_names_every_package_that_is_not_permissive() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, str] = {}
    for each in (*project["dependencies"], *sum(project["optional-dependencies"].values(), [])):
        required(re.split(r"[ ;<>=!~\[(]", each)[0], found)
    assert len(found) > 30
    notice = (ROOT / "NOTICE").read_text()
    strict = {name for name, licence in found.items() if "GPL" in licence or "MPL" in licence}
    assert {name for name in strict if f"- {name}:" not in notice} == set()
    assert {name: found[name] for name in found.keys() - strict if not PERMISSIVE.search(found[name])} == {}


def test_no_package_of_the_lock_is_lgpl() -> None:
    names = re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert len(names) > 100
    installed = {each.name.lower(): licence_of(each) for each in importlib.metadata.distributions()}
    found = {name: installed.get(name, "") for name in names}
    assert "crc32c" not in names
    assert {
        name: licence for name, licence in found.items() if "LGPL" in licence or "Lesser" in licence
    } == {}


WITHOUT_CRC32C = """
import sys
sys.modules["crc32c"] = None  # an import of it fails
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from penstock.gateway.dispatch import advertised
for key, lowest, highest in advertised()[2:]:  # without Produce and Fetch, which have readers of their own
    for version in range(lowest, highest + 1):
        entity_reader(load_request_schema(key, version))
        entity_writer(load_response_schema(key, version))
print(len(advertised()), *sorted(name for name in sys.modules if name.startswith("kio.records")))
"""


def test_the_gateway_needs_no_crc32c() -> None:
    """kio requires it in its metadata, for a part that is not imported; the lock leaves it out."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CRC32C], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    count, *records = done.stdout.split()
    assert (int(count) > 25, records) == (True, [])


def test_there_are_locks_to_ship() -> None:
    assert {"kafka.lock", "pulsar.lock", "registry.lock", "spark.lock"} <= set(LOCKS)


@pytest.mark.slow
def test_the_version(bare: Run) -> None:
    done = bare("penstock", "version", "-o", "json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["penstock"] == __version__
    assert said["pyspark"] is None


@pytest.mark.slow
def test_help_and_every_verb(bare: Run) -> None:
    assert bare("penstock", "--help").returncode == 0
    for name in VERBS:
        done = bare("penstock", name, "--help")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Usage: ")


@pytest.mark.slow
def test_doctor_says_what_is_not_installed(bare: Run) -> None:
    done = bare("penstock", "doctor", "-o", "json")
    found = {check["name"]: check for check in json.loads(done.stdout)}
    assert found["pyspark"]["repair"] == "pip install 'penstock[spark]'"
    assert "internal error" not in done.stderr


CONTRACT = """\
asyncapi: 3.0.0
info: {title: shop, version: 1.0.0}
servers:
  kafka: {host: '127.0.0.1:1', protocol: kafka}
  pulsar: {host: '127.0.0.1:1', protocol: pulsar}
channels:
  orders:
    address: orders
    servers: [{$ref: '#/servers/kafka'}]
    messages: {placed: {payload: {type: object}, examples: [{payload: {a: 1}}]}}
  parcels: {address: parcels, servers: [{$ref: '#/servers/pulsar'}]}
operations:
  onOrder: {action: receive, channel: {$ref: '#/channels/orders'}}
"""
NEED_EXTRAS = [
    ("demo",),
    ("dev", "up"),
    ("validate", "-f", "asyncapi.yaml"),
    ("plan", "-f", "asyncapi.yaml"),
    ("apply", "-f", "asyncapi.yaml", "--yes"),
    ("drift", "-f", "asyncapi.yaml"),
    ("run", "pipeline.yaml"),
    ("test", "pipeline.yaml"),
    ("routes", "pipeline.yaml"),
    ("package", "pipeline.yaml"),
    ("dlq", "list", "orders"),
    ("dlq", "restore", "orders", "--all", "--yes"),
    ("gateway", "--pulsar", "pulsar://127.0.0.1:1"),
    ("gateway", "--apis"),
    ("publish", "orders", "--type", "t", "-f", "asyncapi.yaml"),
    ("publish", "parcels", "--type", "t", "-f", "asyncapi.yaml"),
    ("tail", "orders", "-f", "asyncapi.yaml"),
    ("tail", "parcels", "-f", "asyncapi.yaml"),
    ("topics", "-f", "asyncapi.yaml"),
    ("groups", "list", "-f", "asyncapi.yaml"),
]
NEED_NONE = [("event", "--help"), ("context", "list"), ("config", "show"), ("explain", "PK003"), ("version",)]


@pytest.mark.slow
def test_every_verb_is_tried_without_extras() -> None:
    assert {words[0] for words in (*NEED_EXTRAS, *NEED_NONE)} | {"doctor"} == VERBS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("words", NEED_EXTRAS, ids=" ".join)
def test_a_missing_extra_is_a_sentence_with_the_command(words: tuple[str, ...], bare: Run) -> None:
    folder = Path(bare("python", "-c", "import os; print(os.getcwd())").stdout.strip())
    (folder / "asyncapi.yaml").write_text(CONTRACT)
    (folder / "pipeline.yaml").write_text("pipeline: 1\nroutes: []\n")
    done = bare("penstock", *words)
    assert done.returncode == 2, done.stderr
    assert "error[PK003]" in done.stderr
    assert "pip install 'penstock[" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", NEED_NONE, ids=" ".join)
def test_other_verbs_need_no_extra(words: tuple[str, ...], bare: Run) -> None:
    done = bare("penstock", *words)
    assert done.returncode == 0, done.stderr


EVENT = '{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}}'


@pytest.mark.slow
def test_events_need_nothing_more(bare: Run, tmp_path: Path) -> None:
    event, record = tmp_path / "event.json", tmp_path / "record.json"
    event.write_text(EVENT)
    encoded = bare("penstock", "event", "encode", str(event))
    assert encoded.returncode == 0, encoded.stderr
    record.write_text(encoded.stdout)
    checked = bare("penstock", "event", "check", str(record))
    assert checked.returncode == 0, checked.stderr
    assert bare("penstock", "event", "check", str(event)).returncode == 1, "an event is no record"


@pytest.mark.slow
def test_the_base_install_is_small(bare: Run) -> None:
    done = bare("python", "-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
    names = {row["name"].lower() for row in json.loads(done.stdout)}
    assert names.isdisjoint({"pyspark", "numpy", "httpx", "confluent-kafka", "starlette"})
