"""Has queries answered, each kind on threads of its own, so that none waits for generation.

What only needs the vocabulary does not wait for embeddings either. Called on the event loop's
thread only, and replies there; how many may wait is bounded by what sessions take on.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Protocol

from ...shared.errors import InternalError, NotSupported, RequestError, to_wire
from ...shared.queries import (
    CountTokens,
    Declined,
    Detokenize,
    Embed,
    Query,
    Rank,
    Result,
    Tokenize,
)
from ..engine.embedding.embedder import Withdrawn
from ..engine.sequence import SequenceId

logger = logging.getLogger(__name__)


class TextQueries(Protocol):
    """See `chat.text_desk.TextDesk`."""

    def answer(self, query: Tokenize | Detokenize | CountTokens, /) -> Result: ...


class Embedder(Protocol):
    """See `engine.embedder.Embedder`."""

    def answer(self, query: Embed | Rank, is_wanted: Callable[[], bool], /) -> Result: ...
    def free(self) -> None: ...


class QueryExecutor:
    """Without an `embedder` the model makes no vectors."""

    def __init__(self, texts: TextQueries, embedder: Embedder | None) -> None:
        self._texts = texts
        self._embedder = embedder
        self._text_thread = ThreadPoolExecutor(1, thread_name_prefix="texts")
        self._embedding_thread = ThreadPoolExecutor(1, thread_name_prefix="embed")
        self._withdrawn: dict[SequenceId, Event] = {}

    def consult(self, id: SequenceId, query: Query, reply: Callable[[Result], None]) -> None:
        """Have `query` answered; `reply` hears the result, unless it is dismissed."""
        withdrawn = self._withdrawn[id] = Event()
        is_text = isinstance(query, Tokenize | Detokenize | CountTokens)
        thread = self._text_thread if is_text else self._embedding_thread
        future = thread.submit(self._result, query, lambda: not withdrawn.is_set())
        asyncio.wrap_future(future).add_done_callback(partial(self._finished, id, reply))

    def dismiss(self, id: SequenceId) -> None:
        """Nobody waits for this answer any more."""
        if (withdrawn := self._withdrawn.pop(id, None)) is not None:
            withdrawn.set()

    def close(self) -> None:
        """Answer nothing any more; blocks until what is being computed has stopped."""
        for withdrawn in self._withdrawn.values():
            withdrawn.set()
        self._text_thread.shutdown(cancel_futures=True)
        self._embedding_thread.shutdown(cancel_futures=True)
        if self._embedder is not None:
            self._embedder.free()

    def _result(self, query: Query, is_wanted: Callable[[], bool]) -> Result | None:
        """On a thread; `None` when nobody waits for it any more."""
        if not is_wanted():
            return None
        try:
            return self._answer(query, is_wanted)
        except Withdrawn:
            return None
        except RequestError as error:
            return Declined(error=to_wire(error))
        except Exception:  # the boundary of queries: everything is logged and the client answered
            logger.exception("a query could not be answered")
            failed = InternalError("the agent failed to answer the query; its log has the rest")
            return Declined(error=to_wire(failed))

    def _answer(self, query: Query, is_wanted: Callable[[], bool]) -> Result:
        if isinstance(query, Tokenize | Detokenize | CountTokens):
            return self._texts.answer(query)
        if self._embedder is None:
            raise NotSupported("this agent's model makes no embeddings")
        return self._embedder.answer(query, is_wanted)

    def _finished(
        self,
        id: SequenceId,
        reply: Callable[[Result], None],
        future: "asyncio.Future[Result | None]",
    ) -> None:
        if self._withdrawn.pop(id, None) is None or future.cancelled():
            return
        if (result := future.result()) is not None:
            reply(result)
