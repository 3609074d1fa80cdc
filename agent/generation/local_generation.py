"""Generation by the model in this process: passes events to the core, carries out its decisions.

Called on the event loop's thread only. Preparations and saves run on their own threads, the
sequences on the engine's thread; their results come back to the event loop.

A decision that cannot be carried out ends only its request.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, assert_never

from ...shared.errors import RequestError
from ...shared.inference import Notice, is_background
from ...shared.inference.prefix_peers import PrefixSource
from ...shared.log import context
from ...shared.messages import Start
from ..engine.kv_cache.handed import MOST_CHECKPOINTS
from ..engine.prompt import Prompt
from ..engine.prompt_store.prompt_store import Ignored, PromptStore
from ..engine.prompt_store.stored_prompt import StoredPrompt
from ..engine.sequence import NewSequence, SequenceOutput
from ..sequence_id import SequenceId
from ..thread_pool import thread_pool
from .active_requests import (
    Abandon,
    Act,
    ActiveRequests,
    Decision,
    Drop,
    FetchPrefix,
    LogFailure,
    Prepare,
    ReadPrefix,
    Run,
    Save,
    SendItems,
)
from .answers.resumption import Outcome, Resumed
from .port import Listener
from .preparation import Preparation
from .request_spans import RequestSpans

logger = logging.getLogger(__name__)


class SequenceRunner(Protocol):
    """The methods of the engine's worker that are used here."""

    def expect(self, sequence_id: SequenceId, *, is_background: bool) -> None: ...
    def forget(self, sequence_id: SequenceId) -> None: ...
    def submit(self, sequence: NewSequence) -> None: ...
    def drop(self, sequence_id: SequenceId) -> None: ...
    def hand_out(
        self,
        prompt: Prompt,
        reply: Callable[[StoredPrompt | None], None],
        *,
        most_checkpoints: int,
    ) -> Callable[[], None]: ...


class PrefixFetcher(Protocol):
    """Fetches prefixes from other agents."""

    def fetch(
        self,
        id: SequenceId,
        source: PrefixSource,
        prompt: Prompt,
        reply: Callable[[StoredPrompt | None], None],
    ) -> None: ...
    def abandon(self, id: SequenceId) -> None: ...


class PromptSaver:
    """Writes prompts to the prompt store on its own thread, so that a slow disk delays only saves.

    Without a `store` no prompt may be saved; the preparer tells clients. At most one save per slot
    waits.
    """

    def __init__(self, store: PromptStore | None = None) -> None:
        self._store = store
        self._thread = thread_pool(1, "save")

    def save(self, key: str, prompt: StoredPrompt, reply: Callable[[Notice | None], None]) -> None:
        """Store `prompt` under `key`; `reply` gets `None`, or a notice that says why it failed."""
        if self._store is None:
            raise RuntimeError("a prompt was to be saved, but there is no prompt store")
        future = self._thread.submit(_saved, self._store, key, prompt)
        asyncio.wrap_future(future).add_done_callback(partial(_reply, reply))

    def close(self) -> None:
        """Start no more saves; block until the current save is written."""
        self._thread.shutdown(cancel_futures=True)


class LocalGeneration:
    """`port.Generation` over a preparation, a worker and a saver. `piece` returns a token's bytes.

    The daemon passes the worker's steps to `stepped`.
    """

    def __init__(
        self,
        preparation: Preparation,
        worker: SequenceRunner,
        saver: PromptSaver,
        piece: Callable[[int], bytes],
        spans: RequestSpans | None = None,
        fetcher: PrefixFetcher | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        parts_scopes: bool = False,
    ) -> None:
        """Connect the parts. With `parts_scopes`, requests share prefixes only within their
        scope.
        """
        self._clock = clock
        self._parts_scopes = parts_scopes
        self._preparation = preparation
        self._worker = worker
        self._saver = saver
        self._fetcher = fetcher
        self._requests = ActiveRequests(piece)
        self._spans = RequestSpans() if spans is None else spans

    def start(self, id: SequenceId, start: Start, listener: Listener) -> None:
        """Answer the request as the sequence `id`; the listener receives all its items."""
        self._spans.started(id, start.id, start.traceparent)
        if not self._parts_scopes:
            start = replace(start, scope=None)
        self._carry_out(self._requests.start(id, start, listener))

    def cancel(self, id: SequenceId) -> None:
        """End the sequence early. A complete answer ends normally."""
        self._carry_out(self._requests.cancel(id))

    def fail(self, id: SequenceId, error: RequestError) -> None:
        """End the sequence with `error`. A complete answer ends normally, but at once."""
        self._carry_out(self._requests.fail(id, error))

    def discard(self, id: SequenceId) -> None:
        """End the sequence without any further item; it is still released."""
        self._carry_out(self._requests.discard(id))

    def stepped(self, outputs: Sequence[SequenceOutput]) -> None:
        """Handle one engine step."""
        self._carry_out(self._requests.stepped(outputs, self._clock()))

    def close(self) -> None:
        """Start no more preparations and saves; block until the running ones have stopped."""
        self._preparation.close()
        self._saver.close()

    def _prepared(self, id: SequenceId, outcome: Outcome) -> None:
        if isinstance(outcome, RequestError) or (
            isinstance(outcome, Resumed) and outcome.answer.is_over
        ):
            self._worker.forget(id)
        self._carry_out(self._requests.prepared(id, outcome))

    def _fetched(self, id: SequenceId, prefix: StoredPrompt | None) -> None:
        self._carry_out(self._requests.fetched(id, prefix))

    def _read_prefix(self, id: SequenceId, prompt: Prompt) -> None:
        loop = asyncio.get_running_loop()

        def reply(prefix: StoredPrompt | None) -> None:
            loop.call_soon_threadsafe(self._read, id, prefix)

        self._worker.hand_out(prompt, reply, most_checkpoints=MOST_CHECKPOINTS)

    def _read(self, id: SequenceId, prefix: StoredPrompt | None) -> None:
        self._carry_out(self._requests.read(id, prefix))

    def _saved(self, id: SequenceId, failure: Notice | None) -> None:
        self._carry_out(self._requests.saved(id, failure))

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case SendItems(listener, items, released):
                    if released:
                        self._spans.ended(items, released)
                    listener.produced(items, released)
                case LogFailure(id, error):
                    logger.error("a request failed", extra=context(request=id), exc_info=error)
                case _:
                    self._act(decision)

    def _act(self, decision: Act) -> None:
        try:
            self._pass_on(decision)
        except Exception as error:  # the boundary of a request: it is logged and answered
            self._worker.forget(decision.id)
            self._carry_out(self._requests.crashed(decision.id, error, is_in_engine=False))

    def _pass_on(self, decision: Act) -> None:
        match decision:
            case Prepare(id, request, resume, scope):
                reply = partial(self._prepared, id)
                self._preparation.prepare(id, request, reply, resume, scope)
                self._worker.expect(id, is_background=is_background(request.priority))
            case Abandon(id):
                self._worker.forget(id)
                self._preparation.abandon(id)
                if self._fetcher is not None:
                    self._fetcher.abandon(id)
            case FetchPrefix(id, source, prompt):
                self._worker.forget(id)  # others need not wait for it
                if self._fetcher is None:
                    self._fetched(id, None)
                else:
                    self._fetcher.fetch(id, source, prompt, partial(self._fetched, id))
            case Run(sequence):
                self._spans.prepared(sequence.id)
                self._worker.submit(sequence)
            case Drop(id):
                self._worker.drop(id)
            case ReadPrefix(id, prompt):
                self._read_prefix(id, prompt)
            case Save(id, key, prompt):
                self._saver.save(key, prompt, partial(self._saved, id))
            case _:
                assert_never(decision)


def _saved(store: PromptStore, key: str, prompt: StoredPrompt) -> Notice | None:
    try:
        ignored = store.save(key, prompt)
    except Exception:  # the boundary of saving: everything is logged, and the client gets a notice
        logger.exception("a prompt could not be saved")
        ignored = Ignored("the agent failed to save the prompt; its log has the details")
    return None if ignored is None else ignored.notice


def _reply(reply: Callable[[Notice | None], None], future: asyncio.Future[Notice | None]) -> None:
    if not future.cancelled():
        reply(future.result())
