"""What is saved of a conversation, and the interface of what saves it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedConversation:
    """One conversation up to an answer. `owner` is empty where it belongs to everybody.

    `document` is compressed, and counts as `num_bytes`.
    """

    id: str
    owner: str
    kind: str
    document: bytes
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationBounds:
    """How much a store keeps: conversations, bytes, and seconds since the last use."""

    num: int
    num_bytes: int
    age: float


class SavedConversations(Protocol):
    """Every method raises `StoreAway`. Whoever has another owner or kind finds nothing."""

    async def save_conversations(
        self, conversations: Collection[SavedConversation], used: Collection[str] = ()
    ) -> None:
        """Save these, which are not changed any more; and note that those of ids `used` were."""

    async def find_conversation(self, id: str, kind: str, owner: str) -> bytes | None:
        """Its document. It counts as used."""

    async def forget_conversation(self, id: str, kind: str, owner: str) -> bool:
        """Delete it; whether it was there."""

    async def trim_conversations(self, bounds: ConversationBounds) -> int:
        """Delete what is beyond `bounds`, the least recently used first; how many these were."""
