"""Embeds and ranks with a second context over the weights that generate.

The context is opened when it is first needed, for one pooling at a time, and kept. The embedder has
a thread of its own, so it never holds up what is sent or prepared; the contexts share the machine's
cores, though, so its chunks and the engine's steps take turns. A chunk is as large as takes half of
`max_stall`, by what chunks have cost: a running stream never waits longer for it than for prompts.
Inputs that have to be seen whole are the exception, of models that cannot generate anyway (or of
those that rank).

All of it is called on that one thread, except for the constructor.
"""

import base64
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import assert_never

from ....shared.errors import EngineFailed, InvalidRequest, PromptTooLong, RequestError, to_wire
from ....shared.queries import (
    Declined,
    Embed,
    Embedded,
    EmbedInput,
    Norm,
    Pooling,
    Rank,
    Ranked,
    Score,
    Vector,
)
from ..fair_lock import FairLock
from ..loaded_model import Vocab
from .chunk_size import ChunkSize
from .embedding import EmbeddingContext, EmbeddingModel
from .embedding_plan import EmbeddingPlan, Slice
from .pooling import Pool, Rows, normalized

IsWanted = Callable[[], bool]
Tokens = tuple[int, ...]


class Withdrawn(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True)
class _Opened:
    pooling: Pooling
    context: EmbeddingContext
    size: ChunkSize


class Embedder:
    """`max_stall` in seconds. `clock` measures how long chunks take."""

    def __init__(
        self,
        model: EmbeddingModel,
        vocab: Vocab,
        lock: FairLock,
        *,
        max_stall: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._vocab = vocab
        self._lock = lock
        self._seconds = max_stall / 2
        self._clock = clock
        self._opened: _Opened | None = None

    def answer(self, query: Embed | Rank, is_wanted: IsWanted) -> Embedded | Ranked | Declined:
        """The answer. Raises `Withdrawn` as soon as nobody waits for it."""
        try:
            match query:
                case Embed():
                    return self._embed(query, is_wanted)
                case Rank():
                    return self._rank(query, is_wanted)
                case _:
                    assert_never(query)
        except RequestError as error:
            return Declined(error=to_wire(error))

    def free(self) -> None:
        """Give the context back, if the engine has not taken the weights with it already."""
        try:
            with self._lock:
                self._drop_context()
        except EngineFailed:
            return

    def _embed(self, query: Embed, is_wanted: IsWanted) -> Embedded:
        pooling = query.pooling or self._model.default_pooling
        if pooling == "rank" and not self._model.can_rank:
            raise InvalidRequest(
                "`pooling`: this model does not rank; choose mean, cls or last", field="pooling"
            )
        norm: Norm = "none" if pooling == "rank" else query.normalize
        opened = self._open(pooling)
        inputs = [self._tokens(each, opened.context.max_tokens) for each in query.inputs]
        rows = self._compute(opened, inputs, is_wanted)
        return Embedded(
            vectors=tuple(
                Vector(error=to_wire(tokens))
                if isinstance(tokens, RequestError)
                else _vector(_shortened(next(rows), query.dimensions), norm, len(tokens))
                for tokens in inputs
            )
        )

    def _rank(self, query: Rank, is_wanted: IsWanted) -> Ranked:
        if not self._model.can_rank:
            raise InvalidRequest("this model does not rank; a reranker does", field="model")
        opened = self._open("rank")
        pairs = (self._model.pair(query.query, each) for each in query.documents)
        inputs = [_fitting(pair, opened.context.max_tokens) for pair in pairs]
        rows = self._compute(opened, inputs, is_wanted)
        return Ranked(
            scores=tuple(
                Score(error=to_wire(tokens))
                if isinstance(tokens, RequestError)
                else Score(score=_score(next(rows)), num_tokens=len(tokens))
                for tokens in inputs
            )
        )

    def _tokens(self, given: EmbedInput, most: int) -> Tokens | RequestError:
        if isinstance(given, str):
            tokens = self._vocab.tokenize(given, add_special=True, parse_special=False)
            return _fitting(tokens, most)
        unknown = next((token for token in given if token >= self._vocab.size), None)
        if unknown is None:
            return _fitting(given, most)
        return InvalidRequest(
            f"there is no token {unknown}; this model's ids go up to {self._vocab.size - 1}"
        )

    def _open(self, pooling: Pooling) -> "_Opened":
        if self._opened is None or self._opened.pooling != pooling:
            with self._lock:
                self._drop_context()
                context = self._model.open(pooling)
            self._opened = _Opened(pooling, context, ChunkSize(self._seconds, context.max_batch))
        return self._opened

    def _drop_context(self) -> None:
        if self._opened is not None:
            self._opened.context.free()
            self._opened = None

    def _compute(
        self, opened: "_Opened", inputs: Sequence[Tokens | RequestError], is_wanted: IsWanted
    ) -> Iterator[Rows]:
        """The vectors of the inputs that are tokens, in their order."""
        context = opened.context
        known = [each for each in inputs if not isinstance(each, RequestError)]
        pools = [Pool("last" if context.pools else opened.pooling) for _ in known]
        plan = EmbeddingPlan(known, max_sequences=context.max_sequences, splits=context.splits)
        try:
            while not plan.is_done:
                if not is_wanted():
                    raise Withdrawn
                chunk = plan.next(opened.size.num_tokens)
                for part, rows in zip(chunk, self._step(opened, chunk), strict=True):
                    pools[part.number].add(rows)
        except (EngineFailed, Withdrawn):
            with self._lock:
                context.clear()
            raise
        return iter([pool.vector() for pool in pools])

    def _step(self, opened: "_Opened", chunk: Sequence[Slice]) -> list[Rows]:
        with self._lock:
            started = self._clock()
            rows = opened.context.compute(chunk)
            seconds = self._clock() - started
        opened.size.observe(sum(len(part.tokens) for part in chunk), seconds)
        return rows


def _fitting(tokens: Tokens, most: int) -> Tokens | RequestError:
    if not tokens:
        return InvalidRequest("there is no text in it")
    if len(tokens) > most:
        return PromptTooLong(f"it is {len(tokens)} tokens long; at most {most} fit")
    return tokens


def _shortened(vector: Rows, dimensions: int | None) -> Rows:
    if dimensions is not None and dimensions > vector.size:
        raise InvalidRequest(
            f"`dimensions`: this model's vectors have {vector.size}, not {dimensions}",
            field="dimensions",
        )
    return vector[:dimensions]


def _vector(vector: Rows, norm: Norm, num_tokens: int) -> Vector:
    data = normalized(vector, norm).astype("<f4").tobytes()
    return Vector(vector=base64.b64encode(data).decode(), num_tokens=num_tokens)


def _score(vector: Rows) -> float:
    score = float(vector[0])
    if not isfinite(score):
        raise EngineFailed("the model's score is no number")
    return score
