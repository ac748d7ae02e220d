"""A route to Pulsar on a Spark cluster of two workers: one is killed, and a package is submitted."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from directed import BATCH, Directed
from standalone import Standalone, environment_of, python_without_penstock, submit

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(900)]
Make = Callable[..., Directed]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("cluster"), workers=2, cores=1) as made:
        yield made


@pytest.mark.parametrize("direction", ["K->P", "P->P", "K->K+P"])
def test_a_worker_that_is_killed_writes_nothing_twice(
    directed: Make, cluster: Standalone, direction: str
) -> None:
    while len(cluster.workers) < 2:
        cluster.add_worker()
    made = directed(direction).create(4).write()
    made.send(10_000)
    words = ("--until-idle", "--idle", "8", "--max-offsets", "500", "--master", cluster.address)
    own = environment_of(made.project.folder)
    running = made.project.spawn("run", *words, "--worker-python", sys.executable, **own)
    running.until(BATCH, times=3)
    cluster.kill_worker()
    assert running.ended() == 0, running.told()
    made.assert_law()


@pytest.mark.parametrize("direction", ["K->P", "P->P"])
def test_a_package_writes_to_pulsar(
    directed: Make, cluster: Standalone, tmp_path: Path, direction: str
) -> None:
    """On machines that have the libraries, and no Penstock."""
    python = python_without_penstock(tmp_path / "bare")
    made = directed(direction).create().write("function", checkpoint=str(tmp_path / "checkpoints"))
    made.send(2000)
    folder = made.project.folder
    command = [sys.executable, "-m", "penstock.cli", "package", "--to", "job", "-o", "json", "--no-libraries"]
    packed = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment_of(folder),
    )
    assert packed.returncode == 0, packed.stderr
    line = json.loads(packed.stdout)["submit"]["standalone"].replace("spark://HOST:7077", cluster.address)
    words = shlex.split(re.sub(r"python3\.\d+\b", python, line).replace("\\\n", " "))
    for sent in (0, 500):
        made.send(sent)
        result = submit(folder, *words[1:], "--once", "-o", "json")
        assert result.returncode == 0, result.stderr
        made.assert_law()
