"""The engine's thread: loads the model and runs the step loop; other threads send it commands.

Commands go through one queue and are processed in order, between steps.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from ...shared.reports.statistics import Statistics
from .adapter import AdapterError
from .engine import Engine, LoadEngine
from .fair_lock import FairLock
from .kv_cache.handed import HandOut
from .llama.loading import load_engine
from .load_options import LoadOptions
from .loaded_model import LoadedModel
from .model_error import ModelError
from .opener import Opener
from .pace import Pace
from .prompt import Prompt
from .prompt_store.stored_prompt import StoredPrompt
from .scheduling.exports import ExportId
from .scheduling.scheduler import Scheduler
from .sequence import NewSequence, SequenceId, SequenceOutput
from .speculation.drafter import Drafter, JointDrafter
from .speculation.drafting import Drafting
from .speculation.model_drafter import ModelDrafter
from .speculation.prompt_lookup import LookupDrafter
from .statistics import NOTHING_DONE, Gone
from .step_loop import (
    Disk,
    Drop,
    Export,
    Forget,
    Inbox,
    Interruption,
    StepLoop,
    Stop,
    TakeBack,
    UseDisk,
    UseThreads,
)

logger = logging.getLogger(__name__)


GATHERING = 0.01
"""Seconds for which an idle engine with a first sequence waits for sequences being prepared.

A step that prefills eight prompts takes less time than a step with one and a step with seven.
"""

COMMANDS_PER_SLOT = 8
"""Commands per slot that may wait for a step before new sequences are refused.

A sequence makes at most four commands, so in a step of two seconds all slots may be taken twice.
"""


class Worker:
    """Runs a model. Callbacks `on_…` are called on the worker's thread and must not block.

    If the engine can draft, `make_drafter` gets the maximum tokens of a sequence. A draft model is
    used in addition. `on_step` gets the outputs of all sequences of a step. `on_crash` gets the
    error that ended the steps for good: no output follows, and the owner of the sequences must end
    them. `beside` is the memory that other engines of the host use; see `LoadEngine`. `on_change`
    is called when `has_room` or `draft_failure` may have changed.

    The model exists until `stop`, even after a crash. Other threads use its vocabulary, and must
    end that before `stop`.
    """

    def __init__(
        self,
        model_path: Path,
        options: LoadOptions,
        *,
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
        on_crash: Callable[[BaseException], None],
        on_change: Callable[[], None] = lambda: None,
        beside: Mapping[str, int] = {},
        load: LoadEngine = load_engine,
        make_drafter: Callable[[int], Drafter] = LookupDrafter,
        gathering: float = GATHERING,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._gathering = gathering
        self._options = options
        self._load = partial(load, model_path, options, beside)
        self._make_scheduler = partial(
            Scheduler,
            slots=options.slots,
            max_stall=options.max_stall,
        )
        self._make_drafter = make_drafter
        self._clock = clock
        self.lock = FairLock()
        """The turns that other threads take with the steps to compute with the model's weights."""
        self._on_step = on_step
        self._on_crash = on_crash
        self._on_change = on_change
        self._inbox = Inbox(COMMANDS_PER_SLOT * options.slots, on_change)
        self._expected: dict[SequenceId, bool] = {}
        self._export_ids = count()
        self._statistics = NOTHING_DONE
        self._loaded: Future[LoadedModel] = Future()
        self._opener: Opener | None = None
        self._adapters: frozenset[str] = frozenset()
        self._scheduler: Scheduler | None = None
        self._loop: StepLoop | None = None
        self._draft_failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> LoadedModel:
        """Load the model; block until it is loaded. Raises `ModelError`."""
        self._thread.start()
        return self._loaded.result()

    def expect(self, sequence_id: SequenceId, *, is_background: bool) -> None:
        """Announce a sequence that is being prepared; `submit`, `drop` or `forget` follows.

        `is_background`: the class of the sequence is `batch`.
        """
        self._expected[sequence_id] = is_background

    def forget(self, sequence_id: SequenceId) -> None:
        """Note that this sequence will not be submitted."""
        self._inbox.put(Forget(sequence_id))

    def submit(self, sequence: NewSequence) -> None:
        """Run `sequence`. Call it after `start`, on any thread; never blocks."""
        self._opening.add(sequence)

    def drop(self, sequence_id: SequenceId) -> None:
        """Stop a sequence; its slot serves sequences added later. See `submit`."""
        self.forget(sequence_id)
        if not self._opening.withdraw(sequence_id):
            self._inbox.put(Drop(sequence_id))

    def use_disk(self, disk: Disk) -> None:
        """Use a disk tier for prefixes. Call it after `start`, before the first sequence."""
        self._opening.disk = disk
        self._inbox.put(UseDisk(disk))

    def hand_out(
        self,
        prompt: Prompt,
        reply: Callable[[StoredPrompt | None], None],
        *,
        start: int = 0,
        most_checkpoints: int = 1,
        can_wait: bool = False,
    ) -> Callable[[], None]:
        """Export the longest cached prefix of `prompt`, from position `start` on, to `reply`.

        If sequences can begin only at checkpoints, the export has the last `most_checkpoints`.

        `reply` gets `None` if no prefix is cached, or if the worker has no room. An export that
        `can_wait` takes little time from streams. `reply` is called on the engine's thread and
        must not block; it is never called if that thread has stopped. Call the returned function
        to cancel the parts that were not read yet. See `submit`.
        """
        if not self.has_room():
            reply(None)
            return lambda: None
        id = ExportId(next(self._export_ids))
        self._inbox.put(Export(id, prompt, reply, HandOut(start, most_checkpoints), can_wait))
        return lambda: self._inbox.put(TakeBack(id))

    def stop(self) -> None:
        """End the thread after its current step, and wait for the end. Sequences are forgotten."""
        self._inbox.put(Stop())
        if self._thread.ident is not None:
            self._thread.join()

    def use_threads(self, threads: int, threads_batch: int) -> None:
        """Compute with these threads from the next step on; see `Engine`. Thread-safe."""
        self._inbox.put(UseThreads(threads, threads_batch))

    def use_adapters(self, files: Mapping[str, Path]) -> None:
        """Load these adapters, by the digests of their files, and unload all others.

        Blocks, while steps continue. Call it after `start`, on any thread, but not from two
        threads at once. Raises `AdapterError` if an adapter cannot be loaded (the previous
        adapters then stay), and `EngineFailed` if the engine has stopped.
        """
        engine = self._opening.engine
        for digest, path in files.items():
            try:
                engine.load_adapter(digest, path, self.lock)
            except ModelError as error:
                engine.keep_adapters(self._adapters, self.lock)
                raise AdapterError(str(error), digest) from error
        self._adapters = frozenset(files)
        engine.keep_adapters(self._adapters, self.lock)

    def statistics(self) -> Statistics:
        """Return the engine's statistics, at most `step_loop.MAX_AGE` old. Thread-safe."""
        return replace(self._statistics, num_commands=len(self._inbox))

    def has_room(self) -> bool:
        """Return whether a new sequence is accepted: waiting commands are bounded. Thread-safe."""
        return self._inbox.has_room()

    def draft_failure(self) -> str | None:
        """Return why drafting has ended; `None` if the drafter has not failed. Thread-safe."""
        return self._draft_failure

    def current_step(self) -> int | None:
        """Return the number of the step being computed, if any. Thread-safe."""
        return None if self._loop is None else self._loop.step

    def take_evicted(self, most: int) -> Gone:
        """Return up to `most` marked prefixes that left the cache, each once.

        Call it on one thread.
        """
        return Gone() if self._scheduler is None else self._scheduler.marks.take_gone(most)

    def has_prefix(self, key: int) -> bool:
        """Return whether the cache has a prefix that is marked `key`. Thread-safe."""
        return self._scheduler is not None and key in self._scheduler.marks

    @property
    def _opening(self) -> Opener:
        if self._opener is None:
            raise RuntimeError("the worker was not started")
        return self._opener

    # ---- on the thread

    def _publish(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def _drafting_failed(self, reason: str) -> None:
        self._draft_failure = reason
        self._on_change()

    def _run(self) -> None:
        try:
            engine = self._load()
            scheduler = self._make_scheduler(
                context_size=(engine.model.options or self._options).slot_tokens,
                capacity=engine.capacity,
                end_tokens=engine.model.vocab.end_tokens,
            )
            drafter = self._drafter(engine, scheduler.longest)
            drafting = Drafting(drafter, self._drafting_failed)
            pace = Pace(os.environ, self._inbox.put)
        except BaseException as error:  # handed to start(), which raises it
            self._loaded.set_exception(error)
            return
        self._publish(scheduler.statistics())
        self._scheduler = scheduler
        interruption = Interruption(engine.stop)
        self._opener = opener = Opener(engine, self._inbox, interruption)
        self._loaded.set_result(engine.model)
        try:
            self._loop = StepLoop(
                engine,
                scheduler,
                drafting,
                lock=self.lock,
                inbox=self._inbox,
                interruption=interruption,
                expected=self._expected,
                gathering=self._gathering,
                pace=pace,
                on_step=self._on_step,
                publish=self._publish,
                clock=self._clock,
            )
            self._loop.run()
        except BaseException as error:
            logger.exception("the engine's thread stops")
            self.lock.close()
            self._on_crash(error)
            self._until_stopped()
        finally:
            opener.close()
            self.lock.close()
            engine.free()

    def _drafter(self, engine: Engine, longest: int) -> Drafter | None:
        if not engine.capacity.max_draft:
            return None
        lookup = self._make_drafter(longest)
        if engine.draft_model is None:
            return lookup
        return JointDrafter(lookup, ModelDrafter(engine.draft_model, clock=self._clock))

    def _until_stopped(self) -> None:
        while not isinstance(self._inbox.get(), Stop):
            pass
