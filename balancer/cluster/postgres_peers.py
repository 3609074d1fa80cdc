"""A session of PostgreSQL that gets notifications and letters, and holds the leader's lock.

Anybody who may connect to the database can send and receive notifications. So a notification only
says what to read; the letters are rows of a table.

The lock belongs to the session: it is free as soon as the server knows that the connection is
lost. Both sides check the connection. This side gives up a session that does not answer for
`TIMEOUT` seconds. The server gives up a session that is silent for about ten seconds
(`KEEPALIVES`). So the balancer that loses the lock notices first.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg

from ..store.database import CHANNEL, Database, notify_changed, sentence
from ..store.port import StoreAway
from ..store.url import StoreUrl
from .notifications import Answered, Changed, Letter, Notification, decoded, encoded
from .peer_store import Beat, Peer, PeerSession

TIMEOUT = 3.0
"""Maximum seconds for one statement, and for connecting."""

KEEPALIVES = {
    "tcp_keepalives_idle": "4",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}

# Statements; times are those of the database.

LEADER_LOCK = 0x6172_7269_6572_70
"""The key of the leader's advisory lock."""

LIVE = 6.0
"""Seconds for which a balancer counts as living after its last beat."""

FORGOTTEN = 3600.0
"""Seconds after its last beat at which a balancer's row is deleted."""

BEAT = """
INSERT INTO balancers (run, name, version, is_leading, waiting, url, seen_at, started_at)
VALUES ($1, $2, $3, $4, $5, $6,
  extract(epoch FROM clock_timestamp()), extract(epoch FROM clock_timestamp()))
ON CONFLICT (run) DO UPDATE SET
  name = excluded.name, version = excluded.version, is_leading = excluded.is_leading,
  waiting = excluded.waiting, url = excluded.url, seen_at = excluded.seen_at
"""

LIVING = """
SELECT run, name, version, is_leading, waiting, url, started_at,
  greatest(extract(epoch FROM clock_timestamp())::double precision - seen_at, 0) AS age
FROM balancers
WHERE seen_at > extract(epoch FROM clock_timestamp()) - $1
ORDER BY name, run
"""

FORGET_OLD = """
DELETE FROM balancers WHERE seen_at < extract(epoch FROM clock_timestamp()) - $1
"""

FORGET = "DELETE FROM balancers WHERE run = $1"

SEND = """
INSERT INTO mail (run, document, sent_at)
SELECT run, $1, extract(epoch FROM clock_timestamp()) FROM balancers
WHERE seen_at > extract(epoch FROM clock_timestamp()) - $2 AND run = coalesce($3::text, run)
"""

MAIL = "DELETE FROM mail WHERE run = $1 RETURNING number, document"

UNREAD = 60.0
"""Seconds after which an unread letter is deleted."""

FORGET_MAIL = "DELETE FROM mail WHERE sent_at < extract(epoch FROM clock_timestamp()) - $1"

TRY_LOCK = "SELECT pg_try_advisory_lock($1)"
UNLOCK = "SELECT pg_advisory_unlock_all()"
NEXT_EPOCH = "UPDATE leadership SET epoch = greatest(epoch, $1) + 1 RETURNING epoch"


class PostgresPeerStore:
    """A `PeerStore` over `database`, which is at `url`."""

    def __init__(self, url: StoreUrl, database: Database) -> None:
        self._url = url
        self._database = database

    async def open_session(
        self, on_notification: Callable[[Notification], None], on_lost: Callable[[], None]
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
        await session.listen(on_notification, on_lost)
        return session

    async def send(self, letter: Letter) -> None:
        to = letter.to if isinstance(letter, Answered) else None
        async with self._database.transaction() as connection:
            await connection.exec_driver_sql(SEND, (encoded(letter), LIVE, to))
            await notify_changed(connection, "mail")

    async def left(self) -> None:
        async with self._database.transaction() as connection:
            await notify_changed(connection, "peers")


class PostgresSession:
    """A `PeerSession` over a connection of asyncpg."""

    def __init__(self, connection: Any, url: StoreUrl) -> None:
        self._connection = connection
        self._url = url

    async def listen(
        self, on_notification: Callable[[Notification], None], on_lost: Callable[[], None]
    ) -> None:
        """Begin to receive notifications. Raises `StoreAway`, and then the connection is closed."""

        def notified(_connection: object, _pid: int, _channel: str, payload: str) -> None:
            if isinstance(notification := decoded(payload), Changed):
                on_notification(notification)

        self._connection.add_termination_listener(lambda _connection: on_lost())
        with self._used():
            await self._connection.add_listener(CHANNEL, notified)

    async def beat(self, beat: Beat) -> Sequence[Peer]:
        values = (beat.run, beat.name, beat.version, beat.is_leading, beat.waiting, beat.url)
        with self._used():
            await self._connection.execute(BEAT, *values)
            await self._connection.execute(FORGET_OLD, FORGOTTEN)
            await self._connection.execute(FORGET_MAIL, UNREAD)
            rows = await self._connection.fetch(LIVING, LIVE)
        return [_peer(dict(row)) for row in rows]

    async def lead(self, above: int) -> int | None:
        with self._used():
            if not await self._connection.fetchval(TRY_LOCK, LEADER_LOCK):
                return None
            return int(await self._connection.fetchval(NEXT_EPOCH, above))

    async def mail(self, run: str) -> Sequence[Letter]:
        with self._used():
            rows = await self._connection.fetch(MAIL, run)
        letters = (decoded(document) for _, document in sorted(map(tuple, rows)))
        return [each for each in letters if each is not None and not isinstance(each, Changed)]

    async def leave(self, run: str) -> None:
        with self._used():
            await self._connection.execute(FORGET, run)
            await self._connection.execute(UNLOCK)

    def close(self) -> None:
        if not self._connection.is_closed():
            self._connection.terminate()

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Return a context that gives up the session if a call in it fails.

        After a failure, the effect of the call on the server is unknown.
        """
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
