"""Saved conversations in SQLite and PostgreSQL: a row for each."""

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Insert, Select, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from ..kept.statements import clock
from ..records import storable_text
from ..tables import CONVERSATIONS
from .records import ConversationBounds, SavedConversation

MOST_TRIMMED = 10_000
"""Conversations that are deleted at once."""

Transaction = Callable[[], AbstractAsyncContextManager[AsyncConnection]]
"""A transaction of the store. Raises `StoreAway`."""

_C = CONVERSATIONS.c


class SqlConversations:
    """`SavedConversations`; `kind` is the database's."""

    def __init__(self, transaction: Transaction, kind: str) -> None:
        self._transaction = transaction
        self._kind = kind
        self._now = clock(kind)

    async def save_conversations(
        self, conversations: Collection[SavedConversation], used: Collection[str] = ()
    ) -> None:
        async with self._transaction() as connection:
            if conversations:
                rows = [asdict(each) | _storable(each) for each in conversations]
                await connection.execute(self._adding().values(used_at=self._now), rows)
            if used:
                ids = [storable_text(each) for each in used]
                now_used = update(CONVERSATIONS).where(_C.id.in_(ids)).values(used_at=self._now)
                await connection.execute(now_used)

    async def find_conversation(self, id: str, kind: str, owner: str) -> bytes | None:
        found = (
            update(CONVERSATIONS)
            .where(_one(id, kind, owner))
            .values(used_at=self._now)
            .returning(_C.document)
        )
        async with self._transaction() as connection:
            document: bytes | None = (await connection.execute(found)).scalar_one_or_none()
            return document

    async def forget_conversation(self, id: str, kind: str, owner: str) -> bool:
        async with self._transaction() as connection:
            statement = delete(CONVERSATIONS).where(_one(id, kind, owner))
            return (await connection.execute(statement)).rowcount > 0

    async def trim_conversations(self, bounds: ConversationBounds) -> int:
        async with self._transaction() as connection:
            excess = _excess(bounds, self._now)
            ids = (await connection.execute(excess)).scalars().all()
            if ids:
                await connection.execute(delete(CONVERSATIONS).where(_C.id.in_(ids)))
        return len(ids)

    def _adding(self) -> Insert:
        """Those that are there stay as they are."""
        if self._kind == "sqlite":
            return sqlite.insert(CONVERSATIONS).on_conflict_do_nothing()
        return postgresql.insert(CONVERSATIONS).on_conflict_do_nothing()


def _storable(each: SavedConversation) -> dict[str, str]:
    return {"id": storable_text(each.id), "owner": storable_text(each.owner)}


def _one(id: str, kind: str, owner: str) -> ColumnElement[bool]:
    is_owners = (_C.owner == storable_text(owner)) & (_C.kind == kind)
    return (_C.id == storable_text(id)) & is_owners


def _excess(bounds: ConversationBounds, now: ColumnElement[float]) -> Select[Any]:
    """The ids of what is beyond `bounds`."""
    latest = (_C.used_at.desc(), _C.id)
    ranked = select(
        _C.id,
        _C.used_at,
        func.row_number().over(order_by=latest).label("place"),
        func.sum(_C.num_bytes).over(order_by=latest).label("total"),
    ).subquery()
    beyond = or_(
        ranked.c.place > bounds.num,
        ranked.c.total > bounds.num_bytes,
        ranked.c.used_at < now - bounds.age,
    )
    return select(ranked.c.id).where(beyond).order_by(ranked.c.used_at).limit(MOST_TRIMMED)
