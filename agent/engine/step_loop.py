"""The loop of the engine's thread: draft, plan, compute, account, report.

Commands arrive through one inbox, between steps. An idle engine waits on it. The scheduler makes
all decisions.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Protocol, assert_never

from ...shared.errors import EngineFailed, RequestError
from ...shared.reports.statistics import Statistics
from .engine import Engine
from .fair_lock import FairLock
from .kv_cache.handed import HandOut
from .pace import Allow, Pace
from .prompt import Prompt
from .prompt_store.blocks import Left, OnDisk, ReadBlocks
from .prompt_store.stored_prompt import StoredPrompt
from .scheduling.exports import ExportId
from .scheduling.scheduler import Scheduler
from .sequence import NewSequence, SequenceEnd, SequenceId, SequenceOutput
from .speculation.drafting import Drafting
from .step import Aborted, Decoded, Failed, NoRoom, NotLoaded, Outcome, Step

logger = logging.getLogger(__name__)


MAX_AGE = 0.1
"""Maximum age of the published statistics in seconds, as long as steps are shorter."""


@dataclass(frozen=True, slots=True)
class Opened:
    """`sequence` can run, or must end with `error`."""

    sequence: NewSequence
    error: RequestError | None


@dataclass(frozen=True, slots=True)
class Drop:
    """Stop a sequence; it has no further output."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class Forget:
    """Stop expecting this sequence."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class Export:
    """Pass the longest cached prefix of `prompt`, or `None`, to `reply`.

    `reply` is called on the engine's thread, and must not block. See `Scheduler.export`.
    """

    id: ExportId
    prompt: Prompt
    reply: Callable[[StoredPrompt | None], None]
    wanted: HandOut
    can_wait: bool = False


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Cancel an export; its `reply` is not called."""

    id: ExportId


class Disk(Protocol):
    """The disk tier for prefixes; see `prompt_store.disk_cache`."""

    def find(self, prompt: Prompt) -> OnDisk | None: ...
    def read(self, wanted: ReadBlocks, reply: Callable[[StoredPrompt | None], None]) -> None: ...
    def offer(self, left: Left) -> None: ...


@dataclass(frozen=True, slots=True)
class UseDisk:
    """Use a disk tier from now on."""

    disk: Disk


@dataclass(frozen=True, slots=True)
class UseThreads:
    """Compute with these threads from now on."""

    threads: int
    threads_batch: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """The result of a read from disk for a sequence."""

    id: SequenceId
    prefix: StoredPrompt | None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the loop before its next step."""


Command = Opened | Drop | Forget | Export | TakeBack | UseDisk | UseThreads | Arrived | Allow | Stop


class Inbox:
    """The commands for the engine's thread, with room for `most`.

    A command about a sequence in the engine is always accepted, and each sequence makes only a few
    commands. So the inbox is bounded if no new sequences are accepted while it has no room:
    callers check `has_room` first. `on_room` is called on the thread that takes commands, when
    `has_room` was false and the inbox has become empty. It must not block.
    """

    def __init__(self, most: int, on_room: Callable[[], None] = lambda: None) -> None:
        self._most = most
        self._on_room = on_room
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._has_refused = False

    def __len__(self) -> int:
        return self._commands.qsize()

    def has_room(self) -> bool:
        """Return whether new sequences may be accepted. Thread-safe."""
        if len(self) < self._most:
            return True
        self._has_refused = True
        return len(self) < self._most  # the thread that empties it may not have seen that in time

    def put(self, command: Command) -> None:
        """Add a command. Thread-safe; never blocks."""
        self._commands.put(command)

    def get(self, timeout: float | None = None) -> Command:
        """Wait for the next command and return it. Raises `queue.Empty` after `timeout` seconds."""
        command = self._commands.get(timeout=timeout)
        if self._has_refused and not len(self):
            self._has_refused = False
            self._on_room()
        return command


class Interruption:
    """Stops a step that computes nothing urgent when something urgent arrives.

    The engine's thread says when a step may be stopped; any other thread requests the stop. A
    request between two steps counts for the next step, unless its reason was seen before.

    `stop` is called with `True` only while a step runs that may be stopped, and with `False` after
    that step. It must not block.
    """

    def __init__(self, stop: Callable[[bool], None]) -> None:
        self._stop = stop
        self._lock = Lock()
        self._is_requested = False
        self._is_allowed = False

    def request(self) -> None:
        """Report something urgent. Thread-safe."""
        with self._lock:
            self._is_requested = True
            if self._is_allowed:
                self._stop(True)

    def seen(self) -> None:
        """Note that all arrivals so far will be handled, so no step has to stop for them."""
        with self._lock:
            self._is_requested = False

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Allow other threads to stop the step inside the block."""
        with self._lock:
            self._is_allowed = True
            if self._is_requested:
                self._stop(True)
        try:
            yield
        finally:
            with self._lock:
                self._is_allowed = False
                self._stop(False)


class StepLoop:
    """The loop: take commands, then run a step, until `Stop`.

    `expected` has the sequences that are being prepared, each with whether its class is `batch`.
    Another thread adds to it; each access is one operation.
    """

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        drafting: Drafting,
        *,
        lock: FairLock,
        inbox: Inbox,
        interruption: Interruption,
        expected: dict[SequenceId, bool],
        gathering: float,
        pace: Pace,
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
        publish: Callable[[Statistics], None],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._drafting = drafting
        self._lock = lock
        self._inbox = inbox
        self._interruption = interruption
        self._expected = expected
        self._gathering = gathering
        self._pace = pace
        self._on_step = on_step
        self._publish = publish
        self._clock = clock
        self._last_end: float | None = None
        self._published_at = float("-inf")
        self._replies: dict[ExportId, Callable[[StoredPrompt | None], None]] = {}
        self._disk: Disk | None = None
        self._is_stopped = False
        self._num_begun = 0
        self.step: int | None = None
        """The number of the step being computed, if any. Thread-safe."""

    def run(self) -> None:
        while True:
            if self._take_commands():
                self._tell_disk()
                self._publish(self._scheduler.statistics())
            if self._is_stopped:
                return
            if not self._pace.is_held:
                self._num_begun += 1
                self.step = self._num_begun
                self._step()
                self.step = None

    def _take_commands(self) -> bool:
        """Obey the commands that have arrived; return whether there were any."""
        is_idle = self._scheduler.is_idle
        self._interruption.seen()
        if self._pace.is_held:
            self._wait_while_held()
        elif not is_idle and not len(self._inbox):
            return False
        else:
            self._obey(self._inbox.get())  # an idle engine waits for it
        while len(self._inbox):
            self._obey(self._inbox.get())
        if is_idle and not self._scheduler.is_idle:
            self._gather()
        return True

    def _wait_while_held(self) -> None:
        """Wait for a command while no step may be computed. The time counts for no step."""
        with self._lock:
            self._obey(self._inbox.get())
        self._last_end = None

    def _gather(self) -> None:
        """Let sequences join the first step if they arrived together with its first sequence."""
        until = self._clock() + self._gathering
        while self._waits_for_more() and (left := until - self._clock()) > 0:
            try:
                self._obey(self._inbox.get(timeout=left))
            except Empty:
                return

    def _waits_for_more(self) -> bool:
        """Return whether to wait for an expected sequence. The class `batch` is never waited
        for.
        """
        if self._is_stopped:
            return False
        if self._scheduler.is_background:
            return bool(self._expected)
        return not all(list(self._expected.values()))

    def _obey(self, command: Command) -> None:
        match command:
            case Opened(sequence, error):
                self._expected.pop(sequence.id, None)
                self._scheduler.add(sequence, error)
            case Drop(sequence_id):
                self._scheduler.drop(sequence_id)
                self._drafting.forget(sequence_id)
                close(self._engine, sequence_id)
            case Forget(sequence_id):
                self._expected.pop(sequence_id, None)
            case Export(id, prompt, reply, wanted, can_wait):
                self._replies[id] = reply
                self._scheduler.export(id, prompt, wanted, can_wait=can_wait)
            case TakeBack(id):
                self._replies.pop(id, None)
                self._scheduler.withdraw_export(id)
            case UseDisk(disk):
                self._disk = disk
                self._scheduler.note_left()
            case UseThreads(threads, threads_batch):
                self._engine.use_threads(threads, threads_batch)
            case Arrived(sequence_id, prefix):
                self._scheduler.arrived(sequence_id, prefix)
            case Allow():
                self._pace.set(command)
            case Stop():
                self._is_stopped = True
            case _:
                assert_never(command)

    def _step(self) -> None:
        with self._lock:  # once: drafts and the step wait for one turn of others together
            began = self._clock()
            step = self._plan()
            if step is None:
                return
            started = self._clock()
            outcome = self._execute(step)
            self._pace.fill(self._clock() - started)
            ended = self._clock()
        _report(outcome)
        outputs = self._scheduler.commit(
            step, outcome, ended - started, self._pause(started), started - began
        )
        for exported in self._scheduler.take_exported():
            self._replies.pop(exported.id)(exported.prefix)
        self._tell_disk()
        self._drafting.observe(step, outcome, ended - started, outputs)
        ended_ids = [output.id for output in outputs if output.end is not None]
        if ended_ids:
            outputs = self._with_ends(outputs)
        is_idle = self._scheduler.is_idle
        self._last_end = None if is_idle else ended
        if ended_ids or is_idle or ended - self._published_at >= MAX_AGE:
            self._publish(self._scheduler.statistics())
            self._published_at = ended
        for id in ended_ids:
            close(self._engine, id)
        if any(output.tokens for output in outputs):
            self._pace.stepped()
        if outputs:
            self._on_step(outputs)

    def _tell_disk(self) -> None:
        if self._disk is None:
            return
        for left in self._scheduler.take_left():
            self._disk.offer(left)
        for read in self._scheduler.take_disk_reads():
            self._disk.read(read.blocks, partial(self._arrived, read.id))

    def _arrived(self, id: SequenceId, prefix: StoredPrompt | None) -> None:
        self._inbox.put(Arrived(id, prefix))  # on a thread of the disk's

    def _execute(self, step: Step) -> Outcome:
        if not self._scheduler.may_be_stopped(step):
            return self._engine.execute(step)
        with self._interruption.allowed():
            return self._engine.execute(step)

    def _plan(self) -> Step | None:
        requests = self._scheduler.draft_requests()
        if not requests:
            return self._scheduler.plan()
        prices = self._scheduler.draft_prices()
        return self._scheduler.plan(self._drafting.propose(requests, prices))

    def _pause(self, started: float) -> float:
        """Return how many seconds the engine was idle although there was work."""
        return 0.0 if self._last_end is None else started - self._last_end

    def _with_ends(self, outputs: tuple[SequenceOutput, ...]) -> tuple[SequenceOutput, ...]:
        """Return `outputs`; an end becomes an error if the tokens are no valid answer."""
        return tuple(
            one if one.end is None else replace(one, end=self._end(one.id, one.end))
            for one in outputs
        )

    def _end(self, id: SequenceId, end: SequenceEnd) -> SequenceEnd:
        try:
            failure = self._engine.failure(id) if end.reason == "stop" else None
            if failure is not None:
                return replace(end, reason=EngineFailed(failure))
            return end
        except Exception:  # the boundary of a sequence: it alone has ended
            logger.exception("sequence %d ends: its end could not be completed", id)
            reason = "the engine failed to complete this answer; the agent's log has the details"
            return replace(end, reason=EngineFailed(reason))


def _report(outcome: Outcome) -> None:
    match outcome:
        case Decoded():
            pass
        case Failed(reason):
            logger.error("a step failed and its sequences end: %s", reason)
        case NoRoom():
            logger.warning("a step did not fit into the KV cache, so a smaller step follows")
        case NotLoaded():
            logger.warning("a stored prompt could not be loaded, so it is computed")
        case Aborted():
            logger.debug("a step was stopped, and is computed again")
        case _:
            assert_never(outcome)


def close(engine: Engine, sequence_id: SequenceId) -> None:
    """Close a sequence that is over; an error is only logged."""
    try:
        engine.close(sequence_id)
    except Exception:  # the boundary of a sequence: it has ended already
        logger.exception("sequence %d could not be closed", sequence_id)
