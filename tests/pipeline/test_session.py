"""penstock.pipeline.session: how Java is started, and what becomes of it if that is interrupted."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext, java_gateway

from penstock.pipeline import session


def test_java_is_killed_if_its_start_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "pid"
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {noted}.new && mv {noted}.new {noted}\nexec sleep 600\n")
    submit.chmod(0o755)

    def sleep(seconds: float) -> None:
        """Take the place of PySpark's wait for Java: Ctrl-C comes when Java has been started."""
        if noted.exists():
            raise KeyboardInterrupt

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(java_gateway, "time", SimpleNamespace(sleep=sleep))
    popen = vars(java_gateway)["Popen"]
    with pytest.raises(KeyboardInterrupt):
        session._launch_apart({})
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)
    assert vars(java_gateway)["Popen"] is popen
