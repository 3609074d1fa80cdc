"""Answers queries, each kind on a thread of its own, so that none waits for generation.

Tokens do not wait for vectors, nor short texts for long ones. Called on the event loop's thread
only, and replies there. The sessions bound how many queries may wait.
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
    Embed,
    Query,
    Rank,
    Result,
    TextQuery,
    Tokenize,
)
from ..engine.embedding.embedder import Withdrawn
from .port import Ticket
from .text_length import LONG_TEXT, is_long

logger = logging.getLogger(__name__)


class TextQueries(Protocol):
    """See `text_queries.TextQueries`."""

    def answer(self, query: TextQuery, /) -> Result: ...


class Embedder(Protocol):
    """See `engine.embedding.embedder.Embedder`."""

    def answer(self, query: Embed | Rank, is_wanted: Callable[[], bool], /) -> Result: ...
    def free(self) -> None: ...


class QueryExecutor:
    """Without an `embedder` the model makes no vectors."""

    def __init__(self, texts: TextQueries, embedder: Embedder | None) -> None:
        self._texts = texts
        self._embedder = embedder
        self._text_thread = ThreadPoolExecutor(1, thread_name_prefix="texts")
        self._long_text_thread = ThreadPoolExecutor(1, thread_name_prefix="texts-long")
        self._embedding_thread = ThreadPoolExecutor(1, thread_name_prefix="embed")
        self._withdrawn: dict[Ticket, Event] = {}

    def answer(self, ticket: Ticket, query: Query, reply: Callable[[Result], None]) -> None:
        """See `port.Queries`."""
        withdrawn = self._withdrawn[ticket] = Event()
        try:
            future = self._thread_for(query).submit(
                self._result, query, lambda: not withdrawn.is_set()
            )
        except Exception:  # the boundary of queries, as in `_result`
            del self._withdrawn[ticket]
            reply(_failed())
        else:
            asyncio.wrap_future(future).add_done_callback(partial(self._finished, ticket, reply))

    def withdraw(self, ticket: Ticket) -> None:
        """See `port.Queries`."""
        if (withdrawn := self._withdrawn.pop(ticket, None)) is not None:
            withdrawn.set()

    def close(self) -> None:
        """Answer nothing any more; blocks until what is being computed has stopped."""
        for withdrawn in self._withdrawn.values():
            withdrawn.set()
        for thread in (self._text_thread, self._long_text_thread, self._embedding_thread):
            thread.shutdown(cancel_futures=True)
        if self._embedder is not None:
            self._embedder.free()

    def _thread_for(self, query: Query) -> ThreadPoolExecutor:
        match query:
            case CountTokens(request=request) if is_long(request):
                return self._long_text_thread
            case Tokenize(text=text) if len(text) > LONG_TEXT:
                return self._long_text_thread
            case Embed() | Rank():
                return self._embedding_thread
            case _:
                return self._text_thread

    def _result(self, query: Query, is_wanted: Callable[[], bool]) -> Result | None:
        """Runs on a thread. `None` if the query was withdrawn."""
        if not is_wanted():
            return None
        try:
            return self._answer(query, is_wanted)
        except Withdrawn:
            return None
        except RequestError as error:
            return Declined(error=to_wire(error))
        except Exception:  # the boundary of queries: everything is logged and the client answered
            return _failed()

    def _answer(self, query: Query, is_wanted: Callable[[], bool]) -> Result:
        if not isinstance(query, Embed | Rank):
            return self._texts.answer(query)
        if self._embedder is None:
            raise NotSupported("this agent's model makes no embeddings")
        return self._embedder.answer(query, is_wanted)

    def _finished(
        self,
        ticket: Ticket,
        reply: Callable[[Result], None],
        future: "asyncio.Future[Result | None]",
    ) -> None:
        if self._withdrawn.pop(ticket, None) is None or future.cancelled():
            return
        if (result := future.result()) is not None:
            reply(result)


def _failed() -> Declined:
    """While an exception is handled: it is logged."""
    logger.exception("a query could not be answered")
    failed = InternalError("the agent failed to answer the query; its log has the details")
    return Declined(error=to_wire(failed))
