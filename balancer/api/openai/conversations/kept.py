"""A conversation as it is stored: its items in their order, and what a client labelled it with.

It changes, unlike a stored response: each change is a new one under the same id, with the next
`version`.
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
    """`created_at` in Unix seconds; `items_bytes` is the size of its items as JSON.

    `items_memory` is about how many bytes of memory they take.
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
        """The bytes it counts for."""
        held = max(self.items_bytes, self.items_memory)
        return held + len(to_json(dict(self.metadata)))

    def labelled(self, metadata: Mapping[str, str]) -> "KeptConversation":
        """With other metadata."""
        return replace(self, metadata=dict(metadata), version=self.version + 1)

    def with_items(self, items: tuple[Item, ...]) -> "KeptConversation":
        """With more items at its end. Raises `InvalidRequest` if these are too many."""
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
        """Without the item of this id; `None` if there is none."""
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
        """The conversation of a response, in its stored form."""
        return Stored(
            response=b"",
            input=(),
            history=self.items,
            history_bytes=self.items_bytes,
            history_memory=self.items_memory,
        )


def size_of(items: Iterable[Item]) -> int:
    """Bytes of items as JSON."""
    return len(to_json(list(items)))
