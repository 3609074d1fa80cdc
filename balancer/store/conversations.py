"""Conversations that several balancers may continue, in SQL, with one row each."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, or_, select, update

from .database import Database
from .fair_ranks import fairly_ranked
from .records import storable_text
from .tables import CONVERSATIONS

MOST_TRIMMED = 10_000
"""Maximum conversations that one call deletes."""

_C = CONVERSATIONS.c


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedConversation:
    """A conversation up to an answer. `owner` is empty if everybody owns the conversation.

    `document` is compressed and has `num_bytes` bytes.
    """

    id: str
    owner: str
    kind: str
    document: bytes
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationBounds:
    """The bounds of stored conversations: number, bytes, and seconds since the last use."""

    num: int
    num_bytes: int
    age: float


class SavedConversations:
    """The stored conversations. Every method raises `StoreAway`.

    A method finds a conversation only with its owner and its kind.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._transaction = database.transaction
        self._now = database.now

    async def save_conversations(self, conversations: Collection[SavedConversation]) -> None:
        """Save conversations. They replace conversations with the same ids."""
        rows = [asdict(each) | _storable(each) for each in conversations]
        adding = self._database.insert(CONVERSATIONS)
        new = adding.excluded
        adding = adding.on_conflict_do_update(
            index_elements=[_C.id],
            set_={
                _C.document: new.document,
                _C.num_bytes: new.num_bytes,
                _C.used_at: new.used_at,
            },
            where=(_C.owner == new.owner) & (_C.kind == new.kind),
        )
        async with self._transaction() as connection:
            await connection.execute(adding.values(used_at=self._now), rows)

    async def use_conversation(self, id: str, kind: str, owner: str) -> bool:
        """Mark the owner's conversation of this kind as used.

        Returns whether the conversation is stored.
        """
        async with self._transaction() as connection:
            used = update(CONVERSATIONS).where(_one(id, kind, owner)).values(used_at=self._now)
            return (await connection.execute(used)).rowcount > 0

    async def find_conversation(self, id: str, kind: str, owner: str) -> bytes | None:
        """Mark the owner's conversation of this kind as used. Returns its document, if any."""
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
        """Delete the owner's conversation of this kind.

        Returns whether the conversation was stored.
        """
        async with self._transaction() as connection:
            statement = delete(CONVERSATIONS).where(_one(id, kind, owner))
            return (await connection.execute(statement)).rowcount > 0

    async def trim_conversations(self, bounds: ConversationBounds) -> int:
        """Delete conversations beyond `bounds`. Returns the number of deleted conversations.

        The owner with the most conversations first loses the least recently used one.
        """
        async with self._transaction() as connection:
            excess = _excess(bounds, self._now)
            ids = (await connection.execute(excess)).scalars().all()
            if ids:
                await connection.execute(delete(CONVERSATIONS).where(_C.id.in_(ids)))
        return len(ids)


def _storable(each: SavedConversation) -> dict[str, str]:
    return {"id": storable_text(each.id), "owner": storable_text(each.owner)}


def _one(id: str, kind: str, owner: str) -> ColumnElement[bool]:
    is_owners = (_C.owner == storable_text(owner)) & (_C.kind == kind)
    return (_C.id == storable_text(id)) & is_owners


def _excess(bounds: ConversationBounds, now: ColumnElement[float]) -> Select[Any]:
    """Return the ids of conversations beyond `bounds`."""
    latest = (_C.used_at.desc(), _C.id)
    ranked = fairly_ranked(
        _C.id, _C.owner, latest=latest, num_bytes=_C.num_bytes, more=(_C.used_at,)
    )
    beyond = or_(
        ranked.c.place > bounds.num,
        ranked.c.total > bounds.num_bytes,
        ranked.c.used_at < now - bounds.age,
    )
    return select(ranked.c.id).where(beyond).order_by(ranked.c.used_at).limit(MOST_TRIMMED)
