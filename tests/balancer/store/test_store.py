"""One store, in memory, in a file and at a server: each keeps the same contract."""

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from arriero.balancer.access.key_service import saved
from arriero.balancer.cluster.notifications import Changed
from arriero.balancer.store import store as stores
from arriero.balancer.store.database import engine_of, notify_changed
from arriero.balancer.store.history_writer import HistoryWriter
from arriero.balancer.store.port import KeyConflict, RevisionConflict, StoreAway, StoreRefused
from arriero.balancer.store.records import (
    Persist,
    SavedCordon,
    SavedKey,
    SavedState,
    StepRange,
)
from arriero.balancer.store.store import Store, open_store
from arriero.balancer.store.url import parse_store_url
from tests.balancer.access.builders import record, secret
from tests.balancer.store.conftest import OpenStore

from .postgres import PASSWORD, PostgresServer
from .test_history_writer import ending, step


@pytest.fixture
async def store(opened: OpenStore) -> Store:
    return await opened()


async def test_nothing_is_saved_at_first(store: Store) -> None:
    assert await store.load_desired_state() is None


async def test_what_was_saved_is_there_for_whoever_opens_it_next(opened: OpenStore) -> None:
    store = await opened()
    await store.save_desired_state(Persist(0, '{"models": []}'))
    await store.save_desired_state(Persist(1, '{"models": ["ñ 🦙 \\u0000"]}'))
    assert await (await opened()).load_desired_state() == SavedState(
        2, '{"models": ["ñ 🦙 \\u0000"]}'
    )


@pytest.mark.parametrize("expected", [0, 2])
async def test_a_save_over_another_revision_is_a_conflict_and_changes_nothing(
    store: Store, expected: int
) -> None:
    await store.save_desired_state(Persist(0, "mine"))
    with pytest.raises(RevisionConflict) as conflict:
        await store.save_desired_state(Persist(expected, "another's"))
    assert conflict.value.current == SavedState(1, "mine")
    assert await store.load_desired_state() == SavedState(1, "mine")


async def test_a_save_where_nothing_is_yet_expects_revision_0(store: Store) -> None:
    with pytest.raises(RevisionConflict, match="the saved revision is 0") as conflict:
        await store.save_desired_state(Persist(1, "state"))
    assert conflict.value.current is None
    assert await store.load_desired_state() is None


async def test_the_same_save_again_is_well(store: Store) -> None:
    """As after a connection that broke before the confirmation came."""
    for _ in range(2):
        await store.save_desired_state(Persist(0, "state"))
    assert await store.load_desired_state() == SavedState(1, "state")


async def test_of_those_who_compete_for_a_revision_one_succeeds(opened: OpenStore) -> None:
    stores = [await opened() for _ in range(4)]
    for revision in range(5):
        results = await asyncio.gather(
            *(
                each.save_desired_state(Persist(revision, f"{revision} by {number}"))
                for number, each in enumerate(stores)
            ),
            return_exceptions=True,
        )
        [winner] = [number for number, result in enumerate(results) if result is None]
        lost = [result for result in results if isinstance(result, RevisionConflict)]
        assert len(lost) == len(stores) - 1
        assert await stores[0].load_desired_state() == SavedState(
            revision + 1, f"{revision} by {winner}"
        )


# ---- access keys

KEY = SavedKey(
    name="ci",
    revision=1,
    digest="d1",
    role="inference",
    limits='{"max_tokens":1}',
    labels="null",
    created_at=1.5,
)
SECOND = replace(KEY, revision=2, digest="d2", expires_at=9.25, rotated_at=2.0)


async def test_keys_are_there_for_whoever_opens_it_next(opened: OpenStore) -> None:
    store = await opened()
    assert await store.load_keys() == []
    other = replace(KEY, name="a", digest="d9")
    for key in (KEY, other, SECOND):
        await store.save_key(key)
    assert await (await opened()).load_keys() == [other, SECOND]


async def test_a_key_over_another_revision_is_a_conflict(store: Store) -> None:
    await store.save_key(KEY)
    for late in (replace(KEY, digest="x"), replace(KEY, revision=3), replace(KEY, revision=4)):
        with pytest.raises(KeyConflict) as conflict:
            await store.save_key(late)
        assert conflict.value.current == KEY
    with pytest.raises(KeyConflict) as conflict:
        await store.save_key(replace(KEY, name="b", revision=2))
    assert conflict.value.current is None
    assert await store.load_keys() == [KEY]


async def test_the_same_key_again_is_well(store: Store) -> None:
    for key in (KEY, KEY, SECOND, SECOND):
        await store.save_key(key)
    assert await store.load_keys() == [SECOND]


async def test_a_key_is_forgotten_at_its_revision_only(store: Store) -> None:
    await store.save_key(KEY)
    await store.save_key(SECOND)
    with pytest.raises(KeyConflict):
        await store.forget_key("ci", 1)
    await store.forget_key("ci", 2)
    await store.forget_key("ci", 2)
    assert await store.load_keys() == []


async def test_of_those_who_make_one_key_one_succeeds(opened: OpenStore) -> None:
    stores = [await opened() for _ in range(4)]
    for revision in (1, 2, 3):
        results = await asyncio.gather(
            *(
                each.save_key(replace(KEY, revision=revision, digest=f"{revision} {number}"))
                for number, each in enumerate(stores)
            ),
            return_exceptions=True,
        )
        [winner] = [number for number, result in enumerate(results) if result is None]
        assert sum(isinstance(result, KeyConflict) for result in results) == len(stores) - 1
        [saved] = await stores[0].load_keys()
        assert saved.digest == f"{revision} {winner}"


# ---- cordons


async def test_cordons_are_there_for_whoever_opens_it_next(opened: OpenStore) -> None:
    store = await opened()
    assert await store.load_cordons() == []
    first, second = SavedCordon("a", "host", 1.5), SavedCordon("b", "host", 2.5)
    for cordon in (second, first, replace(second, since=3.5)):
        await store.save_cordon(cordon)
    again = await opened()
    assert await again.load_cordons() == [first, replace(second, since=3.5)]
    for _ in range(2):
        await store.forget_cordon("a")
    assert await again.load_cordons() == [replace(second, since=3.5)]


async def test_only_the_digest_is_in_the_database(opened_sql: OpenStore, url: str) -> None:
    await (await opened_sql()).save_key(saved(record("ci", 1)))
    engine = engine_of(parse_store_url(url))
    async with engine.begin() as connection:
        rows = (await connection.execute(text("SELECT * FROM access_keys"))).all()
    await engine.dispose()
    assert record("ci", 1).digest in str(rows)
    assert secret(1) not in str(rows)


async def test_a_name_may_have_any_characters(opened_sql: OpenStore) -> None:
    store = await opened_sql()
    await store.save_cordon(SavedCordon("a\0", "bad\0 \ud800 name", 1.0))
    [cordon] = await store.load_cordons()
    assert cordon.name.startswith("bad\N{REPLACEMENT CHARACTER}")
    await store.forget_cordon("a\0")
    assert await store.load_cordons() == []


async def test_a_deadline_is_kept_until_it_is_taken_back(opened_sql: OpenStore) -> None:
    store = await opened_sql()
    for deadline in (9.0, None):
        await store.save_cordon(SavedCordon("a", "host", 1.0, deadline))
        assert [each.deadline for each in await store.load_cordons()] == [deadline]


async def test_the_oldest_are_deleted(
    opened_sql: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_NEWEST_CORDONS", stores._NEWEST_CORDONS.limit(2))
    store = await opened_sql()
    for since, agent in ((2.0, "b"), (1.0, "a"), (3.0, "c")):
        await store.save_cordon(SavedCordon(agent, "host", since))
    monkeypatch.undo()
    assert [each.agent for each in await store.load_cordons()] == ["b", "c"]


async def refusal(url: str) -> str:
    with pytest.raises(StoreRefused) as refused:
        await open_store(parse_store_url(url))
    said = str(refused.value)
    assert "\n" not in said
    return said


async def test_memory_lasts_as_long_as_the_store() -> None:
    for _ in range(2):
        store = await open_store(parse_store_url("memory://"))
        assert not store.is_lasting
        assert await store.load_desired_state() is None
        await store.save_desired_state(Persist(0, "state"))
        await store.close()


async def test_others_last(empty_url: str) -> None:
    store = await open_store(parse_store_url(empty_url))
    assert store.is_lasting
    await store.close()


async def test_sqlite_makes_its_file_and_writes_ahead(tmp_path: Path) -> None:
    store = await open_store(parse_store_url(f"sqlite:///{tmp_path}/state.db"))
    await store.save_desired_state(Persist(0, "state"))
    assert (tmp_path / "state.db-wal").exists()
    await store.close()


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


async def test_a_server_that_ends_and_comes_back(postgres: PostgresServer) -> None:
    """Writes wait meanwhile, and are there in the end."""
    store = Store(parse_store_url(postgres.database()))
    await store.open()
    writer = HistoryWriter(store)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(writer.run())
        await asyncio.to_thread(postgres.stop)
        with pytest.raises(StoreAway):
            await store.load_desired_state()
        writer.append([step(1)], [ending("r")])
        assert not await writer.flush(0.3)
        assert writer.status().is_away
        await asyncio.to_thread(postgres.start)
        assert await writer.flush(20)
        running.cancel()
    assert await store.history.load_steps(StepRange(1, 0)) == [step(1)]
    await store.close()


async def test_who_is_cancelled_in_a_transaction_is_cancelled(tmp_path: Path) -> None:
    store = Store(parse_store_url(f"sqlite:///{tmp_path}/state.db"))
    told: list[Changed] = []
    store.database.on_notifications = told.extend
    await store.open()
    is_inside = asyncio.Event()

    async def write() -> None:
        async with store.database.transaction() as connection:
            await notify_changed(connection, "keys")
            is_inside.set()
            await connection.execute(text("SELECT 1"))
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await is_inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with store.database.transaction() as connection:
        await notify_changed(connection, "cordons")
    await store.close()
    assert told == [Changed("cordons")]
