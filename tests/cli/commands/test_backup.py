import argparse
import json
from pathlib import Path

import pytest

from arriero.balancer.jobs.files_place import FilesPlace
from arriero.balancer.store.records import Persist
from arriero.balancer.store.store import open_store
from arriero.balancer.store.url import parse_store_url
from arriero.cli.arguments import UsageError
from arriero.cli.commands import restore
from arriero.cli.commands.backup import main, places_of


async def filled(database: Path) -> None:
    store = await open_store(parse_store_url(f"sqlite:///{database}"))
    await store.save_desired_state(Persist(0, "state"))
    await store.close()


async def test_a_store_is_backed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await filled(tmp_path / "a.db")
    target = tmp_path / "b.tar"
    argv = [str(target), "--state", f"sqlite:///{tmp_path}/a.db"]
    assert main(argv) == 0
    assert f"{target}: the store and 0 files" in capsys.readouterr().out
    assert main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_files"] == 0
    assert main([str(target), "--state", f"sqlite:///{tmp_path}/none.db"]) == 2
    assert "there is no database" in capsys.readouterr().err


def test_files_lie_beside_the_store() -> None:
    arguments = argparse.Namespace(state="sqlite:////a/b.db", files=None)
    assert places_of(arguments) == (Path("/a/b.db"), FilesPlace(Path("/a/b.db-files")))
    arguments.files = "/c"
    assert places_of(arguments)[1] == FilesPlace(Path("/c"))
    arguments.state = "postgresql://h/d"
    assert places_of(arguments) == (None, FilesPlace(Path("/c")))


def test_files_beside_postgresql(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`pg_dump` and `pg_restore` do the rest; the database is not even asked."""
    (tmp_path / "a/files").mkdir(parents=True)
    (tmp_path / "a/files/file-1").write_bytes(b"question")
    target, state = str(tmp_path / "b.tar"), ("--state", "postgresql://nowhere.invalid/d")
    assert main([target, *state, "--files", str(tmp_path / "a")]) == 0
    assert f"{target}: 1 files" in capsys.readouterr().out
    assert restore.main([target, *state, "--files", str(tmp_path / "b")]) == 0
    assert f"{tmp_path}/b: as it was at" in capsys.readouterr().out
    assert (tmp_path / "b/files/file-1").read_bytes() == b"question"


@pytest.mark.parametrize(
    ("state", "why"),
    [("memory://", "stores nothing"), ("postgresql://h/d", "pg_dump"), ("x", "--state: must")],
)
def test_other_stores(state: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        places_of(argparse.Namespace(state=state, files=None))


def test_files_in_a_bucket() -> None:
    arguments = argparse.Namespace(state="postgresql://h/d", files="s3://bucket/x")
    assert places_of(arguments) == (None, FilesPlace(url="s3://bucket/x"))
    arguments.files = "s3://AKIA:secret@bucket/x"
    with pytest.raises(UsageError, match=r"^--files: .*without credentials") as error:
        places_of(arguments)
    assert "AKIA" not in str(error.value)
