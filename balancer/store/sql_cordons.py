"""Cordons in SQL: each function is one statement or two within a transaction."""

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from .records import MAX_CORDONS, SavedCordon, storable_text
from .tables import CORDONS

_NEWEST = select(CORDONS).order_by(CORDONS.c.since.desc(), CORDONS.c.agent).limit(MAX_CORDONS)


async def load_cordons(connection: AsyncConnection) -> list[SavedCordon]:
    """See `port.CordonStore`, as for the others."""
    rows = (await connection.execute(_NEWEST)).mappings().all()
    return [SavedCordon(**row) for row in reversed(rows)]


async def save_cordon(connection: AsyncConnection, cordon: SavedCordon) -> None:
    agent, name = storable_text(cordon.agent), storable_text(cordon.name)
    await connection.execute(delete(CORDONS).where(CORDONS.c.agent == agent))
    values = {"agent": agent, "name": name, "since": cordon.since, "deadline": cordon.deadline}
    await connection.execute(insert(CORDONS).values(**values))
    newest = select(_NEWEST.subquery().c.agent)
    await connection.execute(delete(CORDONS).where(CORDONS.c.agent.not_in(newest)))


async def forget_cordon(connection: AsyncConnection, agent: str) -> None:
    await connection.execute(delete(CORDONS).where(CORDONS.c.agent == storable_text(agent)))
