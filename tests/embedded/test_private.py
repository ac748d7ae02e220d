"""Temporary folders go with the process, also if it ends at once; private files are private."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penstock.embedded.private import (
    make_folder,
    remove_folder,
    remove_folders,
    temporary_folder,
    write_private,
)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_folder_is_removed_at_the_end(tmp_path: Path) -> None:
    with temporary_folder("penstock-x-") as folder:
        write_private(folder / "token", b"secret")
        assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_all_folders_are_removed_by_who_ends_at_once(tmp_path: Path) -> None:
    write_private(make_folder("penstock-x-") / "token", b"secret")
    with temporary_folder("penstock-y-"):
        remove_folders()
        assert list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else_stays(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    remove_folder(other)
    assert list(tmp_path.iterdir()) == [other]
