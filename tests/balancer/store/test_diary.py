"""The diary and the hosts: numbered, bounded, written twice without harm."""

from dataclasses import replace

import pytest

from arriero.balancer.store import diary
from arriero.balancer.store.records import DiaryEntry, SavedHost

from .conftest import OpenStore

HOST = SavedHost(
    name="box", state="here", since=1.0, first_seen=1.0, last_seen=2.0, document='{"cores":8}'
)


def entry(at: float, message: str = "it came") -> DiaryEntry:
    return DiaryEntry(at=at, kind="host_came", subject="box", message=message, by="a\0b")


async def test_entries_have_numbers_that_grow(opened: OpenStore) -> None:
    store = (await opened()).diary
    await store.write([entry(1.0), entry(2.0)], [])
    await store.write([entry(3.0)], [])
    found = await store.find(limit=10)
    assert [each.at for each in found] == [3.0, 2.0, 1.0]
    first = found[-1].number
    assert [each.number - first for each in found] == [2, 1, 0]
    assert found[0].by == "a\N{REPLACEMENT CHARACTER}b"
    assert [each.at for each in await store.find(since=2.0, limit=1)] == [3.0]
    following = await store.find(after=first, limit=1, oldest_first=True)
    assert [each.at for each in following] == [2.0]


async def test_older_ones_are_deleted(opened: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diary, "_OLDEST_KEPT", diary._NEWEST.offset(1).limit(1).scalar_subquery())
    store = (await opened()).diary
    await store.write([entry(1.0), entry(2.0), entry(3.0)], [])
    assert [each.at for each in await store.find(limit=10)] == [3.0, 2.0]


async def test_hosts_are_replaced_and_forgotten(opened: OpenStore) -> None:
    store = (await opened()).diary
    lost = replace(HOST, state="lost", last_seen=5.0)
    await store.write([], [HOST, replace(HOST, name="abc")])
    await store.write([], [lost])
    assert await store.load_hosts() == [replace(HOST, name="abc"), lost]
    assert await store.forget_host("box")
    assert not await store.forget_host("box")
    assert [each.name for each in await store.load_hosts()] == ["abc"]
