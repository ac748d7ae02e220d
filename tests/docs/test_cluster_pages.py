"""The pages about cluster managers show the command lines that `penstock package` prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.cli.package import _lines
from penstock.embedded.artifact import read_lock
from penstock.pipeline.spark.submission import Application

DOCS = Path(__file__).parents[2] / "docs" / "pipeline"


@pytest.mark.parametrize("manager", ["standalone", "YARN", "Kubernetes"])
def test_the_command_line_is_the_one_that_is_printed(
    manager: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("job")
    (folder / "jars").mkdir(parents=True)
    for artifact in read_lock("spark"):
        (folder / "jars" / artifact.file_name).touch()
    line = _lines(Application(folder=folder, name="pipeline", python="3.11"))[manager]
    page = (DOCS / f"cluster-{manager.lower()}.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^\$ (spark-submit .*?job/main\.py)$", page, re.M | re.S)
    assert shown == line
