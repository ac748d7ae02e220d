"""Projects for jobs on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job_project import Project

from penstock.embedded.kafka import Kafka


@pytest.fixture
def project(tmp_path: Path, kafka: Kafka) -> Iterator[Callable[..., Project]]:
    """Make projects on the Kafka of this run; none of their processes outlives the test."""
    made: list[Project] = []

    def make(**more: Any) -> Project:
        made.append(Project(**{"folder": tmp_path, "servers": {"kafka": kafka}, **more}))
        return made[-1]

    yield make
    for running in (each for project in made for each in project.processes):
        running.process.kill()
        running.process.wait(30)
