"""A conversation as it is stored: its items in order, and the client's metadata.

Unlike a stored response, a conversation changes. Each change makes a new value with the same id and
the next `version`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pydantic_core import to_json

from .....shared.errors import InvalidRequest
from .....shared.inference import MAX_MESSAGES
from .....shared.strict import LAZY
from ....fleet.footprint import footprints
from ..responses.items import Item
from ..responses.stored import Stored

PREFIX = "conv_"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptConversation:
    """A stored conversation; `created_at` is in seconds since 1970.

    `items_bytes` is the size of its items as JSON, and `items_memory` their estimated size in
    memory.
    """

    __pydantic_config__ = LAZY

    created_at: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    items: tuple[Item, ...] = ()
    items_bytes: int = 0
    items_memory: int = 0
    version: int = 0

    @property
    def num_bytes(self) -> int:
        """The bytes that the conversation counts for in its store."""
        held = max(self.items_bytes, self.items_memory)
        return held + len(to_json(dict(self.metadata)))

    def labelled(self, metadata: Mapping[str, str]) -> "KeptConversation":
        """Return the conversation with `metadata` in place of its own."""
        return replace(self, metadata=dict(metadata), version=self.version + 1)

    def with_items(self, items: tuple[Item, ...]) -> "KeptConversation":
        """Return the conversation with more items at its end.

        Raises `InvalidRequest` for too many items.
        """
        whole = (*self.items, *items)
        if len(whole) > MAX_MESSAGES:
            raise InvalidRequest(
                f"the conversation would have {len(whole)} items; {MAX_MESSAGES} are allowed",
                field="items",
            )
        return replace(
            self,
            items=whole,
            items_bytes=self.items_bytes + size_of(items),
            items_memory=self.items_memory + footprints(items),
            version=self.version + 1,
        )

    def without_item(self, id: str) -> "KeptConversation | None":
        """Return the conversation without the item of this id; `None` if it has no such item."""
        rest = tuple(item for item in self.items if item.id != id)
        if len(rest) == len(self.items):
            return None
        gone = tuple(item for item in self.items if item.id == id)
        return replace(
            self,
            items=rest,
            items_bytes=max(0, self.items_bytes - size_of(gone)),
            items_memory=max(0, self.items_memory - footprints(gone)),
            version=self.version + 1,
        )

    def as_stored(self) -> Stored:
        """Return the conversation in the stored form of a response."""
        return Stored(
            response=b"",
            input=(),
            history=self.items,
            history_bytes=self.items_bytes,
            history_memory=self.items_memory,
        )


def size_of(items: Iterable[Item]) -> int:
    """Return the size of items as JSON, in bytes."""
    return len(to_json(list(items)))
