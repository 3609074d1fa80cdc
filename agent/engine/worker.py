"""The engine's thread: plan, compute, account, and one call out a step.

Commands come through one queue and are processed in the order they were given, between steps. An
idle engine sleeps on that queue. Nothing here decides anything: that is the scheduler's.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from .engine import Engine, LoadEngine
from .llama.engine import load_engine
from .loaded_model import LoadedModel
from .scheduler import Scheduler
from .sequence import NewSequence, SequenceId, SequenceOutput
from .step import Aborted, Decoded, Failed, NoRoom, Outcome

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Add:
    sequence: NewSequence


@dataclass(frozen=True, slots=True)
class _Drop:
    id: SequenceId


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Command = _Add | _Drop | _Stop


class Worker:
    """Runs a model. `on_step` and `on_crash` are called on the worker's thread and must not block.

    `on_step` gets the outputs of a step's sequences, all at once. `on_crash` gets what stopped
    the thread for good: no output follows, and whoever gave sequences has to end them.
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
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
        on_crash: Callable[[BaseException], None],
        kv_cells: int | None = None,
        load: LoadEngine = load_engine,
    ) -> None:
        self._load = partial(
            load,
            model_path,
            slots=slots,
            context_size=context_size,
            kv_cells=kv_cells,
            threads=threads,
            gpu_layers=gpu_layers,
        )
        self._make_scheduler = partial(
            Scheduler, slots=slots, context_size=context_size, max_stall=max_stall
        )
        self._on_step = on_step
        self._on_crash = on_crash
        self._inbox: SimpleQueue[_Command] = SimpleQueue()
        self._loaded: Future[LoadedModel] = Future()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> LoadedModel:
        """Load the model; blocks until it is there. Raises `ModelError`."""
        self._thread.start()
        return self._loaded.result()

    def add(self, sequence: NewSequence) -> None:
        """Run `sequence`. From any thread; never blocks."""
        self._inbox.put(_Add(sequence))

    def drop(self, sequence_id: SequenceId) -> None:
        """Stop a sequence; its slot serves what is added afterwards. From any thread."""
        self._inbox.put(_Drop(sequence_id))

    def stop(self) -> None:
        """End the thread after the step it is in, and wait for that. Sequences are forgotten."""
        self._inbox.put(_Stop())
        if self._thread.ident is not None:
            self._thread.join()

    # ---- on the thread

    def _run(self) -> None:
        try:
            engine = self._load()
            scheduler = self._make_scheduler(
                capacity=engine.capacity, end_tokens=engine.model.vocab.end_tokens
            )
        except BaseException as error:  # handed to start(), which raises it
            self._loaded.set_exception(error)
            return
        self._loaded.set_result(engine.model)
        try:
            _Service(engine, scheduler, self._inbox, self._on_step).run()
        except BaseException as error:
            logger.exception("the engine's thread stops")
            self._on_crash(error)
        finally:
            engine.free()


class _Service:
    """The loop: whatever arrived, then a step, until told to stop."""

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        inbox: SimpleQueue[_Command],
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
    ) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._inbox = inbox
        self._on_step = on_step
        self._is_stopped = False

    def run(self) -> None:
        while True:
            self._take_commands()
            if self._is_stopped:
                return
            self._step()

    def _take_commands(self) -> None:
        if self._scheduler.is_idle:
            self._obey(self._inbox.get())
        while not self._inbox.empty():
            self._obey(self._inbox.get())

    def _obey(self, command: _Command) -> None:
        match command:
            case _Add(sequence):
                self._scheduler.add(sequence)
                self._engine.open(sequence)
            case _Drop(sequence_id):
                self._scheduler.drop(sequence_id)
                self._engine.close(sequence_id)
            case _Stop():
                self._is_stopped = True

    def _step(self) -> None:
        step = self._scheduler.plan()
        if step is None:
            return
        started = time.perf_counter()
        outcome = self._engine.execute(step)
        elapsed = time.perf_counter() - started
        _report(outcome)
        outputs = self._scheduler.commit(step, outcome, elapsed)
        for output in outputs:
            if output.end is not None:
                self._engine.close(output.id)
        if outputs:
            self._on_step(outputs)


def _report(outcome: Outcome) -> None:
    match outcome:
        case Decoded():
            pass
        case Failed(reason):
            logger.error("a step failed and its sequences end: %s", reason)
        case NoRoom():
            logger.warning("a step did not fit the KV cache; going on with a smaller one")
        case Aborted():
            logger.warning("a step was interrupted; computing it again")
