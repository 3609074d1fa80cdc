"""The prefill budget: how many prompt tokens a step may have, so that streams do not stall long.

Beside streams a step reads as much as should take at most `max_stall`, by what prefill has cost so
far. With nothing generating, prompts get the whole batch, as far as it takes at most `PATIENCE`
seconds: while a step is computed, the engine takes neither new sequences nor cancels. The cost of
the very first step is unknown, so it gets few tokens.
"""

from collections.abc import Iterable
from math import floor

from ..cost.move_cost import MoveCost
from ..cost.step_cost import StepCost
from ..speculation.drafter import StepPrices

MIN_CHUNK = 8
"""Prompt tokens of a step, however slow the steps are: prompts always advance, in hundreds of steps
rather than thousands."""

FIRST_CHUNK = 128
"""Prompt tokens of the very first step, whose cost is unknown."""

PATIENCE = 2.0
"""Seconds for which commands may wait while there is nobody to stall."""

MARGIN = 0.92
"""The part of the bound that steps are sized for, because steps vary."""

DRAFTED = 0.25
"""The part of a step's room for prompts that drafts may take."""

ROUND = 0.2
"""The part of the bound that a round of all adapters may take for the sake of longer turns."""

MOST_IN_TURN = 16
"""Steps of a turn: by then a change of adapters costs little beside them."""

PROBED = 2
"""Steps of a turn while only steps were seen that changed the adapter."""

PROPOSING = 0.5
"""The part of the bound that making proposals may take, where no prompts are read."""


class PrefillBudget:
    """`batch_size` bounds a step's tokens, `max_stall` its seconds."""

    def __init__(
        self,
        *,
        batch_size: int,
        max_stall: float,
        most_mixed: int = 0,
        can_mix: bool = True,
        cell_bytes: int = 0,
        fixed_bytes: int = 0,
    ) -> None:
        self._batch_size = batch_size
        self._max_stall = max_stall
        self.cost = StepCost(most_mixed=most_mixed, can_mix=can_mix)
        self.moves = MoveCost(cell_bytes=cell_bytes, fixed_bytes=fixed_bytes)

    def moved_cells(self, num_generating: int) -> float:
        """How many cells' states may be copied before a step; infinite where that costs nothing."""
        return self.moves.within(self._seconds(num_generating), is_alone=not num_generating)

    def most_whole(self, num_generating: int) -> float:
        """How many cells of a stream may be copied before a step; no limit with nobody to stall."""
        if not num_generating:
            return float("inf")
        return self.moves.most_whole(self._seconds(num_generating))

    def may_copy_whole(self, num_generating: int, num_cells: int) -> bool:
        """Whether the state of a sequence may be copied before a step, where it cannot be cut."""
        return not num_generating or self.moves.fits_whole(num_cells, self._seconds(num_generating))

    def prompt_tokens(
        self, num_generating: int, num_pending: int, *, depth: int = 0, num_moved: int = 0
    ) -> int:
        """How many of `num_pending`, the next of which lies at position `depth`; at least one.

        It may be more than `num_pending`, where time allows that. Copying the states of `num_moved`
        cells takes its part of the time.
        """
        seconds = self._seconds(num_generating) - self.moves.seconds(num_moved)
        fitting = self.cost.read_within(
            max(0.0, seconds), num_pending, depth=depth, num_generating=num_generating
        )
        if not self.cost.knows_reading:
            fitting = FIRST_CHUNK
        return floor(min(self._batch_size - num_generating, max(fitting, _least(num_pending))))

    def _seconds(self, num_generating: int) -> float:
        """What a step may take."""
        return MARGIN * (self._max_stall if num_generating else max(self._max_stall, PATIENCE))

    def draft_prices(self, num_generating: int, *, has_time: bool) -> StepPrices:
        """What a step of so many sequences takes. Proposing gets time where it `has_time`: what it
        takes would come on top of what prompts may take."""
        step = self.cost.generate(num_generating)
        return StepPrices(
            step=step,
            token=step * self.cost.draft_price(num_generating),
            num_generating=num_generating,
            most=PROPOSING * self._max_stall if has_time else 0.0,
        )

    def steps_of_a_turn(self, sizes: Iterable[int]) -> int:
        """How many steps each adapter has in a round, where so many sequences generate under each.

        At least one. A stream waits for all others' turns, so short rounds have several. The more
        there are, the less changes of the adapter cost; where each step was one, a second step
        shows what steps take without.
        """
        sizes = list(sizes)
        seconds = sum(map(self.cost.generate, sizes))
        if not seconds:
            return 1
        if not self.cost.knows_unchanged:
            return PROBED
        left = ROUND * self._max_stall - len(sizes) * self.cost.change
        return max(1, min(MOST_IN_TURN, floor(left / seconds)))

    def drafted_tokens(self, num_generating: int, num_pending: int, num_prompt_tokens: int) -> int:
        """How many tokens may be drafted besides. Prompts with `num_pending` tokens give them up.

        They give up a part of their `num_prompt_tokens`, and nothing of the least they get.
        """
        if not num_pending:
            return self._batch_size - num_generating
        return min(floor(DRAFTED * num_prompt_tokens), num_prompt_tokens - _least(num_pending))


def _least(num_pending: int) -> int:
    return min(MIN_CHUNK, num_pending)
