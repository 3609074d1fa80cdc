"""Answers that are kept, so that later requests can go on from them or read them again.

Bounded in number, in bytes and in age. What has not been used for longest goes first. Each entry
holds its whole conversation, so it stands whatever becomes of those before it; what entries share
is counted for each of them, so `num_bytes` is an upper bound.

Invariants: the entries stand in the order in which they were used; their bytes add up to
`num_bytes`, which is never more than `max_bytes`.
"""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

from pydantic_core import to_json

from .answer_types import Response
from .items import Item, items_of

MAX_RESPONSES = 10_000
"""Most answers that are kept, however small they are."""

DEFAULT_BYTES = 64 * 2**20
DEFAULT_AGE = 3600.0


@dataclass(frozen=True, slots=True)
class Stored:
    """An answer as JSON, its own input, and all items of the conversation up to its last one."""

    response: bytes
    input: tuple[Item, ...]
    history: tuple[Item, ...]
    history_bytes: int

    @property
    def num_bytes(self) -> int:
        """What it counts for."""
        return len(self.response) + self.history_bytes


def stored(response: Response, input: tuple[Item, ...], previous: Stored | None) -> Stored:
    """The entry of an answer that went on from `previous`."""
    own = (*input, *items_of(response["output"]))
    return Stored(
        response=to_json(response),
        input=input,
        history=own if previous is None else (*previous.history, *own),
        # With all that a client sent, also what is never shown again: it takes memory, too.
        history_bytes=len(to_json(own)) + (0 if previous is None else previous.history_bytes),
    )


@dataclass(slots=True)
class _Entry:
    stored: Stored
    used_at: float


class ResponseStore:
    """`now` is in seconds of one clock, and never goes back."""

    def __init__(
        self,
        *,
        max_bytes: int = DEFAULT_BYTES,
        max_age: float = DEFAULT_AGE,
        max_responses: int = MAX_RESPONSES,
    ) -> None:
        """With 0 bytes nothing is kept. `max_age` counts from an answer's last use, in seconds."""
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._max_responses = max_responses
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, id: str, stored: Stored, now: float) -> None:
        """Keeps an answer, at the cost of older ones; one that can never fit is not kept."""
        if stored.num_bytes > self._max_bytes:
            return
        self._entries[id] = _Entry(stored, now)
        self.num_bytes += stored.num_bytes
        self._make_room(now)

    def find(self, id: str, now: float) -> Stored | None:
        """The answer, if it is still kept. It counts as used."""
        self._make_room(now)
        entry = self._entries.get(id)
        if entry is None:
            return None
        entry.used_at = now
        self._entries.move_to_end(id)
        return entry.stored

    def forget(self, id: str, now: float) -> bool:
        """Lets go of an answer; whether there was one."""
        self._make_room(now)
        if id not in self._entries:
            return False
        self._remove(id)
        return True

    def _make_room(self, now: float) -> None:
        while self._entries:
            id, eldest = next(iter(self._entries.items()))
            is_too_old = now - eldest.used_at > self._max_age
            is_too_much = self.num_bytes > self._max_bytes or len(self) > self._max_responses
            if not is_too_old and not is_too_much:
                return
            self._remove(id)

    def _remove(self, id: str) -> None:
        self.num_bytes -= self._entries.pop(id).stored.num_bytes

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        entries = list(self._entries.values())
        if self.num_bytes != sum(entry.stored.num_bytes for entry in entries):
            raise RuntimeError("the bytes do not add up")
        if self.num_bytes > self._max_bytes or len(entries) > self._max_responses:
            raise RuntimeError("more is kept than may be")
        if any(a.used_at > b.used_at for a, b in pairwise(entries)):
            raise RuntimeError("the entries are out of order")
