"""Sessions of balancers over one PostgreSQL: notifications, beats, and who leads."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import asyncpg
import pytest
from asyncpg.exceptions import InsufficientPrivilegeError

from arriero.balancer.cluster import postgres_peers as sessions
from arriero.balancer.cluster.notifications import (
    Answered,
    Asked,
    CancelRequest,
    Changed,
    Notification,
    encoded,
)
from arriero.balancer.cluster.peer_store import Beat, PeerSession
from arriero.balancer.cluster.peers import BEAT_INTERVAL
from arriero.balancer.cluster.postgres_peers import PostgresPeerStore
from arriero.balancer.store import migrate
from arriero.balancer.store.database import CHANNEL, notify_changed
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import Persist, SavedCordon, SavedKey
from arriero.balancer.store.store import Store
from arriero.balancer.store.url import parse_store_url
from tests.balancer.store.postgres import PostgresServer
from tests.waiting import HANGS

BEAT = Beat(run="run-a", name="a", version="1.0", waiting='{"m": [1, 2.0]}')


class Balancer:
    """One with a session of its own."""

    def __init__(self, url: str) -> None:
        self.url = parse_store_url(url)
        self.store = Store(self.url)
        self.peers = PostgresPeerStore(self.url, self.store.database)
        self.notifications: asyncio.Queue[Notification] = asyncio.Queue()
        self.lost = asyncio.Event()
        self.session: PeerSession

    async def meet(self) -> None:
        self.lost.clear()
        self.session = await self.peers.open_session(self.notifications.put_nowait, self.lost.set)

    async def hears(self) -> Notification:
        return await asyncio.wait_for(self.notifications.get(), HANGS)

    async def loses(self) -> None:
        await asyncio.wait_for(self.lost.wait(), HANGS)

    async def leads(self) -> int:
        """The epoch, once the server has noticed that the other session is gone."""
        async with asyncio.timeout(HANGS):
            while (epoch := await self.session.lead(0)) is None:
                continue
        return epoch


OpenStore = Callable[[], Awaitable[Balancer]]


@pytest.fixture
async def opened(postgres: PostgresServer) -> AsyncIterator[OpenStore]:
    """Opens another balancer over the same database."""
    url, balancers = postgres.database(), list[Balancer]()

    async def another() -> Balancer:
        balancer = Balancer(url)
        if not balancers:
            await balancer.store.open()
        balancers.append(balancer)
        await balancer.meet()
        return balancer

    yield another
    for each in balancers:
        each.session.close()
        await each.store.close()


async def test_every_change_is_told_to_all(opened: OpenStore) -> None:
    a, b = await opened(), await opened()
    key = SavedKey(
        name="ci", revision=1, digest="d", role="admin", limits="{}", labels="{}", created_at=1.0
    )
    await a.store.save_desired_state(Persist(0, "{}"))
    await a.store.save_key(key)
    await a.store.forget_key("ci", 1)
    await a.store.save_cordon(SavedCordon("id", "host", 1.0))
    await a.store.forget_cordon("id")
    await a.peers.left()
    changes = ("desired_state", "keys", "keys", "cordons", "cordons")
    expected = [*map(Changed, changes), Changed("peers")]  # type: ignore[arg-type]
    for each in (a, b):
        assert [await each.hears() for _ in expected] == expected


async def test_what_is_not_saved_is_not_told(opened: OpenStore) -> None:
    a = await opened()
    with pytest.raises(RuntimeError):
        async with a.store.database.transaction() as connection:
            await notify_changed(connection, "keys")
            raise RuntimeError
    await a.peers.left()
    assert await a.hears() == Changed("peers")


async def test_letters_are_read_once_by_those_they_are_for(opened: OpenStore) -> None:
    a, b = await opened(), await opened()
    await a.session.beat(BEAT)
    await b.session.beat(replace(BEAT, run="run-b"))
    cancel, answer = CancelRequest("r"), Answered("q", "run-b", "run-a", "secret word")
    await a.peers.send(cancel)
    await a.peers.send(answer)
    assert [await b.hears(), await b.hears()] == 2 * [Changed("mail")]
    assert list(await a.session.mail("run-a")) == [cancel]
    assert list(await b.session.mail("run-b")) == [cancel, answer]
    assert list(await b.session.mail("run-b")) == []
    await a.peers.send(cancel)
    async with a.store.database.transaction() as connection:
        await connection.exec_driver_sql("UPDATE mail SET sent_at = 1")
    await a.session.beat(BEAT)
    assert list(await b.session.mail("run-b")) == [], "nobody waits for old ones"


async def test_who_has_no_right_on_any_table_hears_nothing_and_asks_for_nothing(
    opened: OpenStore, postgres: PostgresServer
) -> None:
    a = await opened()
    await a.session.beat(BEAT)
    async with a.store.database.transaction() as connection:
        await connection.exec_driver_sql("CREATE ROLE stranger LOGIN PASSWORD 'x'")
    connection = await asyncpg.connect(
        host=a.url.host, port=a.url.port, user="stranger", password="x", database=a.url.database
    )
    heard: list[str] = []
    await connection.add_listener(CHANNEL, lambda *told: heard.append(told[-1]))
    await a.peers.send(Answered("q", "run-a", "run-b", "secret word"))
    for letter in (CancelRequest("r"), Asked("q", "run-b", "requests"), Changed("keys")):
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, encoded(letter))
    assert [await a.hears(), await a.hears()] == [Changed("mail"), Changed("keys")]
    assert [type(each) for each in await a.session.mail("run-a")] == [Answered]
    for table in ("mail", "dashboard_sessions", "access_keys"):
        with pytest.raises(InsufficientPrivilegeError):
            await connection.execute(f"SELECT * FROM {table}")
        with pytest.raises(InsufficientPrivilegeError):
            await connection.execute(f"DELETE FROM {table}")
    assert heard[0] == encoded(Changed("mail")) and "secret word" not in "".join(heard)
    await connection.close()


async def test_those_that_beat_live(opened: OpenStore) -> None:
    a, b = await opened(), await opened()
    other = replace(BEAT, run="run-b", name="b", is_leading=True, url="https://b")
    await a.session.beat(BEAT)
    peers = await b.session.beat(other)
    assert [peer.beat for peer in peers] == [BEAT, other]
    assert all(0 <= peer.age < HANGS for peer in peers)
    assert [peer.beat.url for peer in peers] == [BEAT.url, "https://b"]
    assert all(peer.started_at is not None for peer in peers)
    async with a.store.database.transaction() as connection:
        await connection.exec_driver_sql("UPDATE balancers SET seen_at = 1 WHERE run = 'run-b'")
    assert [peer.beat for peer in await a.session.beat(BEAT)] == [BEAT]


async def test_one_leads_and_the_next_one_under_a_later_epoch(opened: OpenStore) -> None:
    a, b = await opened(), await opened()
    assert await a.session.lead(0) == 1
    assert await b.session.lead(0) is None
    assert await a.session.lead(7) == 8, "agents know a later epoch"
    a.session.close()
    await a.loses()
    assert await b.leads() == 9
    with pytest.raises(StoreAway):
        await a.session.lead(0)


async def test_who_leaves_lets_another_lead_at_once(opened: OpenStore) -> None:
    a, b = await opened(), await opened()
    await a.session.beat(BEAT)
    await a.session.lead(0)
    await a.session.lead(1)
    await a.session.leave(BEAT.run)
    assert await b.session.lead(0) == 3
    assert await b.session.beat(replace(BEAT, run="run-b")) != []
    assert [peer.beat.run for peer in await a.session.beat(replace(BEAT, run="run-c"))] == [
        "run-b",
        "run-c",
    ]


async def test_the_end_of_the_connection_is_told_at_once(opened: OpenStore) -> None:
    a, b = await opened(), await opened()
    await a.session.lead(0)
    async with b.store.database.transaction() as connection:
        await connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
        )
    await a.loses()
    with pytest.raises(StoreAway):
        await a.session.beat(BEAT)
    await a.meet()
    assert await a.session.lead(0) == 2


async def test_a_server_that_is_not_there(tmp_path: object) -> None:
    url = parse_store_url("postgresql://me:secret-word@/db?host=/nowhere")
    peers = PostgresPeerStore(url, Store(url))
    with pytest.raises(StoreAway) as failure:
        await peers.open_session(lambda _: None, lambda: None)
    assert "secret-word" not in str(failure.value)


def test_the_leaders_lock_is_not_the_migrations() -> None:
    assert sessions.LEADER_LOCK != migrate._LOCK
    assert sessions.LEADER_LOCK < 2**63


def test_a_balancer_may_miss_beats() -> None:
    assert 3 * BEAT_INTERVAL <= sessions.LIVE < sessions.FORGOTTEN
