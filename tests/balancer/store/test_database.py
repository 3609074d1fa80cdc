"""What was confirmed is there after kill -9, whole; and what drivers say, in one line."""

import asyncio
import shutil
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from arriero.balancer.store.database import Database, engine_of, notify_changed, reached, sentence
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import (
    MAX_ENDINGS,
    EndingFilter,
    Persist,
    SavedState,
    StepRange,
)
from arriero.balancer.store.store import Store
from arriero.balancer.store.url import StoreUrl, parse_store_url
from tests.balancer.store.conftest import OpenStore

from .committing import BATCH, document

ROUNDS = 2
URL = StoreUrl("postgresql", password="correct-horse", database="arriero")


async def killed_after(url: str, num_confirmed: int) -> int:
    """The last revision that a process confirmed before it was killed, a moment later."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.balancer.store.committing", url),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    lines = [await process.stdout.readline() for _ in range(num_confirmed)]
    process.kill()
    lines += (await process.stdout.read()).splitlines()
    await process.wait()
    assert all(lines), "it ended by itself"
    return int(lines[-1])


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_a_task_cancelled_twice_leaves_behind_is_waited_for(
    kind: Literal["memory", "sqlite"], tmp_path: Path
) -> None:
    """The second time, it gives up closing its connection, which still has the write lock.

    Its cursor, which has a row to come, has a lock too.
    """
    database = Database(StoreUrl(kind, location=str(tmp_path / "database")))
    entered, go_on = threading.Event(), threading.Event()

    def held() -> None:
        entered.set()
        go_on.wait()

    async def run(*statements: str) -> None:
        async with database.transaction() as connection:
            raw = (await connection.get_raw_connection()).driver_connection
            assert raw is not None
            await raw.create_function("held", 0, held)
            for statement in statements:
                await connection.execute(text(statement))

    await run("CREATE TABLE numbers (number INTEGER)")
    insert = "INSERT INTO numbers VALUES (1)"
    left = asyncio.create_task(run(insert, insert, "SELECT held() FROM numbers"))
    await asyncio.to_thread(entered.wait)
    while not left.done():
        left.cancel()
        await asyncio.sleep(0)
    following = asyncio.create_task(run(insert))
    try:
        done, _ = await asyncio.wait({following}, timeout=0.2)
        assert not done
    finally:
        go_on.set()
    await following
    await database.close()


async def test_a_transaction_that_outlasts_its_database_closes_its_connection() -> None:
    """As that of a task which is cancelled again while it ends: its end goes on without it."""
    database = Database(StoreUrl("memory"))
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def outlast() -> Any:
        async with database.transaction() as connection:
            entered.set()
            await go_on.wait()
            await connection.execute(text("SELECT 1"))
            return (await connection.get_raw_connection()).driver_connection

    outlasting = asyncio.create_task(outlast())
    await entered.wait()
    await database.close()
    go_on.set()
    raw = await outlasting
    with pytest.raises(ValueError, match="no active connection"):
        await raw.execute("SELECT 1")


@pytest.mark.timeout(60)
async def test_what_was_confirmed_survives_kill_9(empty_url: str) -> None:
    for number in range(ROUNDS):
        confirmed = await killed_after(empty_url, 1 + 7 * number)
        store = Store(parse_store_url(empty_url))
        await store.open()
        saved = await store.load_desired_state()
        assert saved is not None
        assert saved.revision >= confirmed
        assert saved.document == document(saved.revision)
        kept, _ = await store.history.find_endings(EndingFilter(limit=MAX_ENDINGS))
        endings = Counter(each.id.split("-")[0] for each in kept)
        steps = Counter(each.document for each in await store.history.load_steps(StepRange(1, 0)))
        assert set(endings.values()) == set(steps.values()) == {BATCH}
        assert endings.keys() == steps.keys()
        assert max(map(int, endings)) >= confirmed
        await store.close()


def test_a_driver_is_quoted_in_one_line_and_without_the_password() -> None:
    error = OperationalError("SELECT 1", {}, Exception("no correct-horse here\nHINT: none"))
    assert sentence(error, URL) == "no *** here"
    wrapped = "<class 'asyncpg.exceptions.CannotConnectNowError'>: the system is starting up"
    assert sentence(Exception(wrapped), URL) == "the system is starting up"
    assert sentence(TimeoutError(), URL) == "TimeoutError"


def test_what_no_retry_mends_is_not_away() -> None:
    with pytest.raises(ZeroDivisionError), reached(URL):
        raise ZeroDivisionError
    with pytest.raises(StoreAway, match="refused"), reached(URL):
        raise ConnectionRefusedError("refused")


class DatabaseOnDisk:
    """A store in a file, and what befalls the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = Store(parse_store_url(f"sqlite:///{quote(str(path))}"))

    def delete(self) -> None:
        self.path.unlink()

    def move(self) -> None:
        """Away, so that no other file gets its inode."""
        self.path.rename(self.path.with_name("moved"))

    def move_back(self) -> None:
        self.path.with_name("moved").rename(self.path)

    def make_another(self) -> None:
        self.path.touch()

    @property
    def num_bytes(self) -> int | None:
        """`None` where there is no file."""
        return self.path.stat().st_size if self.path.exists() else None


@pytest.fixture
async def on_disk(tmp_path: Path) -> AsyncIterator[DatabaseOnDisk]:
    on_disk = DatabaseOnDisk(tmp_path / "some store?#%.db")
    await on_disk.store.open()
    yield on_disk
    await on_disk.store.close()


STATE = Persist(0, "state")


async def test_a_file_that_is_gone_is_neither_used_nor_made_anew(on_disk: DatabaseOnDisk) -> None:
    on_disk.delete()
    for use in (on_disk.store.save_desired_state(STATE), on_disk.store.load_keys()):
        with pytest.raises(StoreAway, match=r"^the database file some store\?#%.db is gone; move"):
            await use
    assert on_disk.num_bytes is None


async def test_a_file_that_comes_back_goes_on(on_disk: DatabaseOnDisk) -> None:
    on_disk.move()
    with pytest.raises(StoreAway):
        await on_disk.store.save_desired_state(STATE)
    on_disk.move_back()
    await on_disk.store.save_desired_state(STATE)
    assert await on_disk.store.load_desired_state() == SavedState(1, "state")


async def test_another_file_in_its_place_is_left_alone(on_disk: DatabaseOnDisk) -> None:
    on_disk.move()
    on_disk.make_another()
    with pytest.raises(StoreAway, match="was replaced by another one; restart the balancer"):
        await on_disk.store.save_desired_state(STATE)
    assert on_disk.num_bytes == 0


async def test_a_folder_that_is_gone_is_a_file_that_is_gone(on_disk: DatabaseOnDisk) -> None:
    shutil.rmtree(on_disk.path.parent)
    with pytest.raises(StoreAway, match="is gone"):
        await on_disk.store.load_keys()


async def test_what_is_written_while_the_file_goes_is_not_confirmed(
    on_disk: DatabaseOnDisk,
) -> None:
    with pytest.raises(StoreAway, match="is gone"):
        async with on_disk.store.database.transaction():
            on_disk.delete()


async def test_a_connection_makes_no_file(tmp_path: Path) -> None:
    """Since it may be made anew at any time, after a write that was cut for example."""
    on_disk = DatabaseOnDisk(tmp_path / "none.db")
    engine = engine_of(parse_store_url(f"sqlite:///{on_disk.path}"))
    with pytest.raises(OperationalError, match="unable to open database file"):
        async with engine.connect():
            pass
    await engine.dispose()
    for thread in threading.enumerate():
        if "_connection_worker" in thread.name:  # it has to end before the loop does
            await asyncio.to_thread(thread.join, 5)
    assert on_disk.num_bytes is None


async def test_both_databases_take_it(opened_sql: OpenStore) -> None:
    store = await opened_sql()
    async with store.database.transaction() as connection:
        await notify_changed(connection, "keys")
