"""How a transaction of the store tells news: they are heard once it is done, and only then."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from .records import Changed, News, Subject, encoded

CHANNEL = "arriero"
"""Of `NOTIFY`; PostgreSQL keeps channels of different databases apart."""

_NOTIFY = text("SELECT pg_notify(:channel, :payload)")


_UNTOLD = "arriero_untold_news"
"""Of a connection's `info`: what its transaction has to tell."""


async def tell(connection: AsyncConnection, news: News) -> None:
    """Tell all balancers. SQLite tells nobody: whoever ends the transaction does (`untold`)."""
    if connection.dialect.name == "postgresql":
        await connection.execute(_NOTIFY, {"channel": CHANNEL, "payload": encoded(news)})
    else:
        connection.info.setdefault(_UNTOLD, []).append(news)


def untold(connection: AsyncConnection) -> list[News]:
    """What was to be told inside the transaction, once; to be told when it is done."""
    news: list[News] = connection.info.pop(_UNTOLD, [])
    return news


async def tell_changed(connection: AsyncConnection, what: Subject) -> None:
    """Tell all balancers to read it again."""
    await tell(connection, Changed(what))
