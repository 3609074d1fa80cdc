"""What a step that worked gave: tokens for each sequence, ends, and what was learnt of its cost."""

from collections.abc import Iterator
from typing import Literal

from .memory import Memory
from .progress import Progress
from .prompt_budget import PromptBudget
from .roster import Roster
from .sequence import SequenceOutput
from .statistics import Tally
from .step import Run, Save, Step


class Accounting:
    """Changes the roster and the memory as the step's sequences advance, shift and end.

    `saves` are the states that sequences which ended asked for.
    """

    def __init__(
        self,
        roster: Roster,
        memory: Memory,
        budget: PromptBudget,
        tally: Tally,
        *,
        end_tokens: frozenset[int],
        can_shift: bool,
    ) -> None:
        self._roster = roster
        self._memory = memory
        self._budget = budget
        self._tally = tally
        self._end_tokens = end_tokens
        self._can_shift = can_shift
        self.saves: list[Save] = []

    def account(
        self, step: Step, tokens: tuple[int, ...], elapsed: float, last: float
    ) -> list[SequenceOutput]:
        """What each sequence gained by `step`, which took `elapsed` seconds; see `Decoded`.

        `last` is when the step before it ended, by the tally's clock.
        """
        if step.runs:
            self._learn(step, elapsed)
        outputs = []
        sampled = iter(tokens)
        for index, run in enumerate(step.runs):
            one = self._roster.running[run.slot]
            self._advance(step, run, one, elapsed, is_generating=index < step.num_generating)
            if index < step.num_generating and (
                step.num_prompt_tokens or one.last_token_at != last
            ):
                self._note_stall(step, one)
            output = self._gain(run, one, sampled)
            if output is not None:
                outputs.append(output)
        self._memory.generated(step.num_generating)
        self._memory.raise_limit(2 * step.size)
        return outputs

    def leave(self, slot: int) -> None:
        """Its sequence is over; what it computed stays as long as there is room."""
        self._roster.leave(slot)
        self._memory.leave(slot)
        self._memory.trust()

    def _learn(self, step: Step, elapsed: float) -> None:
        for learner in (self._budget.observe, self._tally.computed):
            learner(
                num_generating=step.num_generating,
                num_prompt_tokens=step.num_prompt_tokens,
                seconds=elapsed,
            )

    def _advance(
        self, step: Step, run: Run, one: Progress, elapsed: float, *, is_generating: bool
    ) -> None:
        self._memory.grow(run.slot, len(run.tokens))
        if is_generating:
            one.decode(elapsed)
        else:
            one.read(len(run.tokens), None if step.num_generating else elapsed)

    def _note_stall(self, step: Step, one: Progress) -> None:
        own = self._budget.cost.generate(step.num_generating)
        self._tally.stalled(max(0.0, self._tally.now - one.last_token_at - own))

    def _gain(self, run: Run, one: Progress, sampled: Iterator[int]) -> SequenceOutput | None:
        token = next(sampled) if run.samples else None
        if run.slot in self._roster.dropped:
            return None
        if token is not None:
            return self._extend(run.slot, one, token)
        if not one.num_pending:  # it only wanted its prompt computed
            return self._end(run.slot, one, "stop")
        return None

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
        if one.save_as is not None:
            self.saves.append(Save(one.id, slot, tuple(one.history[: one.num_computed])))
        self.leave(slot)
        return SequenceOutput(one.id, tokens, one.end(reason), one.num_cached)
