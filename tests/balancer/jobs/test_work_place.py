"""A folder for unfinished work: one balancer's at a time, and the same after a restart."""

from pathlib import Path

import pytest

from arriero.balancer.jobs import work_place
from arriero.balancer.jobs.work_place import WorkPlace


def test_two_never_share_one(tmp_path: Path) -> None:
    with WorkPlace.take(tmp_path) as one, WorkPlace.take(tmp_path) as two:
        assert one.folder != two.folder
        assert one.name != two.name


def test_the_next_process_takes_it_up(tmp_path: Path) -> None:
    with WorkPlace.take(tmp_path) as one:
        former = one.name, one.folder
    with WorkPlace.take(tmp_path) as again:
        assert (again.name, again.folder) == former


def test_a_name_that_was_not_written_is_made_anew(tmp_path: Path) -> None:
    with WorkPlace.take(tmp_path) as one:
        (one.folder / "name").write_text("")
    with WorkPlace.take(tmp_path) as again:
        assert again.name.startswith("runner-")


def test_there_is_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_place, "MAX_RUNNERS", 1)
    with WorkPlace.take(tmp_path), pytest.raises(OSError, match="1 balancers use"):
        WorkPlace.take(tmp_path)
