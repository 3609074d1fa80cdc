"""Opens sequences on separate threads, while the engine's thread decodes.

Setting up a sampler reads the whole prompt. Encoding media takes seconds on a CPU, so it has a
separate thread. Text does not wait for that thread, and its low priority hardly slows steps.
Sequences of the class `batch` have a thread of their own as well: many arrive at once, and other
sequences must not wait for them. An error ends only its own sequence.
"""

import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ...shared.errors import EngineFailed, RequestError
from ...shared.inference import is_background
from ..thread_pool import thread_pool
from .engine import Engine
from .sequence import NewSequence, SequenceId
from .step_loop import Disk, Inbox, Interruption, Opened, close

logger = logging.getLogger(__name__)

NUM_THREADS = 2
"""Several, so that a long set-up delays no others; more would take the engine's cores."""

NICENESS = 5
"""The niceness of the encoding thread, which then gets a quarter of the cores of a busy engine."""


class Opener:
    """Puts opened sequences into `inbox`. Only sequences above the class `batch` may stop a step.

    Thread-safe. A sequence is passed on at most once, and never after its withdrawal.
    """

    def __init__(self, engine: Engine, inbox: Inbox, interruption: Interruption) -> None:
        self.engine = engine
        self.disk: Disk | None = None
        """The disk tier, which may have a prefix of a prompt."""
        self._inbox = inbox
        self._interruption = interruption
        self._threads = thread_pool(NUM_THREADS, "open")
        self._batch = thread_pool(1, "open-batch")
        self._encoding = thread_pool(1, "encode", initializer=yield_to_others)
        self._lock = threading.Lock()
        self._opening: set[SequenceId] = set()
        self._is_closed = False

    def add(self, sequence: NewSequence) -> None:
        """Open `sequence` and pass it on."""
        with self._lock:
            if not self._is_closed:
                self._opening.add(sequence.id)
                self._threads_for(sequence).submit(self._open, sequence)

    def withdraw(self, sequence_id: SequenceId) -> bool:
        """Return whether the sequence was still being opened; it is then never passed on."""
        with self._lock:
            is_opening = sequence_id in self._opening
            self._opening.discard(sequence_id)
            return is_opening

    def close(self) -> None:
        """Open no more sequences; block until the threads no longer use the engine."""
        with self._lock:
            self._is_closed = True
            self._opening.clear()
        for threads in (self._threads, self._batch, self._encoding):
            threads.shutdown(cancel_futures=True)

    def _threads_for(self, sequence: NewSequence) -> ThreadPoolExecutor:
        if sequence.prompt.has_media:
            return self._encoding
        return self._batch if is_background(sequence.priority) else self._threads

    def _open(self, sequence: NewSequence) -> None:
        if sequence.id not in self._opening:
            return
        error = self._error(sequence)
        if error is None:
            sequence = self._looked_up(sequence)
        with self._lock:
            if sequence.id in self._opening:
                self._opening.remove(sequence.id)
                self._inbox.put(Opened(sequence, error))
                if not is_background(sequence.priority):
                    self._interruption.request()
                return
        close(self.engine, sequence.id)

    def _looked_up(self, sequence: NewSequence) -> NewSequence:
        """Return `sequence` with the prefix of its prompt on disk."""
        if self.disk is None or sequence.shift is not None or sequence.prompt.has_media:
            return sequence
        try:
            return replace(sequence, on_disk=self.disk.find(sequence.prompt))
        except Exception:  # the boundary of the disk: the prompt is computed
            logger.exception("the disk cache could not be searched for sequence %d", sequence.id)
            return sequence

    def _error(self, sequence: NewSequence) -> RequestError | None:
        """Open the sequence; return the error, if any."""
        try:
            self.engine.open(sequence)
        except RequestError as error:
            return error
        except Exception:  # the boundary of a sequence: it alone ends
            logger.exception("sequence %d ends: it could not be opened", sequence.id)
            return EngineFailed(
                "the engine failed to begin this answer; the agent's log has the details"
            )
        return None


def yield_to_others() -> None:
    """Lower the priority of this thread, and of threads that it starts."""
    if sys.platform == "linux":  # elsewhere it would be the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
