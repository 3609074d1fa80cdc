"""The engine's thread: draft, plan, compute, account, and one call out a step.

Commands come through one queue and are processed in the order they were given, between steps. An
idle engine sleeps on that queue. The scheduler makes all decisions.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal

from ...shared.errors import EngineFailed
from ...shared.reports.model_info import Kernels, KvLayout
from .engine import Engine, LoadEngine
from .fair_lock import FairLock
from .llama.engine import load_engine
from .loaded_model import LoadedModel
from .model_error import ModelError
from .opener import Opened, Opener, close
from .scheduling.scheduler import Scheduler
from .sequence import NewSequence, SequenceEnd, SequenceId, SequenceOutput
from .speculation.drafter import Drafter
from .speculation.drafting import Drafting
from .speculation.joint_drafter import JointDrafter
from .speculation.lookup_drafter import LookupDrafter
from .speculation.model_drafter import ModelDrafter
from .statistics import EngineStatistics
from .step import Aborted, Decoded, Failed, NoRoom, NotLoaded, Outcome, Step

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Finish:
    id: SequenceId


@dataclass(frozen=True, slots=True)
class _Drop:
    id: SequenceId


@dataclass(frozen=True, slots=True)
class _Forget:
    id: SequenceId


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Command = Opened | _Finish | _Drop | _Forget | _Stop

GATHERING = 0.01
"""Seconds that an idle engine waits for sequences that are being prepared, once it has one: a step
that reads eight prompts takes less time than one and then seven."""


class Worker:
    """Runs a model. `on_step` and `on_crash` are called on the worker's thread and must not block.

    With `speculate` tokens are drafted; `make_drafter` is told how long sequences can get. With a
    `draft_model` that model drafts, too.

    `on_step` gets the outputs of a step's sequences, all at once. `on_crash` gets what ended the
    steps for good: no output follows, and whoever gave sequences has to end them.

    The model is there until `stop`, after a crash too: other threads use its vocabulary. Before
    that they have to be done with it.
    """

    def __init__(
        self,
        model_path: Path,
        *,
        slots: int,
        context_size: int,
        threads: int,
        max_stall: float,
        gpu_layers: int,
        kernels: Literal["auto"] | Kernels = "auto",
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
        on_crash: Callable[[BaseException], None],
        kv_cells: int | None = None,
        kv_layout: Literal["auto"] | KvLayout = "auto",
        host_cache: int = 0,
        speculate: int = 0,
        projector: Path | None = None,
        draft_model: Path | None = None,
        load: LoadEngine = load_engine,
        make_drafter: Callable[[int], Drafter] = LookupDrafter,
        gathering: float = GATHERING,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._gathering = gathering
        self._load = partial(
            load,
            model_path,
            slots=slots,
            context_size=context_size,
            kv_cells=kv_cells,
            kv_layout=kv_layout,
            host_cache=host_cache,
            threads=threads,
            speculate=speculate,
            draft_model=draft_model,
            gpu_layers=gpu_layers,
            kernels=kernels,
            projector=projector,
        )
        self._make_scheduler = partial(
            Scheduler, slots=slots, context_size=context_size, max_stall=max_stall
        )
        self._make_drafter = make_drafter
        self._clock = clock
        self.lock = FairLock()
        """Others that compute with the model's weights take turns with the steps."""
        self._on_step = on_step
        self._on_crash = on_crash
        self._inbox: SimpleQueue[_Command] = SimpleQueue()
        self._expected: set[SequenceId] = set()
        self._statistics = EngineStatistics()
        self._loaded: Future[LoadedModel] = Future()
        self._opener: Opener | None = None
        self._adapters: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> LoadedModel:
        """Load the model; blocks until it is there. Raises `ModelError`."""
        self._thread.start()
        return self._loaded.result()

    def expect(self, sequence_id: SequenceId) -> None:
        """This sequence is being prepared; `submit`, `drop` or `forget` follows."""
        self._expected.add(sequence_id)

    def forget(self, sequence_id: SequenceId) -> None:
        """This sequence will not be submitted."""
        self._inbox.put(_Forget(sequence_id))

    def submit(self, sequence: NewSequence) -> None:
        """Run `sequence`. After `start`, from any thread; never blocks."""
        self._opening.add(sequence)

    def finish(self, sequence_id: SequenceId) -> None:
        """End a sequence with `stop` at its next step, and save it if asked. See `submit`."""
        if not self._opening.finish(sequence_id):
            self._inbox.put(_Finish(sequence_id))

    def drop(self, sequence_id: SequenceId) -> None:
        """Stop a sequence; its slot serves what is added afterwards. See `submit`."""
        self.forget(sequence_id)
        if not self._opening.withdraw(sequence_id):
            self._inbox.put(_Drop(sequence_id))

    def stop(self) -> None:
        """End the thread after the step it is in, and wait for that. Sequences are forgotten."""
        self._inbox.put(_Stop())
        if self._thread.ident is not None:
            self._thread.join()

    def use_adapters(self, files: Mapping[str, Path]) -> None:
        """Have these adapters, by the digests of their files, and no others.

        Blocks, in turns with the steps. After `start`, from any thread, one at a time. Raises
        `ModelError` where one cannot be loaded (then those that were there still are), and
        `EngineFailed` where the engine has stopped.
        """
        engine = self._opening.engine
        try:
            for digest, path in files.items():
                with self.lock:
                    engine.load_adapter(digest, path)
        except ModelError:
            with self.lock:
                engine.keep_adapters(self._adapters)
            raise
        self._adapters = frozenset(files)
        with self.lock:
            engine.keep_adapters(self._adapters)

    def statistics(self) -> EngineStatistics:
        """What the engine did, as of its last step. From any thread."""
        return self._statistics

    @property
    def _opening(self) -> Opener:
        if self._opener is None:
            raise RuntimeError("the worker was not started")
        return self._opener

    # ---- on the thread

    def _publish(self, statistics: EngineStatistics) -> None:
        self._statistics = statistics

    def _run(self) -> None:
        try:
            engine = self._load()
            scheduler = self._make_scheduler(
                capacity=engine.capacity, end_tokens=engine.model.vocab.end_tokens
            )
            drafting = Drafting(self._drafter(engine, scheduler.longest))
        except BaseException as error:  # handed to start(), which raises it
            self._loaded.set_exception(error)
            return
        self._publish(scheduler.statistics())
        self._opener = opener = Opener(engine, self._inbox.put)
        self._loaded.set_result(engine.model)
        try:
            _Service(
                engine,
                scheduler,
                drafting,
                lock=self.lock,
                inbox=self._inbox,
                expected=self._expected,
                gathering=self._gathering,
                on_step=self._on_step,
                publish=self._publish,
                clock=self._clock,
            ).run()
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
        while not isinstance(self._inbox.get(), _Stop):
            pass


class _Service:
    """The loop: whatever arrived, then a step, until told to stop."""

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        drafting: Drafting,
        *,
        lock: FairLock,
        inbox: SimpleQueue[_Command],
        expected: set[SequenceId],
        gathering: float,
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
        publish: Callable[[EngineStatistics], None],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._drafting = drafting
        self._lock = lock
        self._inbox = inbox
        self._expected = expected
        self._gathering = gathering
        self._on_step = on_step
        self._publish = publish
        self._clock = clock
        self._last_end: float | None = None
        self._is_stopped = False

    def run(self) -> None:
        while True:
            if self._take_commands():
                self._publish(self._scheduler.statistics())
            if self._is_stopped:
                return
            self._step()

    def _take_commands(self) -> bool:
        """Whether there were any."""
        is_idle = self._scheduler.is_idle
        if not is_idle and self._inbox.empty():
            return False
        self._obey(self._inbox.get())  # an idle engine waits for it
        while not self._inbox.empty():
            self._obey(self._inbox.get())
        if is_idle and not self._scheduler.is_idle:
            self._gather()
        return True

    def _gather(self) -> None:
        """Let those join the first step that arrived together with the first sequence."""
        until = self._clock() + self._gathering
        while self._expected and not self._is_stopped and (left := until - self._clock()) > 0:
            try:
                self._obey(self._inbox.get(timeout=left))
            except Empty:
                return

    def _obey(self, command: _Command) -> None:
        match command:
            case Opened(sequence, error, is_finishing):
                self._expected.discard(sequence.id)
                self._scheduler.add(sequence, error)
                if is_finishing:
                    self._scheduler.finish(sequence.id)
            case _Finish(sequence_id):
                self._scheduler.finish(sequence_id)
            case _Drop(sequence_id):
                self._scheduler.drop(sequence_id)
                self._drafting.forget(sequence_id)
                close(self._engine, sequence_id)
            case _Forget(sequence_id):
                self._expected.discard(sequence_id)
            case _Stop():
                self._is_stopped = True

    def _step(self) -> None:
        with self._lock:  # once: drafts and the step wait for one turn of others together
            began = self._clock()
            step = self._plan()
            if step is None:
                return
            started = self._clock()
            outcome = self._engine.execute(step)
            ended = self._clock()
        _report(outcome)
        outputs = self._scheduler.commit(
            step, outcome, ended - started, self._pause(started), started - began
        )
        self._drafting.observe(outputs)
        outputs = self._with_ends(outputs)
        self._last_end = None if self._scheduler.is_idle else ended
        self._publish(self._scheduler.statistics())
        for output in outputs:
            if output.end is not None:
                close(self._engine, output.id)
        if outputs:
            self._on_step(outputs)

    def _plan(self) -> Step | None:
        requests = self._scheduler.draft_requests()
        if not requests:
            return self._scheduler.plan()
        prices = self._scheduler.draft_prices()
        return self._scheduler.plan(self._drafting.propose(requests, prices))

    def _pause(self, started: float) -> float:
        """How long the engine was idle although there was work, in seconds."""
        return 0.0 if self._last_end is None else started - self._last_end

    def _with_ends(self, outputs: tuple[SequenceOutput, ...]) -> tuple[SequenceOutput, ...]:
        """`outputs`; an end becomes an error where the sequence's tokens are no valid answer."""
        return tuple(
            one if one.end is None else replace(one, end=self._end(one.id, one.end))
            for one in outputs
        )

    def _end(self, id: SequenceId, end: SequenceEnd) -> SequenceEnd:
        try:
            failure = self._engine.failure(id) if end.reason == "stop" else None
            if failure is not None:
                return replace(end, reason=EngineFailed(failure), saved=None)
            return end
        except Exception:  # the boundary of a sequence: it has ended, and nobody else notices
            logger.exception("sequence %d ends: its end could not be completed", id)
            reason = "the engine failed to complete this answer; the agent's log has the details"
            return replace(end, reason=EngineFailed(reason), saved=None)


def _report(outcome: Outcome) -> None:
    match outcome:
        case Decoded():
            pass
        case Failed(reason):
            logger.error("a step failed and its sequences end: %s", reason)
        case NoRoom():
            logger.warning("a step did not fit the KV cache; going on with a smaller one")
        case NotLoaded():
            logger.warning("a stored prompt could not be loaded; computing it instead")
        case Aborted():
            logger.warning("a step was interrupted; computing it again")
