"""Besides the contract (`test_port`): names of any kind, and a bounded table."""

import pytest

from arriero.balancer.store import sql_cordons
from arriero.balancer.store.records import SavedCordon
from tests.balancer.store.conftest import OpenSql


async def test_a_name_may_have_any_characters(opened_sql: OpenSql) -> None:
    store = await opened_sql()
    await store.save_cordon(SavedCordon("a\0", "bad\0 \ud800 name", 1.0))
    [cordon] = await store.load_cordons()
    assert cordon.name.startswith("bad\N{REPLACEMENT CHARACTER}")
    await store.forget_cordon("a\0")
    assert await store.load_cordons() == []


async def test_a_deadline_is_kept_until_it_is_taken_back(opened_sql: OpenSql) -> None:
    store = await opened_sql()
    for deadline in (9.0, None):
        await store.save_cordon(SavedCordon("a", "host", 1.0, deadline))
        assert [each.deadline for each in await store.load_cordons()] == [deadline]


async def test_the_oldest_are_deleted(opened_sql: OpenSql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_cordons, "_NEWEST", sql_cordons._NEWEST.limit(2))
    store = await opened_sql()
    for since, agent in ((2.0, "b"), (1.0, "a"), (3.0, "c")):
        await store.save_cordon(SavedCordon(agent, "host", since))
    monkeypatch.undo()
    assert [each.agent for each in await store.load_cordons()] == ["b", "c"]
