"""A folder that ends with its process, or with the next one's start."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arriero.balancer.jobs.blobs.temporary_folder import (
    GRACE,
    LOCK,
    PREFIX,
    remove_left_behind,
    temporary_folder,
)

LATER = 2 * GRACE


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def left_behind(parent: Path, name: str = "one") -> Path:
    """The folder of a process that was killed."""
    folder = parent / f"{PREFIX}{name}"
    (folder / "work").mkdir(parents=True)
    (folder / LOCK).touch()
    return folder


def test_it_goes_at_the_end_with_what_is_in_it(parent: Path) -> None:
    with temporary_folder() as folder:
        assert folder.parent == parent
        (folder / "file").write_bytes(b"x")
    assert list(parent.iterdir()) == []


def test_what_a_killed_process_left_goes_at_the_next_start(parent: Path) -> None:
    folder = left_behind(parent)
    long_ago = time.time() - LATER
    os.utime(folder, (long_ago, long_ago))
    with temporary_folder() as own:
        assert list(parent.iterdir()) == [own]


def test_a_new_folder_is_left_alone(parent: Path) -> None:
    folder = left_behind(parent)
    with temporary_folder():
        assert folder.is_dir()


def test_a_folder_whose_process_lives_is_left_alone(parent: Path) -> None:
    with temporary_folder() as folder:
        code = (
            "import sys; from pathlib import Path;"
            "from arriero.balancer.jobs.blobs.temporary_folder import remove_left_behind;"
            "remove_left_behind(Path(sys.argv[1]), float('inf'))"
        )
        subprocess.run([sys.executable, "-c", code, str(parent)], check=True)
        assert folder.is_dir()


def test_what_is_no_such_folder_is_left_alone(parent: Path) -> None:
    elsewhere = left_behind(parent.parent / f"{parent.name}-elsewhere")
    (parent / f"{PREFIX}link").symlink_to(elsewhere, target_is_directory=True)
    (parent / f"{PREFIX}file").touch()
    (parent / f"{PREFIX}unlocked").mkdir()
    other = left_behind(parent, "of another user")
    (other / LOCK).unlink()
    (other / LOCK).symlink_to(elsewhere / LOCK)
    remove_left_behind(parent, float("inf"))
    assert elsewhere.is_dir() and other.is_dir()
    assert len(list(parent.iterdir())) == 4
