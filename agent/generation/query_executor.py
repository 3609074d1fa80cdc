"""Answers queries, each kind on its own thread, so that no query waits for generation.

Tokenisation does not wait for embeddings, nor a short text for a long text. Methods are called,
and replies are given, on the event loop's thread only. The sessions limit how many queries may
wait.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Protocol, assert_never

from ...shared.errors import InternalError, InvalidRequest, NotSupported, RequestError, to_wire
from ...shared.queries import (
    MAX_TEXT,
    Counted,
    CountTokens,
    Declined,
    DescribeTokenizer,
    Detokenize,
    Detokenized,
    Embed,
    Query,
    Rank,
    Result,
    TextQuery,
    Tokenize,
    Tokenized,
    TokenizerDescription,
)
from ..engine.loaded_model import Vocab
from ..engine.withdrawal import Withdrawn, check_wanted, while_wanted
from ..thread_pool import thread_pool
from .port import QueryId
from .preparer import Preparer
from .text_length import LONG_TEXT, is_long

logger = logging.getLogger(__name__)


class Embedder(Protocol):
    """Answers embedding and ranking queries. `max_stall` in seconds; `clock` times chunks."""

    def answer(self, query: Embed | Rank, /) -> Result: ...
    def free(self) -> None: ...


class TextQueries:
    """Queries that need only vocabulary and template: tokenise, detokenise, count, describe.

    Thread-safe.
    """

    def __init__(self, vocab: Vocab, preparer: Preparer) -> None:
        self._vocab = vocab
        self.preparer = preparer
        """Prepares the queries that arrive from now on; it may be replaced."""

    def answer(self, query: TextQuery) -> Tokenized | Detokenized | Counted | TokenizerDescription:
        """Answer `query`.

        Raises a `RequestError` that names the field and says which values are right.
        """
        match query:
            case Tokenize():
                return Tokenized(tokens=self._tokenize(query))
            case Detokenize(tokens=tokens):
                return self._detokenize(tokens)
            case CountTokens(request=request):
                return Counted(num_tokens=self.preparer.num_tokens(request))
            case DescribeTokenizer():
                return self._description()
            case _:
                assert_never(query)

    def _description(self) -> TokenizerDescription:
        return TokenizerDescription(
            bos_text=_told(self._vocab.bos_text),
            eos_text=_told(self._vocab.eos_text),
            chat_template=_told(self.preparer.template_text),
        )

    def _tokenize(self, query: Tokenize) -> tuple[int, ...]:
        return self._vocab.tokenize(
            query.text, add_special=query.add_special, parse_special=query.parse_special
        )

    def _detokenize(self, tokens: Sequence[int]) -> Detokenized:
        for position, token in enumerate(tokens):
            if token >= self._vocab.size:
                raise InvalidRequest(
                    f"`tokens[{position}]`: there is no token {token}; this model's ids go up to "
                    f"{self._vocab.size - 1}",
                    field=f"tokens[{position}]",
                )
        data = b"".join(map(self._vocab.piece, tokens))
        try:
            return Detokenized(text=data.decode())
        except UnicodeDecodeError:
            text = data.decode(errors="replace")
            return Detokenized(text=text, bytes_base64=base64.b64encode(data).decode())


def _told(text: str | None) -> str | None:
    return text if text and len(text) <= MAX_TEXT else None


class QueryExecutor:
    """Answers queries on its own threads. Without an `embedder` it makes no embeddings."""

    def __init__(self, texts: TextQueries, embedder: Embedder | None) -> None:
        self._texts = texts
        self._embedder = embedder
        self._text_thread = thread_pool(1, "texts")
        self._long_text_thread = thread_pool(1, "texts-long")
        self._embedding_thread = thread_pool(1, "embed")
        self._withdrawn: dict[QueryId, Event] = {}

    def answer(self, id: QueryId, query: Query, reply: Callable[[Result], None]) -> None:
        """Answer `query`; `reply` gets the result, unless the query is withdrawn before."""
        withdrawn = self._withdrawn[id] = Event()
        try:
            future = self._thread_for(query).submit(
                self._result, query, lambda: not withdrawn.is_set()
            )
        except Exception:  # the boundary of queries, as in `_result`
            del self._withdrawn[id]
            reply(_failed())
        else:
            asyncio.wrap_future(future).add_done_callback(partial(self._finished, id, reply))

    def withdraw(self, id: QueryId) -> None:
        """Withdraw the query: its result is no longer needed."""
        if (withdrawn := self._withdrawn.pop(id, None)) is not None:
            withdrawn.set()

    def close(self) -> None:
        """Answer no more queries; block until running computations have stopped."""
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
        """Compute the result on a thread; return `None` if the query was withdrawn."""
        try:
            with while_wanted(is_wanted):
                check_wanted()
                return self._answer(query)
        except Withdrawn:
            return None
        except RequestError as error:
            return Declined(error=to_wire(error))
        except Exception:  # the boundary of queries: everything is logged and the client answered
            return _failed()

    def _answer(self, query: Query) -> Result:
        if not isinstance(query, Embed | Rank):
            return self._texts.answer(query)
        if self._embedder is None:
            raise NotSupported("this agent's model makes no embeddings")
        return self._embedder.answer(query)

    def _finished(
        self,
        id: QueryId,
        reply: Callable[[Result], None],
        future: "asyncio.Future[Result | None]",
    ) -> None:
        if self._withdrawn.pop(id, None) is None or future.cancelled():
            return
        if (result := future.result()) is not None:
            reply(result)


def _failed() -> Declined:
    """Log the exception being handled; return the result for the client."""
    logger.exception("a query could not be answered")
    failed = InternalError("the agent failed to answer the query; its log has the details")
    return Declined(error=to_wire(failed))
