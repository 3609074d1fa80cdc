"""How many prompt tokens a step may have: the promise that a running stream never stalls long.

A step is sized to end within `max_stall`, by what steps have cost so far. That holds for steps in
which nothing generates, too: nobody can be heard while a step is computed, and a newcomer with a
short prompt should not wait behind the whole batch that somebody else's long one could fill.

What is not known yet is approached from below: the first prompt, and the first one beside streams,
get little, and a step never reads much more than the largest of its kind so far.
"""

from math import floor

from .step_cost import StepCost

MIN_CHUNK = 8
"""Prompt tokens that each prompt gets in a step, however slow the steps are: a prompt always
advances, in hundreds of steps rather than thousands."""

FIRST_CHUNK = 128
"""Prompt tokens of the first step of all, about whose price nothing is known."""

MARGIN = 0.88
"""The part of the bound that steps are sized for. Steps vary, and they get dearer as a prompt's
attention reaches back further."""

CAUTION = 0.4
"""A first step that both reads and generates gets this part of what reading alone would allow."""

GROWTH = 1.5
"""How much larger than the largest one before a step of both kinds may be."""


DRAFTED = 0.25
"""The part of a step's room for prompts that drafts may take."""


class PromptBudget:
    """`batch_size` bounds a step's tokens, `max_stall` its seconds."""

    def __init__(self, *, batch_size: int, max_stall: float) -> None:
        self._batch_size = batch_size
        self._seconds = max_stall * MARGIN
        self._largest_mixed = 0
        self.cost = StepCost()

    def observe(
        self, *, num_generating: int, num_prompt_tokens: int, num_drafted: int = 0, seconds: float
    ) -> None:
        """Learn from a step that took `seconds`."""
        self.cost.observe(
            num_generating=num_generating,
            num_prompt_tokens=num_prompt_tokens,
            num_drafted=num_drafted,
            seconds=seconds,
        )
        if num_generating and num_prompt_tokens:
            self._largest_mixed = max(self._largest_mixed, num_prompt_tokens + num_drafted)

    def prompt_tokens(self, num_generating: int, pending: list[int]) -> int:
        """How many, for prompts with so many `pending` tokens each; at least one for each."""
        fitting = self._beside(num_generating) if num_generating else self._alone()
        return floor(min(self._batch_size - num_generating, max(fitting, _least(pending))))

    def drafted_tokens(
        self, num_generating: int, pending: list[int], num_prompt_tokens: int
    ) -> int:
        """How many tokens may be drafted besides. Prompts with `pending` tokens give them up.

        They give up a part of their `num_prompt_tokens`, and nothing of the least they get.
        """
        if not pending:
            return self._batch_size - num_generating
        return min(floor(DRAFTED * num_prompt_tokens), num_prompt_tokens - _least(pending))

    def _alone(self) -> float:
        if not self.cost.knows_reading:
            return FIRST_CHUNK
        return self.cost.read_within(self._seconds)

    def _beside(self, num_generating: int) -> float:
        if self.cost.knows_mixed:
            fitting = self.cost.mixed_within(self._seconds, num_generating)
            return min(fitting, GROWTH * self._largest_mixed)
        left = self._seconds - self.cost.generate(num_generating)
        return CAUTION * self.cost.read_within(left) if self.cost.knows_reading else 0


def _least(pending: list[int]) -> int:
    return sum(min(MIN_CHUNK, count) for count in pending)
