"""Tokens of an answer that nobody reads while it is written: told ten times a second.

Each message costs the agent and the balancer more than the engine needs for a token of a small
model. An agent that is lost takes what it held with it, so that much may be computed again.
"""

from collections.abc import Iterable
from itertools import groupby

from ....shared.messages import Item, Piece

EVERY = 0.1
"""Seconds."""


class HeldPieces:
    """What one request gained and its balancer was not told."""

    def __init__(self) -> None:
        self._pieces: list[Item] = []
        self._due = float("-inf")

    def told(self, items: tuple[Item, ...], now: float) -> tuple[Item, ...]:
        """What to tell now: nothing, where `items` are tokens and others were told lately."""
        if now < self._due and all(isinstance(item, Piece) for item in items):
            self._pieces += items
            return ()
        self._due = now + EVERY
        return self.with_rest(items)

    def with_rest(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        """All that was held, and `items` after it."""
        held, self._pieces = self._pieces, []
        return tuple(_joined((*held, *items))) if held else items


def _joined(items: Iterable[Item]) -> Iterable[Item]:
    """Tokens of one kind in a row become one piece."""
    for kind, group in groupby(items, key=_kind):
        if kind is None:
            yield from group
            continue
        pieces = [item for item in group if isinstance(item, Piece)]
        yield Piece(
            id=pieces[0].id,
            text="".join(piece.text for piece in pieces),
            kind=pieces[0].kind,
            tokens=tuple(token for piece in pieces for token in piece.tokens),
        )


def _kind(item: Item) -> str | None:
    """Of a piece that others can join."""
    return item.kind if isinstance(item, Piece) and item.log_probs is None else None
