"""SQLite's file is deleted, moved or replaced while a balancer has it, beside a stream."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import Fleet, until
from integration_tests.nobody_else_notices.bystander import bystander

NOTICED = 20.0
"""Seconds. The history is written every five; the rest is for a busy machine."""

WISHED = {"name": "wished", "source": "file:///nowhere.gguf", "agents": {"labels": {"gpu": "yes"}}}


class Database:
    """The file of a store, and what befalls it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._moved = path.with_name("moved")

    def delete(self) -> None:
        self.path.unlink()

    def move(self) -> None:
        self.path.rename(self._moved)

    def move_back(self) -> None:
        self._moved.rename(self.path)

    def replace(self) -> None:
        self.move()  # and not deleted, so that no other file gets its inode
        self.path.touch()

    @property
    def num_bytes(self) -> int | None:
        """`None` where there is no file."""
        return self.path.stat().st_size if self.path.exists() else None


@pytest.fixture
async def database(fleet: Fleet, tmp_path: Path) -> Database:
    """That of a balancer that has an agent and a saved desired state."""
    database = Database(tmp_path / "state.db")
    await fleet.start_balancer(state=f"sqlite:///{database.path}")
    await fleet.start_agent(context_size=LONG_CONTEXT)
    assert (await put_state(fleet, WISHED))[0] == 200
    return database


async def put_state(fleet: Fleet, *models: dict[str, Any]) -> tuple[int, Any]:
    url = f"{fleet.management}/api/v1/desired-state"
    async with fleet.http.put(url, json={"models": models}) as response:
        return response.status, await response.json()


async def make_key(fleet: Fleet) -> tuple[int, Any]:
    body = {"name": "ana", "role": "admin"}
    async with fleet.http.post(f"{fleet.management}/api/v1/keys", json=body) as response:
        return response.status, await response.json()


async def get(fleet: Fleet, path: str) -> Any:
    async with fleet.http.get(f"{fleet.management}{path}") as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def until_health(fleet: Fleet, store: str) -> dict[str, str]:
    found: dict[str, str] = {}

    async def says_so() -> bool:
        found.update(await get(fleet, "/health"))
        return found["store"] == store

    await until(says_so, deadline=NOTICED)
    return found


GONE = (
    "the database file state.db is gone; move it back, or restart the balancer with a backup of it"
)
REPLACED = (
    "the database file state.db was replaced by another one; restart the balancer to use that"
)


@pytest.mark.parametrize(
    ("befalls", "problem", "num_bytes"),
    [(Database.delete, GONE, None), (Database.replace, REPLACED, 0)],
    ids=["deleted", "replaced"],
)
async def test_a_file_that_is_not_the_one_that_was_opened_is_not_written(
    fleet: Fleet, database: Database, befalls: Any, problem: str, num_bytes: int | None
) -> None:
    async with bystander(fleet) as stream:
        befalls(database)
        assert (await until_health(fleet, "away"))["store_problem"] == problem
        for status, answer in (await put_state(fleet), await make_key(fleet)):
            assert (status, answer["error"]["code"]) == (503, "store_unavailable")
            assert problem in answer["error"]["message"]
            assert answer["error"]["retryable"]
        assert await get(fleet, "/api/v1/keys") == {"keys": []}, "the key was not made"
        kept = [model["name"] for model in (await get(fleet, "/api/v1/desired-state"))["models"]]
        assert kept == ["wished"], "as it was saved"
        [issue] = (await get(fleet, "/api/v1/about"))["issues"]
        assert (issue["code"], issue["message"]) == ("store_away", f"the store is away: {problem}")
        await fleet.until_metrics(arriero_store_away=1)
        await stream.until_more()
    assert any(problem in line for line in fleet.balancer.stderr)
    assert database.num_bytes == num_bytes, "nothing was made or written there"


async def test_a_file_that_is_moved_back_goes_on(fleet: Fleet, database: Database) -> None:
    async with bystander(fleet):
        database.move()
        await until_health(fleet, "away")
        database.move_back()
        await until_health(fleet, "ok")
        assert (await get(fleet, "/api/v1/about"))["issues"] == []
        assert (await put_state(fleet))[0] == 200
        assert (await make_key(fleet))[0] in (200, 201)
    assert any("the store" in line and "is back" in line for line in fleet.balancer.stderr)


async def test_a_store_that_loses_its_keys_lets_nobody_in(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await fleet.start_balancer(state=f"sqlite:///{path}")
    status, made = await make_key(fleet)
    assert status == 201
    shown = {"Authorization": f"Bearer {made['key']}"}

    async def statuses() -> list[int]:
        url = f"{fleet.management}/api/v1/agents"
        async with fleet.http.get(url, headers=shown) as known, fleet.http.get(url) as unknown:
            return [known.status, unknown.status]

    async def are_refused() -> bool:
        return await statuses() == [401, 401]

    assert await statuses() == [200, 401]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM access_keys")
    await until(are_refused)
    assert (await make_key(fleet))[0] == 401
    await fleet.balancer.until_line(
        fleet.balancer.stderr, "the access keys are gone from the store"
    )
    assert await fleet.balancer.terminate() == 0

    await fleet.start_balancer(state=f"sqlite:///{path}")
    assert await statuses() == [401, 401], "after a restart, too"
    await fleet.balancer.terminate()
    await fleet.start_balancer(state=f"sqlite:///{path}", without_keys=True)
    assert await statuses() == [200, 200]
    await fleet.balancer.terminate()
    await fleet.start_balancer(state=f"sqlite:///{path}")
    assert await statuses() == [200, 200], "it was told once"
