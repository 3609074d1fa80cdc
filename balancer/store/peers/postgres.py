"""A session of PostgreSQL that hears news and holds the lock of whoever leads.

The lock is the session's: it is free as soon as the server knows that the connection is gone. Both
sides look after it. This side gives up a session that does not answer for `TIMEOUT`; the server one
that is silent for some ten seconds (`KEEPALIVES`). So who has lost the lock knows it first.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg

from ..engine import sentence
from ..news.records import News, decoded
from ..news.sql import CHANNEL, tell
from ..port import StoreAway
from ..sql import SqlStore
from ..url import StoreUrl
from . import statements
from .port import Beat, Peer, PeerSession

TIMEOUT = 3.0
"""Seconds for one statement, and to connect."""

KEEPALIVES = {
    "tcp_keepalives_idle": "4",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}


class PostgresPeerStore:
    """A `PeerStore` beside `store`, which is at `url`."""

    def __init__(self, url: StoreUrl, store: SqlStore) -> None:
        self._url = url
        self._store = store

    async def open_session(
        self, on_news: Callable[[News], None], on_lost: Callable[[], None]
    ) -> PeerSession:
        with _reached(self._url):
            connection = await asyncpg.connect(
                host=self._url.host,
                port=self._url.port,
                user=self._url.user,
                password=self._url.password,
                database=self._url.database,
                ssl=self._url.ssl_mode,
                timeout=TIMEOUT,
                command_timeout=TIMEOUT,
                server_settings={"application_name": "arriero balancer", **KEEPALIVES},
            )
        session = PostgresSession(connection, self._url)
        await session.listen(on_news, on_lost)
        return session

    async def tell(self, *news: News) -> None:
        async with self._store.transaction() as connection:
            for each in news:
                await tell(connection, each)


class PostgresSession:
    """A `PeerSession` over a connection of asyncpg."""

    def __init__(self, connection: Any, url: StoreUrl) -> None:
        self._connection = connection
        self._url = url

    async def listen(self, on_news: Callable[[News], None], on_lost: Callable[[], None]) -> None:
        """Begin to tell. Raises `StoreAway`, and then the connection is closed."""

        def notified(_connection: object, _pid: int, _channel: str, payload: str) -> None:
            if (news := decoded(payload)) is not None:
                on_news(news)

        self._connection.add_termination_listener(lambda _connection: on_lost())
        with self._used():
            await self._connection.add_listener(CHANNEL, notified)

    async def beat(self, beat: Beat) -> Sequence[Peer]:
        values = (beat.run, beat.name, beat.version, beat.is_leading, beat.waiting, beat.url)
        with self._used():
            await self._connection.execute(statements.BEAT, *values)
            await self._connection.execute(statements.FORGET_OLD, statements.FORGOTTEN)
            rows = await self._connection.fetch(statements.LIVING, statements.LIVE)
        return [_peer(dict(row)) for row in rows]

    async def lead(self, above: int) -> int | None:
        with self._used():
            if not await self._connection.fetchval(statements.TRY_LOCK, statements.LEADER_LOCK):
                return None
            return int(await self._connection.fetchval(statements.NEXT_EPOCH, above))

    async def leave(self, run: str) -> None:
        with self._used():
            await self._connection.execute(statements.FORGET, run)
            await self._connection.execute(statements.UNLOCK)

    def close(self) -> None:
        if not self._connection.is_closed():
            self._connection.terminate()

    @contextmanager
    def _used(self) -> Iterator[None]:
        """A session that failed once is given up: nobody knows what the server made of it."""
        try:
            with _reached(self._url):
                yield
        except StoreAway:
            self.close()
            raise


def _peer(row: dict[str, Any]) -> Peer:
    age = float(row.pop("age"))
    started_at = row.pop("started_at")
    return Peer(Beat(**row), age, started_at)


@contextmanager
def _reached(url: StoreUrl) -> Iterator[None]:
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise StoreAway(sentence(error, url)) from error
