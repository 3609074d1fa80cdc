"""The planner of the engine: what each step computes, and what came of it.

`plan` and `commit` alternate; `add` and `drop` may come at any time. A sequence waits (best
priority first, then by arrival), runs in a slot, and ends exactly once, unless it is dropped.

Invariants, checked by `check_integrity`:
- a slot is free, dirty (its cells are to be cleared in the next step) or holds one sequence;
- a sequence runs or waits, never both; an unannounced end belongs to none of them;
- positions of a slot are consecutive from 0 and stay below the context ceiling.
"""

from bisect import insort
from operator import attrgetter
from typing import assert_never

from ...shared.errors import EngineFailed, InvalidRequest, PromptTooLong, RequestError
from .fair_split import split_fairly
from .progress import Progress
from .sequence import NewSequence, SequenceId, SequenceOutput
from .step import Aborted, Decoded, Failed, NoRoom, Outcome, Run, Step
from .step_cost import StepCost

MIN_CHUNK = 8
"""Prompt tokens that each prompt gets in a step, however slow the steps are: a prompt always
advances, in hundreds of steps rather than thousands."""

_rank = attrgetter("rank")


class Scheduler:
    """Plans steps for `slots` sequences of at most `context_size` tokens each.

    `batch_size` bounds a step's tokens. With something generating, steps are sized to stay below
    `max_stall` seconds by what steps have cost so far.
    """

    def __init__(
        self,
        *,
        slots: int,
        context_size: int,
        batch_size: int,
        max_stall: float,
        end_tokens: frozenset[int],
    ) -> None:
        if batch_size < slots:
            raise ValueError(
                f"a batch of {batch_size} cannot hold a token of each of {slots} slots"
            )
        self._context_size = context_size
        self._batch_size = batch_size
        self._max_stall = max_stall
        self._end_tokens = end_tokens
        self._cost = StepCost()
        self._num_slots = slots
        self._free = list(range(slots))
        self._dirty: list[int] = []
        self._running: dict[int, Progress] = {}  # by slot, in the order of joining
        self._waiting: list[Progress] = []  # by rank
        self._ids: set[SequenceId] = set()
        self._unannounced: list[SequenceOutput] = []  # ends that the next step's clears precede
        self._num_arrived = 0
        self._prompt_limit = batch_size
        self._holds_joins = False
        self._planned: Step | None = None

    # ---- what the outside asks

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to plan: no sequence, no cell to clear, no end to announce."""
        return not (self._running or self._waiting or self._dirty or self._unannounced)

    def add(self, sequence: NewSequence) -> None:
        """Let `sequence` wait for a slot. What can never run ends with the next step."""
        if sequence.id in self._ids:
            raise ValueError(f"sequence {sequence.id} is here already")
        arrival, self._num_arrived = self._num_arrived, self._num_arrived + 1
        progress = Progress(sequence, arrival=arrival, context_size=self._context_size)
        self._ids.add(sequence.id)
        if (error := self._refusal(sequence)) is not None:
            self._unannounced.append(SequenceOutput(progress.id, (), progress.end(error)))
        elif progress.is_full:
            self._unannounced.append(SequenceOutput(progress.id, (), progress.end("length")))
        else:
            insort(self._waiting, progress, key=_rank)

    def drop(self, sequence_id: SequenceId) -> None:
        """Forget a sequence, wherever it is: nothing more comes for it. Unknown ids are ignored."""
        if sequence_id not in self._ids:
            return
        self._ids.remove(sequence_id)
        self._waiting = [one for one in self._waiting if one.id != sequence_id]
        self._unannounced = [one for one in self._unannounced if one.id != sequence_id]
        for slot, progress in self._running.items():
            if progress.id == sequence_id:
                self._vacate(slot)
                break

    def plan(self) -> Step | None:
        """The next step, to be carried out and answered with `commit`; `None` when idle."""
        if self._planned is not None:
            raise RuntimeError("the last step was not committed")
        if self.is_idle:
            return None
        clears = self._take_dirty()
        self._seat_waiting()
        self._planned = self._compose(clears)
        return self._planned

    def commit(self, step: Step, outcome: Outcome, elapsed: float) -> tuple[SequenceOutput, ...]:
        """Account for `step`, which took `elapsed` seconds: what each sequence gained."""
        if step is not self._planned:
            raise RuntimeError("this is not the step that was planned last")
        self._planned = None
        outputs = self._take_unannounced()
        match outcome:
            case Decoded(tokens):
                outputs += self._account(step, tokens, elapsed)
            case NoRoom():
                self._make_room(step)
            case Aborted():
                self._read_again(step)
            case Failed(reason):
                self._fail(step, f"the engine failed: {reason}")
            case _:
                assert_never(outcome)
        return tuple(outputs)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        slots = [*self._free, *self._dirty, *self._running]
        _check(sorted(slots) == list(range(self._num_slots)), f"slots {slots}")
        live = [one.id for one in (*self._running.values(), *self._waiting)]
        ended = [output.id for output in self._unannounced]
        _check(sorted(live + ended) == sorted(self._ids), f"sequences {live}, {ended}")
        _check(self._waiting == sorted(self._waiting, key=_rank), "waiting out of order")
        _check(1 <= self._prompt_limit <= self._batch_size, f"limit {self._prompt_limit}")
        for one in (*self._running.values(), *self._waiting):
            _check(0 <= one.num_computed < len(one.history), f"{one.id}: {one.num_computed}")
            _check(len(one.history) < self._context_size, f"{one.id}: over the ceiling")
        for one in self._waiting:
            _check(one.num_computed == 0, f"{one.id} waits with {one.num_computed} cells")

    # ---- planning

    def _take_dirty(self) -> tuple[int, ...]:
        clears, self._dirty = tuple(self._dirty), []
        self._free += clears
        return clears

    def _seat_waiting(self) -> None:
        while self._free and self._waiting and not self._holds_joins:
            self._running[self._free.pop()] = self._waiting.pop(0)

    def _compose(self, clears: tuple[int, ...]) -> Step:
        reading = {}
        runs = []
        for slot, one in self._running.items():
            if one.is_generating:
                last = one.num_computed
                runs.append(Run(one.id, slot, last, (one.history[last],), True))
            else:
                reading[slot] = one
        num_generating = len(runs)
        num_prompt_tokens = 0
        if reading:
            num_prompt_tokens = self._add_chunks(runs, reading)
        return Step(clears, tuple(runs), num_generating, num_prompt_tokens)

    def _add_chunks(self, runs: list[Run], reading: dict[int, Progress]) -> int:
        pending = [one.num_pending for one in reading.values()]
        shares = split_fairly(pending, self._prompt_budget(len(runs), pending))
        for (slot, one), share in zip(reading.items(), shares, strict=True):
            tokens = one.next_tokens(share)
            runs.append(Run(one.id, slot, one.num_computed, tokens, share == one.num_pending))
        return sum(shares)

    def _prompt_budget(self, num_generating: int, pending: list[int]) -> int:
        room = min(self._batch_size - num_generating, max(self._prompt_limit, len(pending)))
        if not num_generating:
            return room
        budget = self._cost.prompt_tokens_within(
            self._max_stall, num_generating=num_generating, most=room
        )
        return min(room, max(budget, sum(min(MIN_CHUNK, count) for count in pending)))

    # ---- accounting

    def _take_unannounced(self) -> list[SequenceOutput]:
        outputs, self._unannounced = self._unannounced, []
        for output in outputs:
            self._ids.remove(output.id)
        return outputs

    def _account(self, step: Step, tokens: tuple[int, ...], elapsed: float) -> list[SequenceOutput]:
        if step.runs:
            self._learn(step, elapsed)
        outputs = []
        sampled = iter(tokens)
        for run in step.runs:
            token = next(sampled) if run.samples else None
            progress = self._running.get(run.slot)
            if progress is None:  # dropped since the step was planned
                continue
            progress.advance(len(run.tokens), elapsed)
            if token is not None:
                outputs.append(self._extend(run.slot, progress, token))
        return outputs

    def _learn(self, step: Step, elapsed: float) -> None:
        self._prompt_limit = min(2 * self._prompt_limit, self._batch_size)
        self._cost.observe(
            num_generating=step.num_generating,
            num_prompt_tokens=step.num_prompt_tokens,
            seconds=elapsed,
        )

    def _extend(self, slot: int, progress: Progress, token: int) -> SequenceOutput:
        if token in self._end_tokens:
            self._leave(slot, progress)
            return SequenceOutput(progress.id, (), progress.end("stop"))
        progress.history.append(token)
        if progress.is_full:
            self._leave(slot, progress)
            return SequenceOutput(progress.id, (token,), progress.end("length"))
        return SequenceOutput(progress.id, (token,))

    def _leave(self, slot: int, progress: Progress) -> None:
        self._ids.remove(progress.id)
        self._vacate(slot)

    def _vacate(self, slot: int) -> None:
        del self._running[slot]
        self._dirty.append(slot)
        self._holds_joins = False

    # ---- when a step did not work

    def _make_room(self, step: Step) -> None:
        """Smaller chunks first, then fewer sequences; one that cannot go on alone has failed."""
        num_reading = len(step.runs) - step.num_generating
        if step.num_prompt_tokens > num_reading:
            self._prompt_limit = max(1, step.num_prompt_tokens // 2)
        elif len(self._running) > 1:
            self._preempt()
        else:
            self._fail(step, "the engine has no room for this sequence, even alone")

    def _preempt(self) -> None:
        """The last by rank gives up its cells and waits until another has left."""
        slot, progress = max(self._running.items(), key=lambda item: item[1].rank)
        self._vacate(slot)
        self._holds_joins = True
        progress.rewind()
        insort(self._waiting, progress, key=_rank)

    def _read_again(self, step: Step) -> None:
        """Nobody knows which cells were written: all are cleared and computed anew."""
        for run in step.runs:
            if (progress := self._running.get(run.slot)) is not None:
                self._vacate(run.slot)
                progress.rewind()
                insort(self._waiting, progress, key=_rank)

    def _fail(self, step: Step, message: str) -> None:
        """The step's sequences end when their cells are cleared, which the next step does."""
        for run in step.runs:
            if (progress := self._running.get(run.slot)) is not None:
                self._vacate(run.slot)
                end = progress.end(EngineFailed(message))
                self._unannounced.append(SequenceOutput(progress.id, (), end))

    def _refusal(self, sequence: NewSequence) -> RequestError | None:
        num_tokens = len(sequence.prompt)
        if num_tokens == 0:
            return InvalidRequest("the prompt has no tokens: give at least one")
        if num_tokens >= self._context_size:
            return PromptTooLong(
                f"the prompt has {num_tokens} tokens; this slot holds {self._context_size}, one of "
                "which is for the answer"
            )
        return None


def _check(holds: bool, finding: str) -> None:
    if not holds:
        raise RuntimeError(f"scheduler out of order: {finding}")
