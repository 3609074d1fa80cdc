"""Stored responses, which later requests can continue or read.

Each entry holds its whole conversation, so it does not depend on earlier entries.
"""

from dataclasses import dataclass, replace

from pydantic_core import to_json

from .....shared.strict import LAZY
from ....fleet.footprint import footprints
from .answer_types import Response
from .items import InputMessage, Item, OutputText, items_of


@dataclass(frozen=True, slots=True)
class Stored:
    """An answer as JSON, its own input, and all items of the conversation before that input."""

    __pydantic_config__ = LAZY

    response: bytes
    input: tuple[Item, ...]
    history: tuple[Item, ...]
    history_bytes: int
    """The bytes of the earlier items as JSON."""
    history_memory: int = 0
    """The estimated bytes of memory that the earlier items take."""

    @property
    def num_bytes(self) -> int:
        """The bytes that the entry counts for in its store."""
        return len(self.response) + max(self.history_bytes, self.history_memory)


def _without_logprobs(item: Item) -> Item:
    """Return an answer's item without log-probabilities, which only `response` keeps."""
    if not isinstance(item, InputMessage) or isinstance(item.content, str):
        return item
    return replace(
        item,
        content=tuple(
            replace(part, logprobs=()) if isinstance(part, OutputText) else part
            for part in item.content
        ),
    )


def stored(response: Response, input: tuple[Item, ...], previous: Stored | None) -> Stored:
    """Return the store's entry of an answer that continues `previous`."""
    own = (*input, *map(_without_logprobs, items_of(response["output"])))
    return Stored(
        response=to_json(response),
        input=input,
        history=own if previous is None else (*previous.history, *own),
        # Counts all that the client sent, even if it is never returned: it takes memory, too.
        history_bytes=len(to_json(own)) + (0 if previous is None else previous.history_bytes),
        history_memory=footprints(own) + (0 if previous is None else previous.history_memory),
    )
