"""Logging in at one balancer and out at another: what counts is what their store has."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest

from arriero.balancer.access.access import Access
from arriero.balancer.access.identity import Identity
from arriero.balancer.access.session_service import SessionService, csrf_of
from arriero.balancer.access.sessions import LIFETIME
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import SavedSession
from arriero.shared.errors import Unauthorized
from tests.balancer.access.builders import record, secret
from tests.balancer.stores import MemoryStore

ADA = record("ada", 1, "admin")


class SharedStore(MemoryStore):
    """One of several balancers; the test has it go away."""

    is_away = False
    num_loads = 0

    def _look(self) -> None:
        if self.is_away:
            raise StoreAway("no answer")

    async def load_sessions(self) -> list[SavedSession]:
        self.num_loads += 1
        self._look()
        return await super().load_sessions()

    async def save_session(self, session: SavedSession, now: float) -> None:
        self._look()
        await super().save_session(session, now)

    async def forget_sessions(self, ids: Sequence[str]) -> None:
        self._look()
        await super().forget_sessions(ids)


class Balancer:
    def __init__(self, store: SharedStore) -> None:
        self.time = 1000.0
        self.access = Access([ADA], clock=lambda: self.time)
        self.sessions = SessionService(self.access, store, clock=lambda: self.time)
        self.ended: list[str] = []
        self._watches = ExitStack()

    async def log_in(self) -> str:
        return (await self.sessions.open(ADA.identity))[0]

    async def who(self, token: str) -> Identity | None:
        found = await self.sessions.find(token)
        return None if found is None else found[1]

    def watch(self, holder: Identity) -> None:
        self._watches.enter_context(self.access.watch(holder, partial(self._end, holder)))

    def _end(self, holder: Identity, _error: Unauthorized) -> None:
        self.ended.append(holder.session)


@pytest.fixture
def store(closes_stores: None) -> SharedStore:
    return SharedStore()


async def test_who_logs_in_at_one_is_logged_in_at_the_others_at_once(store: SharedStore) -> None:
    one, two = Balancer(store), Balancer(store)
    token = await one.log_in()
    holder = await two.who(token)
    assert holder == ADA.identity and holder.session
    assert token not in repr(await store.load_sessions())
    assert csrf_of(token) not in repr(await store.load_sessions())


async def test_logging_out_ends_what_the_session_opened_at_all(store: SharedStore) -> None:
    one, two = Balancer(store), Balancer(store)
    token, other = await one.log_in(), await one.log_in()
    for each in (one, two):
        for shown in (token, other):
            holder = await each.who(shown)
            assert holder is not None
            each.watch(holder)
    await two.sessions.close(token)
    assert await one.sessions.reconcile()
    assert len(one.ended) == len(two.ended) == 1
    for each in (one, two):
        assert await each.who(token) is None and await each.who(other) is not None


async def test_an_end_by_time_ends_it_too(store: SharedStore) -> None:
    one = Balancer(store)
    holder = await one.who(await one.log_in())
    assert holder is not None
    one.watch(holder)
    one.time += LIFETIME
    await one.sessions.reconcile()
    assert one.ended == [holder.session]
    await one.log_in()
    assert len(await store.load_sessions()) == 1, "what has expired is deleted"


async def test_a_session_has_the_role_of_its_key_now_and_ends_with_it(store: SharedStore) -> None:
    one = Balancer(store)
    token = await one.log_in()
    one.access.put(replace(ADA, role="viewer"))
    holder = await one.who(token)
    assert holder is not None and holder.role == "viewer"
    one.access.put(replace(ADA, revoked_at=1000.0))
    assert await one.who(token) is None and len(one.sessions) == 0
    one.access.put(record("ada", 2, "admin"))
    assert await one.who(token) is None, "another key of its name"


async def test_without_the_store_people_log_in_and_out_here(store: SharedStore) -> None:
    one, two = Balancer(store), Balancer(store)
    before = await one.log_in()
    store.is_away = True
    token = await one.log_in()
    assert await one.who(token) is not None
    await one.sessions.close(before)
    assert await one.who(before) is None
    assert not await one.sessions.reconcile()
    store.is_away = False
    assert await two.who(before) is not None, "it could not be told"
    assert await one.sessions.reconcile() and await two.sessions.reconcile()
    assert await one.who(before) is None and await two.who(before) is None
    assert await one.who(token) is not None


async def test_what_is_no_token_does_not_ask_the_store(store: SharedStore) -> None:
    one = Balancer(store)
    assert await one.who("") is None and await one.who(secret(1)) is None
    assert store.num_loads == 0
