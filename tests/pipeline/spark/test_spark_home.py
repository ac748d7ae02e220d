"""Where local Spark is started from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.pipeline.spark.spark_home import lean_home, lean_spark


@pytest.fixture
def without_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))


@pytest.mark.usefixtures("without_home")
def test_the_home_has_what_java_needs_and_no_python() -> None:
    home = lean_home()
    assert home is not None
    assert home == lean_home()
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert os.access(home / "bin" / "spark-submit", os.X_OK)
    assert not (home / "python").exists()


@pytest.mark.usefixtures("without_home")
def test_the_environment_is_as_before() -> None:
    with lean_spark():
        assert os.environ["SPARK_HOME"] == str(lean_home())
    assert "SPARK_HOME" not in os.environ


def test_a_home_of_the_user_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with lean_spark():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


@pytest.mark.usefixtures("without_home")
def test_where_no_links_can_be_made_the_package_is_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "spark").write_text("a file where a folder should be")
    with lean_spark():
        assert "SPARK_HOME" not in os.environ
