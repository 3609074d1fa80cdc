"""What a balancer is told at its start when it cannot use its store: one sentence, no password."""

import os
import threading
from pathlib import Path

import pytest

from arriero.balancer.store.memory import MemoryStore
from arriero.balancer.store.open import open_store
from arriero.balancer.store.port import StoreRefused
from arriero.balancer.store.records import EndingFilter, Persist
from arriero.balancer.store.url import parse_store_url

from .postgres import PASSWORD, PostgresServer


async def refusal(url: str) -> str:
    with pytest.raises(StoreRefused) as refused:
        await open_store(parse_store_url(url))
    said = str(refused.value)
    assert "\n" not in said
    return said


async def test_memory_keeps_no_history() -> None:
    opened = await open_store(parse_store_url("memory://"))
    assert isinstance(opened.state, MemoryStore)
    assert opened.history is None


async def test_others_do(url: str) -> None:
    opened = await open_store(parse_store_url(url))
    assert opened.history is not None
    assert await opened.history.find_endings(EndingFilter()) == ([], 0)
    await opened.state.close()


async def test_sqlite_makes_its_file_and_writes_ahead(tmp_path: Path) -> None:
    opened = await open_store(parse_store_url(f"sqlite:///{tmp_path}/state.db"))
    await opened.state.save_desired_state(Persist(0, "state"))
    assert (tmp_path / "state.db-wal").exists()
    await opened.state.close()


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    said = await refusal(f"sqlite:///{tmp_path}/none/state.db")
    assert said == f"there is no folder {tmp_path}/none; make it first"


async def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    assert await refusal(f"sqlite:///{tmp_path}") == f"{tmp_path} is a folder; name a file in it"


async def test_a_file_of_something_else(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database " * 100)
    said = await refusal(f"sqlite:///{file}")
    assert said == f"cannot use sqlite:///{file}: file is not a database"
    assert file.read_text() == "not a database " * 100


def unwritable(folder: Path) -> None:
    folder.chmod(0o500)


async def test_no_thread_is_left_of_a_connection_that_failed(tmp_path: Path) -> None:
    """It would tell a loop that is closed that it ends."""
    file = tmp_path / "file"
    file.symlink_to(tmp_path / "nowhere" / "state.db")
    before = set(threading.enumerate())
    for _ in range(5):
        await refusal(f"sqlite:///{file}")
        left = {each.name for each in set(threading.enumerate()) - before}
        assert not {name for name in left if "_connection_worker" in name}


async def test_what_may_not_be_written(tmp_path: Path) -> None:
    if os.geteuid() == 0:  # root may write everywhere but in such places
        assert "unable to open database file" in await refusal("sqlite:////proc/state.db")
        return
    unwritable(tmp_path)
    assert await refusal(f"sqlite:///{tmp_path}/state.db") == (
        f"{tmp_path}: permission denied; it must be writable"
    )


async def test_a_wrong_password(postgres: PostgresServer) -> None:
    said = await refusal(postgres.url("postgres", password="wrong-horse"))
    assert said.endswith('password authentication failed for user "arriero"')
    assert "wrong-horse" not in said


async def test_a_database_that_is_not_there(postgres: PostgresServer) -> None:
    said = await refusal(postgres.url("nowhere"))
    assert said.endswith('database "nowhere" does not exist')
    assert PASSWORD not in said


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    said = await refusal(f"postgresql://ana:{PASSWORD}@127.0.0.1:1/arriero")
    assert said.startswith("cannot use postgresql://ana@127.0.0.1:1/arriero: ")
    assert PASSWORD not in said
    assert "refused" in said or "Connect call failed" in said
    said = await refusal(f"postgresql://ana@/arriero?host={tmp_path}")
    assert said.startswith(f"cannot use postgresql://ana@{tmp_path}/arriero: ")
