"""Schemas of versions before: what later migrations added is taken away again."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_UNDONE = {
    "0012": ("ALTER TABLE ended_requests DROP COLUMN balancer",),
    "0011": ("DROP TABLE conversations",),
    "0010": (
        "DROP TABLE history_steps",
        "CREATE TABLE history_steps (width INTEGER, at BIGINT, document TEXT NOT NULL, "
        "PRIMARY KEY (width, at))",
    ),
    "0009": (
        "ALTER TABLE kept_requests DROP COLUMN is_cancelled",
        "ALTER TABLE cordons DROP COLUMN deadline",
        "ALTER TABLE balancers DROP COLUMN started_at",
        "ALTER TABLE balancers DROP COLUMN url",
    ),
    "0008": ("DROP TABLE balancers", "DROP TABLE leadership"),
    "0007": ("DROP TABLE kept_events", "DROP TABLE kept_requests"),
}
"""By version, newest first."""


async def revert(connection: AsyncConnection, to: str) -> None:
    """Make it the schema of version `to`, which is 0006 at least."""
    for version, statements in _UNDONE.items():
        if version > to:
            for statement in statements:
                await connection.execute(text(statement))
    await connection.execute(text(f"UPDATE alembic_version SET version_num = '{to}'"))
