"""The draft model's cache: which sequence each slot follows, and how far.

A slot's tokens are the tokens that were computed in it: the first tokens of its sequence, and then
drafted tokens. If the sequence continues differently, the rest is removed. A slot that follows no
sequence keeps its tokens for the next sequence with the same beginning.

Invariant: all slots together hold at most `num_cells` tokens.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..prompt import History
from ..sequence import SequenceId


@dataclass(slots=True, eq=False)
class DraftText:
    """The tokens in `slot`, and the state of the sequence `id` that it follows.

    The sequence had `length` tokens when it was last reconciled, and gained `num_new` since.
    `draft` has the guesses not yet verified: for each its place in the draft, from 0, the token,
    and the model's probability. `debt` is the seconds spent on catching up with the sequence that
    drafts have not saved yet. A sequence that takes over the slot takes over the debt.
    """

    slot: int
    id: SequenceId | None = None
    tokens: list[int] = field(default_factory=list)
    length: int = 0
    num_new: int = 0
    num_gained: int = 0
    last_used: int = 0
    draft: list[tuple[int, int, float]] = field(default_factory=list)
    debt: float = 0.0

    def reconcile(self, history: History) -> int:
        """Note the sequence's length; return how many of the slot's tokens are its first tokens.

        The sequence's last token is never among them, because its logits are needed.
        """
        is_shifted = len(history) != self.length + self.num_new
        known = 0 if is_shifted else min(self.length - 1, len(self.tokens))
        self.length, self.num_new = len(history), 0
        end = min(len(history) - 1, len(self.tokens))
        return known + num_alike(self.tokens[known:end], history.token_ids(known, end))

    def compute(self, start: int, tokens: Sequence[int]) -> None:
        """Record that `tokens` were computed from `start` on."""
        self.tokens[start:] = tokens

    def gain(self, num_tokens: int) -> None:
        """Record that the sequence gained `num_tokens`."""
        self.num_new += num_tokens
        self.num_gained += num_tokens


class DraftCache:
    """A cache with `num_slots` slots."""

    def __init__(self, num_slots: int, num_cells: int) -> None:
        self.num_cells = num_cells
        self.texts = [DraftText(slot) for slot in range(num_slots)]
        self._by_id: dict[SequenceId, DraftText] = {}
        self._now = 0

    @property
    def num_used(self) -> int:
        """The number of cells in use."""
        return sum(len(text.tokens) for text in self.texts)

    def find(self, id: SequenceId) -> DraftText | None:
        """Return the text of a sequence that is followed."""
        return self._by_id.get(id)

    def follow(
        self, id: SequenceId, history: History, present: Collection[SequenceId]
    ) -> DraftText | None:
        """Return the sequence's text, its own or a free text; `None` if there is none.

        Sequences that are `present` keep their texts. The caller then reconciles the text.
        """
        self._now += 1
        text = self._by_id.get(id) or self._take(id, history, present)
        if text is not None:
            text.last_used = self._now
        return text

    def detach(self, id: SequenceId) -> DraftText | None:
        """Stop following a sequence; return its text."""
        text = self._by_id.pop(id, None)
        if text is not None:
            text.id = None
        return text

    def evict(self, count: int, present: Collection[SequenceId]) -> list[DraftText] | None:
        """Return the texts to empty so that `count` cells are free; `None` if that is impossible.

        Texts of sequences that are `present` stay; of the other texts the least recently used go
        first.
        """
        others = [text for text in self.texts if text.tokens and text.id not in present]
        others.sort(key=lambda text: text.last_used)
        missing = self.num_used + count - self.num_cells
        evicted = []
        while missing > 0 and others:
            evicted.append(text := others.pop(0))
            missing -= len(text.tokens)
        return evicted if missing <= 0 else None

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken."""
        if self.num_used > self.num_cells:
            raise RuntimeError(f"{self.num_used} of {self.num_cells} draft cells are used")
        owned = {text.id: text for text in self.texts if text.id is not None}
        if owned != self._by_id:
            raise RuntimeError("texts and sequences do not agree")

    def _take(
        self, id: SequenceId, history: History, present: Collection[SequenceId]
    ) -> DraftText | None:
        """Take the free text with the longest common prefix, or the least recently used text."""
        free = [text for text in self.texts if text.id is None]
        if free:
            tokens = history.token_ids(0, max(len(text.tokens) for text in free))
            text = max(free, key=lambda each: (num_alike(each.tokens, tokens), -each.last_used))
        else:
            others = [text for text in self.texts if text.id not in present]
            if not others:
                return None
            text = min(others, key=lambda each: each.last_used)
            if text.id is not None:
                del self._by_id[text.id]
        fresh = DraftText(text.slot, id, text.tokens, debt=text.debt)
        self.texts[text.slot] = self._by_id[id] = fresh
        return fresh


def num_alike(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix of two texts."""
    length = min(len(one), len(other))
    one, other = list(one[:length]), list(other[:length])
    if one == other:
        return length
    return bisect_left(range(length), True, key=lambda end: one[: end + 1] != other[: end + 1])
