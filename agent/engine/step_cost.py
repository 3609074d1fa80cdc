"""What a step costs, learnt from the steps that were run.

seconds = fixed + per_generated x generating sequences + per_prompt x prompt tokens, by least
squares on the errors per token, so that a step of a whole prompt counts like one of a few tokens. A
step's weight halves with every `log(2) / (1 - FORGETTING)` steps after it. No part is ever
negative: a negative price would make the budget infinite. Steps are added up as they come; the
prices are worked out when there are prompts, which most steps have not.
"""

from math import floor

FORGETTING = 0.97
PASSES = 6
"""Rounds of coordinate descent; each time starts from the last answer, so few suffice."""

_TOO_LITTLE = 1e-200
"""Below this a sum of squares holds no information any more: the last answer stands."""


class StepCost:
    """Prices in seconds. Unknown ones are 0."""

    def __init__(self) -> None:
        # In the order prompt token, generated token, fixed: where the steps seen so far leave a
        # choice, the price goes to the tokens, which errs towards smaller chunks.
        self._prices = [0.0, 0.0, 0.0]
        self._squares = [[0.0] * 3 for _ in range(3)]
        self._sums = [0.0, 0.0, 0.0]
        self._has_seen_prompt = False
        self._is_fitted = True

    def observe(self, *, num_generating: int, num_prompt_tokens: int, seconds: float) -> None:
        """Learn from a step that took `seconds`."""
        scale = 1 / (1 + num_prompt_tokens + num_generating)
        self._add(num_prompt_tokens * scale, num_generating * scale, scale, seconds * scale)
        self._is_fitted = False
        if num_prompt_tokens:
            # Now, since what is known of prompts fades away during a long time without any.
            self._has_seen_prompt = True
            self._fit()

    def predict(self, *, num_generating: int, num_prompt_tokens: int) -> float:
        """Seconds that such a step should take."""
        if not self._is_fitted:
            self._fit()
        per_prompt, per_generated, fixed = self._prices
        return fixed + per_generated * num_generating + per_prompt * num_prompt_tokens

    def prompt_tokens_within(self, seconds: float, *, num_generating: int, most: int) -> int:
        """How many prompt tokens, at most `most`, fit a step of `seconds`; 0 when none is known."""
        left = seconds - self.predict(num_generating=num_generating, num_prompt_tokens=0)
        per_prompt = self._prices[0]
        if left <= 0 or not self._has_seen_prompt:
            return 0
        if per_prompt * most <= left:
            return most
        return floor(left / per_prompt)

    def _add(self, per_prompt: float, per_generated: float, fixed: float, seconds: float) -> None:
        """Add a step, all of it scaled, to the normal equations."""
        by_prompt, by_generated, by_fixed = self._squares
        by_prompt[0] = by_prompt[0] * FORGETTING + per_prompt * per_prompt
        by_prompt[1] = by_generated[0] = by_prompt[1] * FORGETTING + per_prompt * per_generated
        by_prompt[2] = by_fixed[0] = by_prompt[2] * FORGETTING + per_prompt * fixed
        by_generated[1] = by_generated[1] * FORGETTING + per_generated * per_generated
        by_generated[2] = by_fixed[1] = by_generated[2] * FORGETTING + per_generated * fixed
        by_fixed[2] = by_fixed[2] * FORGETTING + fixed * fixed
        sums = self._sums
        sums[0] = sums[0] * FORGETTING + per_prompt * seconds
        sums[1] = sums[1] * FORGETTING + per_generated * seconds
        sums[2] = sums[2] * FORGETTING + fixed * seconds

    def _fit(self) -> None:
        """Non-negative least squares by coordinate descent, one price at a time."""
        self._is_fitted = True
        for _ in range(PASSES):
            for index in range(3):
                self._descend(index)

    def _descend(self, index: int) -> None:
        row, prices = self._squares[index], self._prices
        if row[index] < _TOO_LITTLE:
            return
        explained = row[0] * prices[0] + row[1] * prices[1] + row[2] * prices[2]
        rest = self._sums[index] - explained + row[index] * prices[index]
        prices[index] = max(0.0, rest / row[index])
