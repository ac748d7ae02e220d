"""Projects for jobs on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from directed import Directed
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
    end(made)


@pytest.fixture
def directed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Directed]]:
    """Make projects of a direction, on the brokers of this run or on those that are given."""
    made: list[Project] = []

    def make(direction: str, **servers: Any) -> Directed:
        names = [name for name in ("kafka", "pulsar") if name[0].upper() in direction]
        own = {name: servers.get(name) or request.getfixturevalue(name) for name in names}
        folder = tmp_path / str(len(made))
        folder.mkdir()
        found = Directed.of(direction, folder, **own)
        made.append(found.project)
        return found

    yield make
    end(made)


def end(projects: Iterable[Project]) -> None:
    for running in (each for project in projects for each in project.processes):
        running.process.kill()
        running.process.wait(30)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a direction so that `-k` can choose it."""
    return val.replace("->", "-") if isinstance(val, str) and "->" in val else None
