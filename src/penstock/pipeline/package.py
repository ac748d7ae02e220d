"""What a cluster must be sent to run a pipeline: Penstock itself and the modules of the user, in one archive.

No module of the user is imported: what a function needs is found by reading its imports, as far as they lie
in the folder of the pipeline. Libraries with compiled parts cannot travel in an archive; the workers' Python
has them (REQUIREMENTS). Kernels travel compiled: no worker spends its first half minute on them.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import penstock
from penstock.errors import PipelineError
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.plan.route import FunctionKey

__all__ = ["REQUIREMENTS", "Package", "functions_of", "make_package", "modules_of"]

REQUIREMENTS: Final = (
    "cramjam",
    "fastavro",
    "jiter",
    "jsonschema-rs",
    "numba",
    "numpy",
    "orjson",
    "pandas",
    "pyarrow",
)
"""What a worker's Python needs beside Spark's own modules; pandas is for Spark's Arrow."""

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


def make_package(pipeline: Pipeline, path: Path) -> Package:
    """Write the archive of a pipeline."""
    folder = Path(pipeline.path).absolute().parent
    modules = modules_of(functions_of(pipeline), folder)
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
    import penstock.pipeline.fused.task
    import penstock.pipeline.stage  # noqa: F401
    from penstock.wire.kernels.archive import COMPILED, compiled
    from penstock.wire.kernels.jit import kernels

    found = compiled(kernels().values())
    return {f"penstock/wire/kernels/{COMPILED}/{name}": data for name, data in found.items()}


def functions_of(pipeline: Pipeline) -> tuple[str, ...]:
    """Name the functions of the user that the routes call, as `module:function`."""
    applied = (route.document.apply.function for route in pipeline.routes if route.document.apply)
    keys = (route.plan.key.name for route in pipeline.routes if isinstance(route.plan.key, FunctionKey))
    return tuple(dict.fromkeys((*applied, *keys)))


def modules_of(functions: Sequence[str], folder: Path) -> list[Path]:
    """Find the files that functions need in a folder: their modules, whole packages, and what they import."""
    found: dict[Path, None] = {}
    waiting = [name.partition(":")[0] for name in functions]
    while waiting:
        for file in _sources(waiting.pop().partition(".")[0], folder):
            if file not in found:
                found[file] = None
                waiting += _imports(file)
    return sorted(found)


def _sources(name: str, folder: Path) -> Iterator[Path]:
    """Give the files of a module or package in the folder; none if it is not there."""
    module, package = folder / f"{name}.py", folder / name
    if package.is_dir():
        yield from _files(package)
    elif module.is_file():
        yield module


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
