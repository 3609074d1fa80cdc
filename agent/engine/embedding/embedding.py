"""The port to a model that makes embeddings; llama.cpp's is `llama.embedding`.

The model belongs to one thread. Computing requires the engine's turn; opening and freeing a
context does not.
"""

from collections.abc import Sequence
from typing import Protocol

from ....shared.queries import Pooling
from .embedding_plan import Slice
from .pooling import Rows


class EmbeddingContext(Protocol):
    """Computes with the model's weights.

    `num_cells` is the size of its KV cache; 0 means no cache.
    """

    @property
    def num_cells(self) -> int: ...

    def compute(self, slices: Sequence[Slice]) -> list[Rows]:
        """Return a row for each token of each slice; for a ranking, one row with the score.

        Raises `EngineFailed`. After that, call `clear` and start over.
        """

    def clear(self) -> None:
        """Forget the state of incomplete inputs."""

    def free(self) -> None:
        """Free everything; nothing may be called afterwards."""


class EmbeddingModel(Protocol):
    """The weights, from which contexts are opened.

    `max_tokens` is the longest input, `max_batch` the largest chunk, and `max_sequences` the
    maximum number of inputs in one chunk. If `splits` is false, an input must be computed in one
    chunk.
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
    def default_pooling(self) -> Pooling: ...
    @property
    def can_rank(self) -> bool: ...

    def open(self, num_tokens: int, *, ranks: bool) -> EmbeddingContext:
        """Return a context for inputs of at most `num_tokens`, to embed or to rank them.

        Raises `EngineFailed` if memory does not suffice for a context.
        """

    def pair(self, query: str, document: str) -> tuple[int, ...]:
        """Return the tokens of `query` and `document` that the model ranks. Thread-safe."""
