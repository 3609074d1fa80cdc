"""Embeddings from a second context over the same weights.

A model with a KV cache and causal attention reads a long input in chunks, so that generation gets
its turn in between. Other models must compute an input as a whole.

llama.cpp pools only within one chunk, and a context pools in only one way. So the caller does the
pooling, and one context serves all poolings except `rank`. `rank` needs the model's classification
head, which reads the last token. So a ranking is the output of the last chunk.
"""

from collections.abc import Callable, Sequence
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import numpy as np

from ....shared.errors import EngineFailed
from ....shared.queries import Pooling
from ..embedding.embedding_plan import Slice
from ..embedding.pooling import Rows
from ..load_options import LoadOptions
from ..sequence import SequenceId
from ..step import Run
from .context import Batch, context_params
from .log import route_log
from .model import Model

MAX_SEQUENCES = 16
"""Maximum inputs of a chunk; each input costs a row in every graph."""
_LOGITS_BYTES = 64 * 1024 * 1024
"""Maximum bytes of a chunk's logits: llama.cpp computes and keeps logits for each token."""


class LlamaEmbedding:
    """`embedding.EmbeddingModel` over a loaded model; an input has at most a slot's tokens."""

    def __init__(self, model: Model, options: LoadOptions, *, has_memory: bool) -> None:
        self._model = model
        self._options = options
        self._has_memory = has_memory
        self.splits = has_memory and model.is_causal
        self.max_tokens = min(options.slot_tokens, model.longest_context(options))
        self.max_batch = self._chunk() if self.splits else self.max_tokens
        self.max_sequences = MAX_SEQUENCES
        self.default_pooling: Pooling = model.pooling or "mean"
        self.can_rank = model.pooling == "rank"
        self.threads = (options.threads, options.threads_batch or options.threads)
        """The threads for chunks of one token, and for larger ones; set at the next chunk."""

    def _chunk(self) -> int:
        fitting = _LOGITS_BYTES // (4 * self._model.vocab.size)
        return max(MAX_SEQUENCES, min(self._options.ubatch_size, fitting))

    def open(self, num_tokens: int, *, ranks: bool) -> "LlamaEmbeddingContext":
        """Return a context for inputs of at most `num_tokens`, to embed them or to rank them."""
        chunk = self.max_batch if self.splits else num_tokens
        num_cells = num_tokens + (chunk if self.splits else 0)
        params = _params(self._options, num_cells=num_cells, chunk=chunk, ranks=ranks)
        with self._model.adapters_guard, route_log().hold_errors() as errors:
            handle = llama_cpp.llama_init_from_model(self._model.handle, params)
        if not handle:
            raise EngineFailed(f"there is no room for embeddings: {'; '.join(errors)}")
        return LlamaEmbeddingContext(
            handle,
            self._model,
            num_cells=num_cells if self._has_memory else 0,
            max_batch=chunk,
            num_scores=self._model.num_scores if ranks else None,
            threads=lambda: self.threads,
        )

    def pair(self, query: str, document: str) -> tuple[int, ...]:
        """Return the pair in llama-server's format, so that both servers rank alike."""
        return self._model.pair(query, document)


class LlamaEmbeddingContext:
    """`embedding.EmbeddingContext`; for ranking it returns `num_scores` numbers."""

    def __init__(
        self,
        handle: Any,
        model: Model,
        *,
        num_cells: int,
        max_batch: int,
        num_scores: int | None,
        threads: Callable[[], tuple[int, int]],
    ) -> None:
        self.num_cells = num_cells
        self._ranks = num_scores is not None
        self._handle = handle
        self._memory = llama_cpp.llama_get_memory(handle)
        self._size = num_scores or llama_cpp.llama_model_n_embd_out(model.handle)
        self._batch = Batch(max_batch)
        self._threads = threads

    def compute(self, slices: Sequence[Slice]) -> list[Rows]:
        """Return a row for each token of each slice; for a ranking, one row with the score."""
        self._batch.fill([_run(each) for each in slices])
        llama_cpp.llama_set_n_threads(self._handle, *self._threads())
        step = llama_cpp.llama_decode if self._memory else llama_cpp.llama_encode
        code = step(self._handle, self._batch.raw)
        if code != 0:
            raise EngineFailed(f"llama.cpp could not compute the embeddings (code {code})")
        rows = self._scores(slices) if self._ranks else self._rows(slices)
        for each in slices:
            if self._memory and each.is_last:
                llama_cpp.llama_memory_seq_rm(self._memory, _sequence(each), -1, -1)
        return rows

    def clear(self) -> None:
        """Forget the state of incomplete inputs."""
        if self._memory:
            llama_cpp.llama_memory_clear(self._memory, False)

    def free(self) -> None:
        """Free everything; nothing may be called afterwards."""
        llama_cpp.llama_free(self._handle)

    def _rows(self, slices: Sequence[Slice]) -> list[Rows]:
        """Return the vectors of all tokens, in the order of the batch."""
        first = llama_cpp.llama_get_embeddings(self._handle)
        counts = [len(each.tokens) for each in slices]
        rows = np.ctypeslib.as_array(first, (sum(counts), self._size)).copy()
        return np.split(rows, np.cumsum(counts)[:-1])

    def _scores(self, slices: Sequence[Slice]) -> list[Rows]:
        return [self._score(_sequence(each)) for each in slices]

    def _score(self, sequence: int) -> Rows:
        first = llama_cpp.llama_get_embeddings_seq(self._handle, sequence)
        return np.ctypeslib.as_array(first, (1, self._size)).copy()


def _params(options: LoadOptions, *, num_cells: int, chunk: int, ranks: bool) -> Any:
    params = context_params(options)
    params.n_ctx = num_cells
    params.n_batch = params.n_ubatch = chunk
    params.n_seq_max = MAX_SEQUENCES
    params.kv_unified = True
    params.embeddings = True
    params.pooling_type = (
        llama_cpp.LLAMA_POOLING_TYPE_RANK if ranks else llama_cpp.LLAMA_POOLING_TYPE_NONE
    )
    return params


def _run(part: Slice) -> Run:
    """Return a run that outputs every token's vector."""
    return Run(
        SequenceId(0),
        _sequence(part),
        part.start,
        part.tokens,
        samples=True,
        num_drafted=len(part.tokens) - 1,
    )


def _sequence(part: Slice) -> int:
    """Return the `seq_id` of an input; inputs of one chunk are consecutive, so ids differ."""
    return part.number % MAX_SEQUENCES
