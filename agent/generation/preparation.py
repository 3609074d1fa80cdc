"""Prepares requests on a few threads, so that neither the event loop nor the engine waits.

Short, long and very long texts have one lane each, so a short text never waits for a long text.
Three kinds of requests have lanes of their own: requests of the class `batch` arrive in large
numbers; constraints may take seconds to compile; pictures may take seconds to read. Methods are
called, and replies are given, on the event loop's thread only.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from math import inf
from typing import NamedTuple

from ...shared.errors import Cancelled, InternalError, RequestError
from ...shared.inference import GenerateRequest, is_background
from ..engine.grammar.grammars import Ended
from ..engine.withdrawal import Withdrawn, while_wanted
from ..sequence_id import SequenceId
from ..thread_pool import thread_pool
from .answers.resumption import Outcome, Resume
from .preparer import Preparer
from .text_length import LONG_TEXT, VERY_LONG_TEXT, text_length

logger = logging.getLogger(__name__)

NUM_THREADS = 2
"""Threads for short requests: more would take the engine's cores."""


NUM_CONSTRAINED = 4
"""Threads for requests with constraints; they mostly wait for other processes."""


class _Lane(NamedTuple):
    most: float
    """Maximum length of a text in this lane, in characters."""
    threads: ThreadPoolExecutor


class Preparation:
    """The preparation threads. At most one request per slot waits."""

    def __init__(self, preparer: Preparer) -> None:
        self.preparer = preparer
        """Prepares the requests that arrive from now on; it may be replaced."""
        self._lanes = (
            _Lane(LONG_TEXT, thread_pool(NUM_THREADS, "prepare")),
            _Lane(4 * LONG_TEXT, thread_pool(1, "prepare-long")),
            _Lane(VERY_LONG_TEXT, thread_pool(1, "prepare-longer")),
            _Lane(inf, thread_pool(1, "prepare-very-long")),
        )
        self._batch = thread_pool(1, "prepare-batch")
        self._constrained = thread_pool(NUM_CONSTRAINED, "prepare-constrained")
        self._media = thread_pool(NUM_THREADS, "prepare-media")
        self._preparations: dict[SequenceId, tuple[Future[Outcome], Ended]] = {}

    def prepare(
        self,
        id: SequenceId,
        request: GenerateRequest,
        reply: Callable[[Outcome], None],
        resume: Resume | None = None,
        scope: str | None = None,
    ) -> None:
        """Prepare `request`; `reply` gets the outcome, unless the preparation is abandoned."""
        ended: Ended = Future()
        future = self._threads(request, resume).submit(
            _outcome, self.preparer, id, request, resume, scope, ended
        )
        self._preparations[id] = future, ended
        asyncio.wrap_future(future).add_done_callback(partial(self._finished, id, reply))

    def abandon(self, id: SequenceId) -> None:
        """Drop a preparation and its grammar: it does not begin, or stops before its next part."""
        if (dropped := self._preparations.pop(id, None)) is not None:
            future, ended = dropped
            future.cancel()
            ended.set_result(None)

    def close(self) -> None:
        """Start no more preparations; block until the running ones have stopped.

        Running preparations use the model's vocabulary, so it must not be freed earlier.
        """
        for _, ended in self._preparations.values():
            ended.set_result(None)
        self._preparations.clear()
        pools = [
            self._batch,
            self._constrained,
            self._media,
            *(lane.threads for lane in self._lanes),
        ]
        for threads in pools:
            threads.shutdown(wait=False, cancel_futures=True)
        for threads in pools:
            threads.shutdown()

    def _threads(self, request: GenerateRequest, resume: Resume | None) -> ThreadPoolExecutor:
        if is_background(request.priority):
            return self._batch
        if request.has_media:
            return self._media
        length = text_length(request) + (resume.work if resume else 0)
        if length <= LONG_TEXT and (request.grammar is not None or request.tools):
            return self._constrained
        return next(lane.threads for lane in self._lanes if length <= lane.most)

    def _finished(
        self, id: SequenceId, reply: Callable[[Outcome], None], future: asyncio.Future[Outcome]
    ) -> None:
        is_awaited = self._preparations.pop(id, None) is not None
        if is_awaited and not future.cancelled():
            reply(future.result())


def _outcome(
    preparer: Preparer,
    id: SequenceId,
    request: GenerateRequest,
    resume: Resume | None,
    scope: str | None,
    ended: Ended,
) -> Outcome:
    try:
        with while_wanted(lambda: not ended.done()):
            prepared = preparer.prepare(id, request, scope, ended)
            return prepared if resume is None else preparer.resume(prepared, resume)
    except Withdrawn:
        return Cancelled("cancelled while it was prepared")
    except RequestError as error:
        return error
    except Exception:  # the boundary of preparation: everything is logged and the client answered
        logger.exception("a request could not be prepared")
        return InternalError("the agent failed to prepare the request; its log has the details")
