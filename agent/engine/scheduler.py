"""The planner of the engine: what each step computes, and what came of it.

`plan` and `commit` alternate; `add` and `drop` may come at any time. A sequence waits (best
priority first, then by arrival), runs in a slot, and ends exactly once, unless it is dropped.

When cells run short, kept prefixes go first, then the last by rank is preempted (its tokens stay,
its cells go, it waits at the head of its rank and is computed again), and newcomers wait.

Invariants, checked by `check_integrity`:
- a slot is free or holds one sequence; a sequence runs or waits, never both;
- a slot has exactly the cells of its sequence's computed tokens, below the ceiling;
- no step is planned that does not fit the free cells.
"""

from bisect import insort
from operator import attrgetter
from typing import assert_never

from ...shared.errors import EngineFailed, InvalidRequest, PromptTooLong, RequestError
from .admission import Await, Begin, admit
from .capacity import Capacity
from .fair_split import split_fairly
from .memory import Memory
from .progress import Progress
from .prompt_budget import PromptBudget
from .sequence import NewSequence, SequenceId, SequenceOutput
from .statistics import EngineStatistics, Tally
from .step import Aborted, Decoded, Failed, NoRoom, Outcome, Run, Step

_rank = attrgetter("rank")


class Scheduler:
    """Plans steps for `slots` sequences of at most `context_size` tokens each.

    Where somebody generates, or might be waiting to be heard, steps are sized to stay below
    `max_stall` seconds by what steps have cost so far.
    """

    def __init__(
        self,
        *,
        slots: int,
        context_size: int,
        max_stall: float,
        end_tokens: frozenset[int],
        capacity: Capacity,
    ) -> None:
        if capacity.batch_size < slots:
            raise ValueError(
                f"a batch of {capacity.batch_size} cannot hold a token of each of {slots} slots"
            )
        self._ceiling = min(context_size, capacity.num_cells)
        self._end_tokens = end_tokens
        self._budget = PromptBudget(batch_size=capacity.batch_size, max_stall=max_stall)
        self._memory = Memory(
            slots=slots,
            holders=capacity.num_holders,
            num_cells=capacity.num_cells,
            can_share=capacity.can_share,
        )
        self._tally = Tally()
        self._num_slots = slots
        self._free = list(range(slots))
        self._running: dict[int, Progress] = {}  # by slot, in the order of joining
        self._waiting: list[Progress] = []  # by rank
        self._ids: set[SequenceId] = set()
        self._unannounced: list[SequenceOutput] = []  # of those that never ran
        self._num_arrived = 0
        self._planned: Step | None = None
        self._dropped: set[int] = set()  # slots in the planned step

    # ---- what the outside asks

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to plan: no sequence, no end to announce."""
        return not (self._running or self._waiting or self._unannounced)

    def statistics(self) -> EngineStatistics:
        """What was done so far, and how things stand."""
        return self._tally.summary(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            num_cells=self._memory.num_cells,
            used=self._memory.num_used,
            kept=self._memory.num_kept,
        )

    def add(self, sequence: NewSequence) -> None:
        """Let `sequence` wait for a slot. What can never run ends with the next step."""
        if sequence.id in self._ids:
            raise ValueError(f"sequence {sequence.id} is here already")
        arrival, self._num_arrived = self._num_arrived, self._num_arrived + 1
        progress = Progress(sequence, arrival=arrival, ceiling=self._ceiling)
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
                if self._planned is None:
                    self._leave(slot)
                else:
                    self._dropped.add(slot)
                break

    def plan(self) -> Step | None:
        """The next step, to be carried out and answered with `commit`; `None` when idle."""
        if self._planned is not None:
            raise RuntimeError("the last step was not committed")
        if self.is_idle:
            return None
        self._relieve()
        self._planned = self._compose(self._admit())
        return self._planned

    def commit(
        self, step: Step, outcome: Outcome, elapsed: float, pause: float = 0.0
    ) -> tuple[SequenceOutput, ...]:
        """Account for `step`, which took `elapsed` seconds: what each sequence gained.

        `pause` is how long there was something to do before it that was not done, in seconds.
        """
        if step is not self._planned:
            raise RuntimeError("this is not the step that was planned last")
        self._planned = None
        outputs = self._take_unannounced()
        last = self._tally.now
        self._tally.passed(pause + elapsed, len(self._running))
        match outcome:
            case Decoded(tokens):
                outputs += self._account(step, tokens, elapsed, last)
            case NoRoom():
                outputs += self._make_room(step)
            case Aborted():
                self._take_back(step)
            case Failed(reason):
                outputs += self._fail(step, f"the engine failed: {reason}")
            case _:
                assert_never(outcome)
        while self._dropped:
            self._leave(self._dropped.pop())
        return tuple(outputs)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        self._memory.check_integrity()
        slots = [*self._free, *self._running]
        _check(sorted(slots) == list(range(self._num_slots)), f"slots {slots}")
        live = [one.id for one in (*self._running.values(), *self._waiting)]
        ended = [output.id for output in self._unannounced]
        _check(sorted(live + ended) == sorted(self._ids), f"sequences {live}, {ended}")
        _check(self._waiting == sorted(self._waiting, key=_rank), "waiting out of order")
        for one in (*self._running.values(), *self._waiting):
            _check(0 <= one.num_computed < len(one.history), f"{one.id}: {one.num_computed}")
            _check(len(one.history) < self._ceiling, f"{one.id}: over the ceiling")
        for one in self._waiting:
            _check(one.num_computed == 0, f"{one.id} waits with {one.num_computed} cells")
        for slot in range(self._num_slots):
            running = self._running.get(slot)
            num_computed = running.num_computed if running else 0
            _check(self._memory.length(slot) == num_computed, f"cells of slot {slot}")

    # ---- planning

    def _relieve(self) -> None:
        """See to it that every running sequence can gain a token."""
        if not self._running:
            self._memory.trust()
        while len(self._running) > 1 and self._memory.num_available < len(self._running):
            self._preempt()

    def _preempt(self) -> None:
        slot, progress = max(self._running.items(), key=lambda item: item[1].rank)
        self._retreat(slot, progress)
        self._tally.preempted()

    def _retreat(self, slot: int, progress: Progress) -> None:
        """It gives up its cells, and waits to compute them again."""
        self._vacate(slot)
        progress.rewind()
        insort(self._waiting, progress, key=_rank)

    def _admit(self) -> dict[int, int]:
        """Let newcomers begin; by slot, how many computed tokens others wait for."""
        awaited: dict[int, int] = {}
        if not (self._free and self._waiting):
            return awaited
        candidates = self._waiting[: len(self._free)]
        for decision in admit(candidates, self._running.values(), self._memory):
            match decision:
                case Begin(one, found):
                    self._waiting.remove(one)
                    slot = self._free.pop()
                    self._memory.enter(slot, one.history, found, most_shared=len(one.history))
                    self._tally.shared(one.start(found.length))
                    self._running[slot] = one
                case Await(slot, length):
                    awaited[slot] = min(length, awaited.get(slot, length))
                case _:
                    assert_never(decision)
        return awaited

    def _compose(self, awaited: dict[int, int]) -> Step:
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
            num_prompt_tokens = self._add_chunks(runs, reading, awaited)
        self._memory.make_room(num_generating + num_prompt_tokens)
        return Step(self._memory.take_edits(), tuple(runs), num_generating, num_prompt_tokens)

    def _add_chunks(
        self, runs: list[Run], reading: dict[int, Progress], awaited: dict[int, int]
    ) -> int:
        """Where others wait for a part of a prompt, its chunk ends there: they go on sooner."""
        wants = [
            awaited[slot] - one.num_computed if slot in awaited else one.num_pending
            for slot, one in reading.items()
        ]
        budget = self._budget.prompt_tokens(len(runs), wants)
        shares = split_fairly(wants, min(budget, self._memory.num_available - len(runs)))
        for (slot, one), share in zip(reading.items(), shares, strict=True):
            tokens = one.next_tokens(share)
            runs.append(Run(one.id, slot, one.num_computed, tokens, share == one.num_pending))
        return sum(shares)

    # ---- accounting

    def _take_unannounced(self) -> list[SequenceOutput]:
        outputs, self._unannounced = self._unannounced, []
        for output in outputs:
            self._ids.remove(output.id)
        return outputs

    def _account(
        self, step: Step, tokens: tuple[int, ...], elapsed: float, last: float
    ) -> list[SequenceOutput]:
        if step.runs:
            self._learn(step, elapsed)
        pure_seconds = None if step.num_generating else elapsed
        outputs = []
        sampled = iter(tokens)
        for index, run in enumerate(step.runs):
            progress = self._running[run.slot]
            self._memory.grow(run.slot, len(run.tokens))
            if index < step.num_generating:
                progress.decode(elapsed)
                if step.num_prompt_tokens or progress.last_token_at != last:
                    self._note_stall(step, progress)
            else:
                progress.read(len(run.tokens), pure_seconds)
            if run.samples:
                token = next(sampled)
                if run.slot not in self._dropped:
                    outputs.append(self._extend(run.slot, progress, token))
        self._memory.raise_limit(2 * (step.num_generating + step.num_prompt_tokens))
        return outputs

    def _learn(self, step: Step, elapsed: float) -> None:
        for learner in (self._budget.observe, self._tally.computed):
            learner(
                num_generating=step.num_generating,
                num_prompt_tokens=step.num_prompt_tokens,
                seconds=elapsed,
            )

    def _note_stall(self, step: Step, progress: Progress) -> None:
        own = self._budget.cost.generate(step.num_generating)
        self._tally.stalled(max(0.0, self._tally.now - progress.last_token_at - own))

    def _extend(self, slot: int, progress: Progress, token: int) -> SequenceOutput:
        if token in self._end_tokens:
            self._end(slot, progress)
            return SequenceOutput(progress.id, (), progress.end("stop"), progress.num_cached)
        progress.extend(token, self._tally.now)
        self._tally.gave(1)
        if progress.is_full:
            self._end(slot, progress)
            end = progress.end("length")
            return SequenceOutput(progress.id, (token,), end, progress.num_cached)
        return SequenceOutput(progress.id, (token,), None, progress.num_cached)

    def _end(self, slot: int, progress: Progress) -> None:
        self._ids.remove(progress.id)
        self._leave(slot)

    def _leave(self, slot: int) -> None:
        """Its sequence is over; what it computed stays as long as there is room."""
        del self._running[slot]
        self._free.append(slot)
        self._memory.leave(slot)
        self._memory.trust()

    def _vacate(self, slot: int) -> None:
        del self._running[slot]
        self._free.append(slot)
        self._memory.clear(slot)

    # ---- when a step did not work

    def _make_room(self, step: Step) -> list[SequenceOutput]:
        """The cells hold less than they should: believe in fewer until somebody has left.

        The next step then finds room as always. A sequence that cannot go on alone has failed.
        """
        size = step.num_generating + step.num_prompt_tokens
        if len(self._running) > 1 or size > 1:
            self._memory.lower_limit(size // 2)
            return []
        if self._memory.drop_kept():
            return []
        return self._fail(step, "the engine has no room for this sequence, even alone")

    def _take_back(self, step: Step) -> None:
        """Nobody knows which cells were written: they are computed anew."""
        for run in step.runs:
            if self._memory.can_share:
                self._memory.sweep(run.slot)
            elif run.slot not in self._dropped:
                self._retreat(run.slot, self._running[run.slot])

    def _fail(self, step: Step, message: str) -> list[SequenceOutput]:
        outputs = []
        for run in step.runs:
            progress = self._running[run.slot]
            self._vacate(run.slot)
            if run.slot in self._dropped:
                self._dropped.remove(run.slot)
            else:
                self._ids.remove(progress.id)
                end = progress.end(EngineFailed(message))
                outputs.append(SequenceOutput(progress.id, (), end))
        return outputs

    def _refusal(self, sequence: NewSequence) -> RequestError | None:
        num_tokens = len(sequence.prompt)
        if num_tokens == 0:
            return InvalidRequest("the prompt has no tokens: give at least one")
        if num_tokens >= self._ceiling:
            return PromptTooLong(
                f"the prompt has {num_tokens} tokens; this slot holds {self._ceiling}, one of "
                "which is for the answer"
            )
        return None


def _check(holds: bool, finding: str) -> None:
    if not holds:
        raise RuntimeError(f"scheduler out of order: {finding}")
