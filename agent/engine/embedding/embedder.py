"""Embeds and ranks texts, in contexts of its own over the weights that generate.

There are at most two contexts: one embeds with any pooling, one ranks. A context is opened on
first use, large enough for the longest input so far, and stays open. Opening takes no turn, so no
stream waits for it.

The embedder has a thread of its own, so it never delays sending or preparation. The contexts share
the machine's cores with the engine, so chunks and steps take turns. The cost of earlier chunks
decides the size of a chunk: it should take half of `max_stall`. So a running stream waits no
longer for a chunk than for prompts. This does not hold for models that must compute an input as a
whole, but these models cannot generate (or they rank).

All methods except the constructor and `num_cells` are called on the embedder's thread.
"""

import base64
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal, assert_never

from ....shared.errors import EngineFailed, InvalidRequest, PromptTooLong, RequestError, to_wire
from ....shared.inference import within
from ....shared.queries import (
    MOST_SCORE,
    Declined,
    Embed,
    Embedded,
    EmbedInput,
    Norm,
    Pooling,
    Rank,
    Ranked,
    Score,
    Truncation,
    Vector,
)
from ..fair_lock import FairLock
from ..loaded_model import Vocab
from ..withdrawal import Withdrawn, check_wanted
from .embedding import EmbeddingContext, EmbeddingModel
from .embedding_plan import EmbeddingPlan, Slice
from .pooling import Pool, Rows, normalized

logger = logging.getLogger(__name__)

LEAST_CHUNK = 16
"""Tokens of the first chunk, and minimum of any chunk: a smaller chunk costs nearly as much."""

_NEWEST = 0.3
"""The weight of the newest chunk in the cost of a token."""

LEAST_OPENED = 512
"""Minimum tokens of a context: a smaller context costs as much, and must be replaced sooner."""

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Input:
    """The tokens that are read from an input, and the number of tokens cut off."""

    tokens: Tokens
    num_cut: int = 0


@dataclass(frozen=True, slots=True)
class _Opened:
    """A context for inputs of at most `num_tokens`."""

    num_tokens: int
    context: EmbeddingContext


class Embedder:
    """Answers embedding and ranking queries. `max_stall` in seconds; `clock` times chunks.

    `on_change` is called, on the embedder's thread, when `num_cells` has changed.
    """

    def __init__(
        self,
        model: EmbeddingModel,
        vocab: Vocab,
        lock: FairLock,
        *,
        max_stall: float,
        clock: Callable[[], float] = time.perf_counter,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._model = model
        self._vocab = vocab
        self._lock = lock
        self._clock = clock
        self._on_change = on_change
        self._opened: dict[bool, _Opened] = {}  # by whether it ranks
        self._sizes = {ranks: ChunkSize(max_stall / 2, model.max_batch) for ranks in (False, True)}

    @property
    def num_cells(self) -> int:
        """The number of cells in the open KV caches. Thread-safe."""
        return sum(each.context.num_cells for each in tuple(self._opened.values()))

    def answer(self, query: Embed | Rank) -> Embedded | Ranked | Declined:
        """Return the answer. Raises `Withdrawn` as soon as the query is withdrawn."""
        try:
            match query:
                case Embed():
                    return self._embed(query)
                case Rank():
                    return self._rank(query)
                case _:
                    assert_never(query)
        except RequestError as error:
            return Declined(error=to_wire(error))

    def free(self) -> None:
        """Free the contexts, unless the engine has already freed the weights."""
        try:
            with self._lock.sharing():
                for ranks in tuple(self._opened):
                    self._opened.pop(ranks).context.free()
        except EngineFailed:
            return

    def _embed(self, query: Embed) -> Embedded:
        pooling = query.pooling or self._model.default_pooling
        if pooling == "rank" and not self._model.can_rank:
            raise InvalidRequest(
                "`pooling`: this model does not rank; choose mean, cls or last", field="pooling"
            )
        norm: Norm = "none" if pooling == "rank" else query.normalize
        inputs = [self._input(each, query.truncation) for each in query.inputs]
        rows = self._compute(pooling, inputs)
        return Embedded(
            vectors=tuple(
                Vector(error=to_wire(given))
                if isinstance(given, RequestError)
                else _vector(_shortened(next(rows), query.dimensions), norm, given)
                for given in inputs
            )
        )

    def _rank(self, query: Rank) -> Ranked:
        if not self._model.can_rank:
            raise InvalidRequest("this model does not rank; a reranker does", field="model")
        documents = (self._head(each, query.max_document_tokens) for each in query.documents)
        pairs = (self._model.pair(query.query, each) for each in documents)
        inputs = [self._fitting(_Input(pair)) for pair in pairs]
        rows = self._compute("rank", inputs)
        return Ranked(
            scores=tuple(
                Score(error=to_wire(given))
                if isinstance(given, RequestError)
                else Score(score=_score(next(rows)), num_tokens=len(given.tokens))
                for given in inputs
            )
        )

    def _input(self, given: EmbedInput, truncation: Truncation | None) -> _Input | RequestError:
        if isinstance(given, str):
            tokens = self._vocab.tokenize(given, add_special=True, parse_special=False)
            return self._fitting(self._cut(tokens, truncation, is_text=True))
        unknown = next((token for token in given if token >= self._vocab.size), None)
        if unknown is None:
            return self._fitting(self._cut(given, truncation, is_text=False))
        return InvalidRequest(
            f"there is no token {unknown}; this model's ids go up to {self._vocab.size - 1}"
        )

    def _cut(self, tokens: Tokens, truncation: Truncation | None, *, is_text: bool) -> _Input:
        if truncation is None:
            return _Input(tokens)
        most = min(truncation.most or self._model.max_tokens, self._model.max_tokens)
        if len(tokens) <= most:
            return _Input(tokens)
        around = self._vocab.tokenize("", add_special=True, parse_special=False) if is_text else ()
        return _Input(truncated(tokens, around, most, truncation.keeps), len(tokens) - most)

    def _head(self, document: str, most: int | None) -> str:
        """Return the text of the first `most` tokens of `document`."""
        if most is None:
            return document
        tokens = self._vocab.tokenize(document, add_special=False, parse_special=False)
        if len(tokens) <= most:
            return document
        return b"".join(map(self._vocab.piece, tokens[:most])).decode(errors="ignore")

    def _fitting(self, given: _Input) -> _Input | RequestError:
        most = self._model.max_tokens
        if not given.tokens:
            return InvalidRequest("it is empty")
        if len(given.tokens) > most:
            return PromptTooLong.of(len(given.tokens), most)
        return given

    def _context(self, longest: int, *, ranks: bool) -> EmbeddingContext:
        """Return a context for inputs of `longest` tokens. A context that is too small is
        replaced.
        """
        opened = self._opened.get(ranks)
        if opened is not None and opened.num_tokens >= longest:
            return opened.context
        num_tokens = min(_power_of_two(max(longest, LEAST_OPENED)), self._model.max_tokens)
        with self._lock.sharing():
            if opened is not None:
                self._opened.pop(ranks).context.free()
            context = self._model.open(num_tokens, ranks=ranks)
        self._opened[ranks] = _Opened(num_tokens, context)
        logger.info(
            "a context that %s inputs of up to %d tokens has %d cells (maximum: %d tokens)",
            "ranks" if ranks else "embeds",
            num_tokens,
            context.num_cells,
            self._model.max_tokens,
        )
        self._on_change()
        return context

    def _compute(self, pooling: Pooling, inputs: Sequence[_Input | RequestError]) -> Iterator[Rows]:
        """Return the vectors of those inputs that consist of tokens, in order."""
        known = [each.tokens for each in inputs if not isinstance(each, RequestError)]
        if not known:
            return iter(())
        ranks = pooling == "rank"
        context = self._context(max(map(len, known)), ranks=ranks)
        pools = [Pool(pooling) for _ in known]
        plan = EmbeddingPlan(
            known, max_sequences=self._model.max_sequences, splits=self._model.splits
        )
        try:
            while not plan.is_done:
                check_wanted()
                chunk = plan.next(self._sizes[ranks].num_tokens)
                for part, rows in zip(chunk, self._step(context, chunk, ranks=ranks), strict=True):
                    pools[part.number].add(rows)
        except (EngineFailed, Withdrawn):
            with self._lock:
                context.clear()
            raise
        return iter([pool.vector() for pool in pools])

    def _step(
        self, context: EmbeddingContext, chunk: Sequence[Slice], *, ranks: bool
    ) -> list[Rows]:
        with self._lock:
            started = self._clock()
            rows = context.compute(chunk)
            seconds = self._clock() - started
        self._sizes[ranks].observe(sum(len(part.tokens) for part in chunk), seconds)
        return rows


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _shortened(vector: Rows, dimensions: int | None) -> Rows:
    if dimensions is not None and dimensions > vector.size:
        raise InvalidRequest(
            f"`dimensions`: this model's vectors have {vector.size}, not {dimensions}",
            field="dimensions",
        )
    return vector[:dimensions]


def truncated(tokens: Tokens, around: Tokens, most: int, keeps: Literal["first", "last"]) -> Tokens:
    """Return `most` of the `tokens` of a text that has more.

    `around` are the tokens that the model puts around every text: they are kept as far as there is
    room.
    """
    num_before = next(
        (place for place, token in enumerate(around) if tokens[place] != token), len(around)
    )
    num_after = min(len(around) - num_before, max(most - num_before, 0))
    before, after = tokens[:num_before], tokens[len(tokens) - num_after :]
    within = tokens[num_before : len(tokens) - num_after]
    room = most - num_before - num_after
    if room <= 0:
        return (before + after)[:most]
    return before + (within[:room] if keeps == "first" else within[-room:]) + after


def _vector(vector: Rows, norm: Norm, given: _Input) -> Vector:
    data = normalized(vector, norm).astype("<f4").tobytes()
    return Vector(
        vector=base64.b64encode(data).decode(),
        num_tokens=len(given.tokens),
        num_cut=given.num_cut,
    )


def _score(vector: Rows) -> float:
    score = float(vector[0])
    if not isfinite(score):
        raise EngineFailed("the model's score is no number")
    return within(score, -MOST_SCORE, MOST_SCORE)


class ChunkSize:
    """The size of the largest chunk that takes `seconds`, at most `most` tokens."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._seconds_per_token: float | None = None

    @property
    def num_tokens(self) -> int:
        """The size of the next chunk, by the cost of earlier chunks."""
        if self._seconds_per_token is None:
            return min(LEAST_CHUNK, self._most)
        fitting = self._seconds / max(self._seconds_per_token, 1e-9)
        return min(self._most, max(LEAST_CHUNK, int(fitting)))

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Learn that a chunk of `num_tokens` took `seconds`."""
        cost = seconds / num_tokens
        known = self._seconds_per_token
        self._seconds_per_token = cost if known is None else known + _NEWEST * (cost - known)
