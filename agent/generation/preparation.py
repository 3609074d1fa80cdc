"""Where requests are prepared and prompts stored, on a few threads; and the way to the worker.

Called on the event loop's thread only, and replies there.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from ...shared.errors import InternalError, RequestError
from ...shared.inference import GenerateRequest, Notice
from ..engine.prompt_store.prompt_store import Ignored, PromptStore
from ..engine.prompt_store.stored_prompt import StoredPrompt
from ..engine.sequence import NewSequence, SequenceId
from .prepared import Outcome
from .preparer import Preparer

logger = logging.getLogger(__name__)

NUM_THREADS = 2
"""One long text must not hold up all the others; more would take the engine's cores."""


class Worker(Protocol):
    """What is needed of the engine's worker."""

    def add(self, sequence: NewSequence) -> None: ...
    def finish(self, sequence_id: SequenceId) -> None: ...
    def drop(self, sequence_id: SequenceId) -> None: ...


class Preparation:
    """Preparation threads around `worker`. At most as many wait as requests hold slots."""

    def __init__(
        self, preparer: Preparer, worker: Worker, store: PromptStore | None = None
    ) -> None:
        """Without a `store` nothing may be saved, and the preparer says so to clients."""
        self._preparer = preparer
        self._worker = worker
        self._store = store
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="prepare")
        self._preparations: dict[SequenceId, Future[Outcome]] = {}

    def prepare(
        self, id: SequenceId, request: GenerateRequest, reply: Callable[[Outcome], None]
    ) -> None:
        """Prepare `request`; `reply` hears what became of it, unless it is abandoned."""
        future = self._threads.submit(_outcome, self._preparer, request)
        self._preparations[id] = future
        asyncio.wrap_future(future).add_done_callback(partial(self._finished, id, reply))

    def abandon(self, id: SequenceId) -> None:
        """Nobody waits for this preparation; one that has not begun never will."""
        if (future := self._preparations.pop(id, None)) is not None:
            future.cancel()

    def run(self, sequence: NewSequence) -> None:
        """Run `sequence`."""
        self._worker.add(sequence)

    def finish(self, id: SequenceId) -> None:
        """End a sequence well."""
        self._worker.finish(id)

    def save(self, key: str, prompt: StoredPrompt, reply: Callable[[Notice | None], None]) -> None:
        """Store `prompt` under `key`; `reply` hears when it is done, or why it is not."""
        if self._store is None:
            raise RuntimeError("a prompt came to be stored where there is no store")
        future = self._threads.submit(_saved, self._store, key, prompt)
        asyncio.wrap_future(future).add_done_callback(partial(_reply, reply))

    def drop(self, id: SequenceId) -> None:
        """Stop a sequence."""
        self._worker.drop(id)

    def close(self) -> None:
        """Begin no preparation any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _finished(
        self, id: SequenceId, reply: Callable[[Outcome], None], future: asyncio.Future[Outcome]
    ) -> None:
        is_awaited = self._preparations.pop(id, None) is not None
        if is_awaited and not future.cancelled():
            reply(future.result())


def _outcome(preparer: Preparer, request: GenerateRequest) -> Outcome:
    try:
        return preparer.prepare(request)
    except RequestError as error:
        return error
    except Exception:  # the boundary of preparation: everything is logged and the client answered
        logger.exception("a request could not be prepared")
        return InternalError("the agent failed to prepare the request; its log has the rest")


def _saved(store: PromptStore, key: str, prompt: StoredPrompt) -> Notice | None:
    try:
        ignored = store.save(key, prompt)
    except Exception:  # the boundary of storing: everything is logged and the client told
        logger.exception("a prompt could not be stored")
        ignored = Ignored("the agent failed to save the prompt; its log has the rest")
    return None if ignored is None else ignored.notice


def _reply(reply: Callable[[Notice | None], None], future: asyncio.Future[Notice | None]) -> None:
    if not future.cancelled():
        reply(future.result())
