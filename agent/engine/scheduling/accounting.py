"""Accounts for a step that succeeded: tokens and ends of each sequence, and the step's cost."""

from collections.abc import Iterator
from typing import Literal

from ....shared.errors import EngineFailed
from ..sequence import SequenceOutput
from ..step import Decoded, Run, Step
from .progress import Progress
from .state import SchedulerState

BROKEN = "the engine failed to choose this answer's next token; the agent's log has the details"


class Accounting:
    """Updates the queue and the memory when the step's sequences advance, shift or end."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._queue = state.queue
        self._memory = state.memory
        self._budget = state.budget
        self._tally = state.tally
        self._end_tokens = state.end_tokens
        self._can_shift = state.capacity.can_shift
        self._can_share = state.capacity.can_share
        self._adapter: str | None = None  # of the last step

    def account(
        self, step: Step, decoded: Decoded, elapsed: float, last: float, drafting: float = 0.0
    ) -> list[SequenceOutput]:
        """Return what each sequence gained by `step`, which took `elapsed` seconds.

        The `drafting` seconds come on top. `last` is the end of the previous step by the tally's
        clock.
        """
        if step.num_moved:
            self._budget.moves.observe(step.num_moved, decoded.move_seconds)
        else:
            self._budget.moves.nothing_copied()
        elapsed = max(0.0, elapsed - decoded.move_seconds)
        if step.runs:
            self._learn(step, elapsed, drafting)
        outputs: list[SequenceOutput] = []
        sampled = iter(decoded.tokens)
        for index, run in enumerate(step.runs):
            one = self._queue.running[run.slot]
            if run.id in decoded.broken:
                outputs.append(self.break_off(run.slot, BROKEN))
                continue
            chosen = _chosen(run, sampled)
            has_read = index >= step.num_generating
            if not has_read:
                self._decoded(step, one, elapsed, last, drafting)
            else:
                one.read(run.num_positions, None if step.num_generating else elapsed)
                one.scored(len(run.scored))
            output = self._gain(run, one, chosen, has_read=has_read)
            if output is not None:
                outputs.append(output)
        self._tally.gave(sum(len(output.tokens) for output in outputs))
        room = self._memory.room
        room.limit(max(room.num_free, 2 * step.size))
        return outputs

    def break_off(self, slot: int, reason: str) -> SequenceOutput:
        """End the slot's sequence with an error, and drop its computed tokens."""
        one = self._state.clear(slot)
        self._memory.room.limit()
        return SequenceOutput(one.id, (), one.end(EngineFailed(reason)))

    def _learn(self, step: Step, elapsed: float, drafting: float) -> None:
        self._budget.cost.observe(
            num_generating=step.num_generating,
            num_prompt_tokens=step.num_prompt_tokens,
            depth=step.depth,
            num_drafted=step.num_drafted,
            seconds=elapsed,
            changes_adapter=step.adapter != self._adapter,
        )
        self._adapter = step.adapter
        self._tally.computed(
            num_generating=step.num_generating,
            num_prompt_tokens=step.num_prompt_tokens,
            seconds=elapsed + drafting * bool(step.num_generating),
        )

    def _decoded(
        self, step: Step, one: Progress, elapsed: float, last: float, drafting: float
    ) -> None:
        """Account for a generating sequence. Record a stall if prompts of other sequences delayed
        it.
        """
        one.decode(elapsed + drafting)
        if step.num_prompt_tokens or one.last_token_at != last:
            own = drafting
            own += self._budget.cost.generate(step.num_generating + step.num_drafted)
            self._tally.stalled(max(0.0, self._tally.now - one.last_token_at - own))

    def _gain(
        self, run: Run, one: Progress, chosen: tuple[int, ...], *, has_read: bool
    ) -> SequenceOutput | None:
        """Add the `chosen` tokens to `one`, and discard the cells of rejected drafts."""
        num_accepted = max(0, len(chosen) - 1)
        self._memory.grow(run.slot, run.num_positions - run.num_drafted + num_accepted)
        if num_accepted < run.num_drafted:
            self._memory.discard(run.slot)
        if run.num_drafted:
            self._tally.drafted(run.num_drafted, num_accepted)
        if chosen:
            return self._extend(run.slot, one, chosen, has_read=has_read)
        if not one.num_pending:
            return self._end(run.slot, one, "stop")  # it only wanted its prompt computed
        return None

    def _extend(
        self, slot: int, one: Progress, chosen: tuple[int, ...], *, has_read: bool
    ) -> SequenceOutput:
        """Add the `chosen` tokens to `one`, and end or shift it if necessary.

        All chosen tokens except the last are computed already. If the step `has_read` tokens of
        the prompt, the output has the sequence's counts.
        """
        for index, token in enumerate(chosen):
            if index:
                one.confirm()
            if token in self._end_tokens:
                return self._end(slot, one, "stop", chosen[:index])
            one.extend(token, self._tally.now)
        if one.is_full:
            return self._end(slot, one, "length", chosen)
        if one.must_shift:
            self._shift(slot, one)
        if has_read:
            return SequenceOutput(one.id, chosen, stats=one.stats())
        return SequenceOutput(one.id, chosen, decode_seconds=one.decode_seconds)

    def _shift(self, slot: int, one: Progress) -> None:
        window = one.window
        if window is None:
            raise RuntimeError(f"sequence {one.id} has no window to shift")
        one.shift(window, is_moved=self._can_shift)
        if self._can_shift:
            self._memory.discard(slot, window.num_kept, window.num_discarded)
        elif self._can_share:
            self._memory.discard(slot, window.num_kept)
        else:
            self._memory.discard(slot, 0)
            one.rewind()

    def _end(
        self,
        slot: int,
        one: Progress,
        reason: Literal["stop", "length"],
        tokens: tuple[int, ...] = (),
    ) -> SequenceOutput:
        self._state.leave(slot)
        return SequenceOutput(one.id, tokens, one.end(reason))


def _chosen(run: Run, sampled: Iterator[int]) -> tuple[int, ...]:
    """Return the tokens of `sampled` that belong to this run; see `Decoded`."""
    if not run.samples:
        return ()
    if not run.num_drafted:
        return (next(sampled),)
    chosen = []
    for drafted in run.draft:
        chosen.append(next(sampled))
        if chosen[-1] != drafted:
            return tuple(chosen)
    return (*chosen, next(sampled))
