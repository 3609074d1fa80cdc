"""What the embedder needs of whatever turns tokens into vectors; llama.cpp's is `llama.embedding`.

All of it belongs to one thread, and is used while it holds the engine's turn.
"""

from collections.abc import Sequence
from typing import Protocol

from ....shared.queries import Pooling
from .embedding_plan import Slice
from .pooling import Rows


class EmbeddingContext(Protocol):
    """Computes with the model's weights, for one pooling.

    `max_tokens` is the longest input, `max_batch` the largest chunk, `max_sequences` the most
    inputs in one. Not `splits`: an input has to be in one chunk. `pools`: it gives one row for each
    slice, which is the pooled vector already.
    """

    @property
    def max_tokens(self) -> int: ...
    @property
    def max_batch(self) -> int: ...
    @property
    def max_sequences(self) -> int: ...
    @property
    def splits(self) -> bool: ...
    @property
    def pools(self) -> bool: ...

    def compute(self, slices: Sequence[Slice]) -> list[Rows]:
        """The vectors of each slice. Raises `EngineFailed`; then start over with `clear`."""

    def clear(self) -> None:
        """Forget what inputs that are not complete have left behind."""

    def free(self) -> None:
        """Give everything back; nothing may be called afterwards."""


class EmbeddingModel(Protocol):
    """The weights, as a source of contexts."""

    @property
    def default_pooling(self) -> Pooling: ...
    @property
    def can_rank(self) -> bool: ...

    def open(self, pooling: Pooling) -> EmbeddingContext:
        """Raises `EngineFailed` when there is no memory for one."""

    def pair(self, query: str, document: str) -> tuple[int, ...]:
        """The tokens by which the model ranks `document`; from any thread."""
