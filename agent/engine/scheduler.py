"""The planner of the engine: what each step computes, and what came of it.

`plan` and `commit` alternate; `add`, `finish` and `drop` may come at any time. A sequence waits
(best priority first, then by arrival), runs in a slot, and ends exactly once, unless it is dropped.

When cells run short, kept prefixes go first, then the last by rank is preempted (its tokens stay,
its cells go, it waits at the head of its rank and is computed again), and newcomers wait.

Invariants, checked by `check_integrity`:
- a slot has exactly the cells of its sequence's computed tokens, below the ceiling;
- no step is planned that does not fit the free cells.
"""

from typing import Literal, assert_never

from ...shared.errors import EngineFailed
from ...shared.inference import Notice
from .capacity import Capacity
from .memory import Memory
from .planner import Planner
from .progress import Progress
from .prompt_budget import PromptBudget
from .refusal import refusal
from .roster import Roster
from .sequence import NewSequence, SequenceId, SequenceOutput
from .statistics import EngineStatistics, Tally
from .step import Aborted, Copy, Decoded, Failed, Load, NoRoom, NotLoaded, Outcome, Save, Step
from .window import open_window

_UNUSABLE = Notice("stored_prompt_unusable", "the stored prompt could not be loaded into the cache")


class Scheduler:
    """Plans steps for `slots` sequences of at most `context_size` tokens each.

    Steps are sized to stay below `max_stall` seconds by what steps have cost so far.
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
        self._can_shift = capacity.can_shift
        self._budget = PromptBudget(batch_size=capacity.batch_size, max_stall=max_stall)
        self._memory = Memory(
            slots=slots,
            holders=capacity.num_holders,
            num_cells=capacity.num_cells,
            can_share=capacity.can_share,
            keep_for=capacity.keep_for,
        )
        self._tally = Tally()
        self._roster = Roster(slots)
        self._running = self._roster.running
        self._planner = Planner(self._roster, self._memory, self._budget, self._tally)
        self._ids: set[SequenceId] = set()
        self._unannounced: list[SequenceOutput] = []
        self._saves: list[Save] = []
        self._num_arrived = 0
        self._planned: Step | None = None
        self._dropped: set[int] = set()  # slots in the planned step

    # ---- what the outside asks

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to plan: no sequence, nothing to announce."""
        return not (self._running or self._roster.waiting or self._unannounced)

    def statistics(self) -> EngineStatistics:
        """What was done so far, and how things stand."""
        return self._tally.summary(
            num_running=len(self._running),
            num_waiting=len(self._roster.waiting),
            num_cells=self._memory.num_cells,
            used=self._memory.num_used,
            kept=self._memory.num_kept,
        )

    def add(self, sequence: NewSequence) -> None:
        """Let `sequence` wait for a slot. What can never run ends with the next step."""
        if sequence.id in self._ids:
            raise ValueError(f"sequence {sequence.id} is here already")
        self._ids.add(sequence.id)
        window = None
        error = refusal(sequence, self._ceiling)
        if sequence.shift is not None and error is None:
            window, notices = open_window(sequence.shift, self._ceiling, len(sequence.prompt))
            if notices:
                self._unannounced.append(SequenceOutput(sequence.id, notices=notices))
        arrival, self._num_arrived = self._num_arrived, self._num_arrived + 1
        one = Progress(sequence, arrival=arrival, ceiling=self._ceiling, window=window)
        if error is not None:
            self._unannounced.append(SequenceOutput(one.id, (), one.end(error)))
        elif one.is_full and not one.prefill_only:
            self._unannounced.append(SequenceOutput(one.id, (), one.end("length")))
        else:
            self._roster.wait(one)

    def finish(self, sequence_id: SequenceId) -> None:
        """Take a sequence's next token for the end, whatever it is. Unknown ids are ignored."""
        one = self._roster.find(sequence_id)
        if one is not None:
            one.is_finishing = True

    def drop(self, sequence_id: SequenceId) -> None:
        """Forget a sequence, wherever it is: nothing more comes for it. Unknown ids are ignored."""
        if sequence_id not in self._ids:
            return
        self._ids.remove(sequence_id)
        self._roster.stop_waiting(sequence_id)
        self._unannounced = [one for one in self._unannounced if one.id != sequence_id]
        slot = self._roster.slot_of(sequence_id)
        if slot is not None:
            self._dropped.add(slot)
            if self._planned is None:
                self._let_go_of_dropped()

    def plan(self) -> Step | None:
        """The next step, to be carried out and answered with `commit`; `None` when idle."""
        if self._planned is not None:
            raise RuntimeError("the last step was not committed")
        if self.is_idle:
            return None
        self._saves.clear()
        self._planned = self._planner.plan()
        return self._planned

    def commit(
        self, step: Step, outcome: Outcome, elapsed: float, pause: float = 0.0
    ) -> tuple[SequenceOutput, ...]:
        """Account for `step`, which took `elapsed` seconds: what each sequence gained.

        `pause` is how long there was something to do before it that was not done, in seconds.
        Afterwards `saves` says what to hand out with the ends, before the next step.
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
            case NotLoaded(slots):
                self._read_instead(step, slots)
            case Failed(reason):
                outputs += self._fail(step, f"the engine failed: {reason}")
            case _:
                assert_never(outcome)
        self._let_go_of_dropped()
        return tuple(outputs)

    @property
    def saves(self) -> tuple[Save, ...]:
        """States that ended sequences asked for; to be had until the next step is carried out."""
        return tuple(self._saves)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
        self._memory.check_integrity()
        self._roster.check_integrity()
        everybody = [*self._running.values(), *self._roster.waiting]
        _check({one.id for one in everybody} <= self._ids, "ids")
        for one in everybody:
            _check(0 <= one.num_computed < len(one.history), f"{one.id}: {one.num_computed}")
            _check(len(one.history) < self._ceiling, f"{one.id}: over the ceiling")
        for one in self._roster.waiting:
            _check(one.num_computed == 0, f"{one.id} waits with {one.num_computed} cells")
        for slot, one in self._running.items():
            _check(self._memory.length(slot) == one.num_computed, f"cells of slot {slot}")

    # ---- accounting

    def _take_unannounced(self) -> list[SequenceOutput]:
        outputs, self._unannounced = self._unannounced, []
        self._ids -= {output.id for output in outputs if output.end is not None}
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
            one = self._running[run.slot]
            self._memory.grow(run.slot, len(run.tokens))
            if index < step.num_generating:
                one.decode(elapsed)
                if step.num_prompt_tokens or one.last_token_at != last:
                    self._note_stall(step, one)
            else:
                one.read(len(run.tokens), pure_seconds)
            token = next(sampled) if run.samples else None
            if run.slot in self._dropped:
                continue
            if token is not None:
                outputs.append(self._extend(run.slot, one, token))
            elif not one.num_pending:  # it only wanted its prompt computed
                outputs.append(self._end(run.slot, one, "stop"))
        self._memory.generated(step.num_generating)
        self._memory.raise_limit(2 * (step.num_generating + step.num_prompt_tokens))
        return outputs

    def _learn(self, step: Step, elapsed: float) -> None:
        for learner in (self._budget.observe, self._tally.computed):
            learner(
                num_generating=step.num_generating,
                num_prompt_tokens=step.num_prompt_tokens,
                seconds=elapsed,
            )

    def _note_stall(self, step: Step, one: Progress) -> None:
        own = self._budget.cost.generate(step.num_generating)
        self._tally.stalled(max(0.0, self._tally.now - one.last_token_at - own))

    def _extend(self, slot: int, one: Progress, token: int) -> SequenceOutput:
        if one.is_finishing or token in self._end_tokens:
            return self._end(slot, one, "stop")
        one.extend(token, self._tally.now)
        self._tally.gave(1)
        if one.is_full:
            return self._end(slot, one, "length", (token,))
        if one.must_shift:
            self._shift(slot, one)
        return SequenceOutput(one.id, (token,), None, one.num_cached)

    def _shift(self, slot: int, one: Progress) -> None:
        window = one.window
        if window is None:
            raise RuntimeError(f"sequence {one.id} has no window to shift")
        one.shift(window, is_moved=self._can_shift)
        if self._can_shift:
            self._memory.discard(slot, window.num_kept, window.num_discarded)
        elif self._memory.can_share:
            self._memory.truncate(slot, window.num_kept)
        else:
            self._memory.truncate(slot, 0)
            one.rewind()

    def _end(
        self,
        slot: int,
        one: Progress,
        reason: Literal["stop", "length"],
        tokens: tuple[int, ...] = (),
    ) -> SequenceOutput:
        self._ids.remove(one.id)
        if one.save_as is not None:
            self._saves.append(Save(one.id, slot, tuple(one.history[: one.num_computed])))
        self._leave(slot)
        return SequenceOutput(one.id, tokens, one.end(reason), one.num_cached)

    def _leave(self, slot: int) -> None:
        """Its sequence is over; what it computed stays as long as there is room."""
        self._roster.leave(slot)
        self._memory.leave(slot)
        self._memory.trust()

    def _let_go_of_dropped(self) -> None:
        while self._dropped:
            self._leave(self._dropped.pop())

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
                self._planner.retreat(run.slot)

    def _read_instead(self, step: Step, slots: tuple[int, ...]) -> None:
        """Whoever was to begin with what could not be loaded begins anew, as do its sharers."""
        empty: set[int] = set()
        for edit in step.edits:
            if isinstance(edit, Load) and edit.slot in slots:
                empty.add(edit.slot)
            elif isinstance(edit, Copy) and edit.source in empty:
                empty.add(edit.holder)
        for slot in empty:
            one = self._running[slot]
            self._tally.shared(-one.begin_anew())
            self._planner.retreat(slot)
            if slot in self._dropped:
                self._dropped.remove(slot)
                self._roster.stop_waiting(one.id)
            elif slot in slots:
                self._unannounced.append(SequenceOutput(one.id, notices=(_UNUSABLE,)))

    def _fail(self, step: Step, message: str) -> list[SequenceOutput]:
        outputs = []
        for run in step.runs:
            self._memory.clear(run.slot)
            one = self._roster.leave(run.slot)
            if run.slot in self._dropped:
                self._dropped.remove(run.slot)
            else:
                self._ids.remove(one.id)
                outputs.append(SequenceOutput(one.id, (), one.end(EngineFailed(message))))
        return outputs


def _check(holds: bool, finding: str) -> None:
    if not holds:
        raise RuntimeError(f"scheduler out of order: {finding}")
