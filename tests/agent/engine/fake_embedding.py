"""A model whose vectors say which tokens they were made of."""

from collections.abc import Sequence

import numpy as np

from arriero.agent.engine.embedding.embedding_plan import Slice
from arriero.agent.engine.embedding.pooling import Rows
from arriero.shared.errors import EngineFailed
from arriero.shared.queries import Pooling


class FakeContext:
    """A token's vector is its id and its position; a pooled one, their sums over the slice."""

    max_batch = 8
    max_sequences = 3

    def __init__(self, *, max_tokens: int, splits: bool, pools: bool) -> None:
        self.max_tokens = max_tokens
        self.splits = splits
        self.pools = pools
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
        return [each.sum(axis=0, keepdims=True) for each in rows] if self.pools else rows

    def clear(self) -> None:
        self.num_cleared += 1

    def free(self) -> None:
        self.is_free = True


class FakeEmbedding:
    """Opens such contexts; `opened` are all of them."""

    def __init__(self, default_pooling: Pooling = "mean", *, splits: bool = True) -> None:
        self.default_pooling: Pooling = default_pooling
        self.can_rank = default_pooling == "rank"
        self.splits = splits
        self.opened: list[tuple[Pooling, FakeContext]] = []

    @property
    def context(self) -> FakeContext:
        return self.opened[-1][1]

    def open(self, pooling: Pooling) -> FakeContext:
        pools = pooling == "rank" or not self.splits
        context = FakeContext(max_tokens=20, splits=self.splits, pools=pools)
        self.opened.append((pooling, context))
        return context

    def pair(self, query: str, document: str) -> tuple[int, ...]:
        return tuple(query.encode() + b"|" + document.encode())
