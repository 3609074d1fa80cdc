"""How a transaction of the store tells news: they are heard once it is done, and only then."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from .records import Changed, News, Subject, encoded

CHANNEL = "arriero"
"""Of `NOTIFY`; PostgreSQL keeps channels of different databases apart."""

_NOTIFY = text("SELECT pg_notify(:channel, :payload)")


async def tell(connection: AsyncConnection, news: News) -> None:
    """Tell all balancers; nobody where they share no PostgreSQL."""
    if connection.dialect.name == "postgresql":
        await connection.execute(_NOTIFY, {"channel": CHANNEL, "payload": encoded(news)})


async def tell_changed(connection: AsyncConnection, what: Subject) -> None:
    """Tell all balancers to read it again."""
    await tell(connection, Changed(what))
