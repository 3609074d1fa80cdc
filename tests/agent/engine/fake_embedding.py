"""A model whose vectors say which tokens they were made of."""

from collections.abc import Callable, Sequence

import numpy as np

from arriero.agent.engine.embedding.embedding_plan import Slice
from arriero.agent.engine.embedding.pooling import Rows
from arriero.shared.errors import EngineFailed
from arriero.shared.queries import Pooling


class FakeContext:
    """A token's vector is its id and its position; a ranking's, their sums over the slice."""

    def __init__(self, num_cells: int, *, ranks: bool) -> None:
        self.num_cells = num_cells
        self.ranks = ranks
        self.chunks: list[tuple[Slice, ...]] = []
        self.fails_at: int | None = None
        self.num_cleared = 0
        self.is_free = False

    def compute(self, slices: Sequence[Slice]) -> list[Rows]:
        if self.is_free:
            raise AssertionError("computing without a context")
        if len(self.chunks) == self.fails_at:
            raise EngineFailed("the batch did not compute")
        self.chunks.append(tuple(slices))
        rows = [
            np.array([(token, part.start + i) for i, token in enumerate(part.tokens)], np.float32)
            for part in slices
        ]
        return [each.sum(axis=0, keepdims=True) for each in rows] if self.ranks else rows

    def clear(self) -> None:
        self.num_cleared += 1

    def free(self) -> None:
        self.is_free = True


class FakeEmbedding:
    """Opens such contexts; `opened` are all of them. `on_open` is called before one is."""

    max_batch = 8
    max_sequences = 3

    def __init__(
        self, default_pooling: Pooling = "mean", *, splits: bool = True, max_tokens: int = 20
    ) -> None:
        self.default_pooling: Pooling = default_pooling
        self.can_rank = default_pooling == "rank"
        self.splits = splits
        self.max_tokens = max_tokens
        self.opened: list[FakeContext] = []
        self.on_open: Callable[[], None] = lambda: None

    @property
    def context(self) -> FakeContext:
        return self.opened[-1]

    def open(self, num_tokens: int, *, ranks: bool) -> FakeContext:
        self.on_open()
        context = FakeContext(num_tokens + self.max_batch, ranks=ranks)
        self.opened.append(context)
        return context

    def pair(self, query: str, document: str) -> tuple[int, ...]:
        return tuple(query.encode() + b"|" + document.encode())
