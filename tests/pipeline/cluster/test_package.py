"""What goes into the archive of a pipeline: Penstock, the modules of the functions, and what they import."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.errors import PipelineError
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.package import REQUIREMENTS, make_package, modules_of

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


def test_a_module_that_is_installed_is_not_packed(tmp_path: Path) -> None:
    assert modules_of(["json:dumps"], tmp_path) == []


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
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    wanted = {name.replace("-", "_") for name in REQUIREMENTS}
    brought = {"dateutil", "llvmlite", "penstock", "pytz", "setuptools", "six", "tzdata"}
    known = importlib.metadata.packages_distributions()
    third = {name for name in result.stdout.split() if name in known and not name.startswith("_")}
    assert third - wanted - brought == set()
