"""What a step costs, learnt from the steps that were run.

seconds = fixed + per_generated x generating sequences + per_prompt x prompt tokens, fitted by
least squares on relative errors (a step of 20 ms counts as much as one of 2 s), where each further
step halves a former one's weight after about `log(2) / (1 - FORGETTING)` steps. No part is ever
negative: a negative price would make the budget infinite.
"""

from math import floor

FORGETTING = 0.97
PASSES = 2
"""Rounds of coordinate descent a step; each starts from the last answer, so few suffice."""

_TOO_LITTLE = 1e-200
"""Below this a sum of squares holds no information any more: the last answer stands."""


class StepCost:
    """Prices in seconds. Unknown ones are 0."""

    def __init__(self) -> None:
        # In the order prompt token, generated token, fixed: where the steps seen so far leave a
        # choice, the price goes to the tokens, which errs towards smaller chunks.
        self._prices = [0.0, 0.0, 0.0]
        self._squares = [[0.0] * 3 for _ in range(3)]
        self._products = [0.0, 0.0, 0.0]
        self._has_seen_prompt = False

    def observe(self, *, num_generating: int, num_prompt_tokens: int, seconds: float) -> None:
        """Learn from a step that took `seconds`."""
        if seconds <= 0:  # a clock too coarse to tell
            return
        self._has_seen_prompt |= num_prompt_tokens > 0
        self._add((num_prompt_tokens / seconds, num_generating / seconds, 1 / seconds))
        for _ in range(PASSES):
            for index in range(3):
                self._descend(index)

    def predict(self, *, num_generating: int, num_prompt_tokens: int) -> float:
        """Seconds that such a step should take."""
        per_prompt, per_generated, fixed = self._prices
        return fixed + per_generated * num_generating + per_prompt * num_prompt_tokens

    def prompt_tokens_within(self, seconds: float, *, num_generating: int, most: int) -> int:
        """How many prompt tokens, at most `most`, fit a step of `seconds`; 0 when none is known."""
        per_prompt = self._prices[0]
        left = seconds - self.predict(num_generating=num_generating, num_prompt_tokens=0)
        if left <= 0 or not self._has_seen_prompt:
            return 0
        if per_prompt * most <= left:
            return most
        return floor(left / per_prompt)

    def _add(self, features: tuple[float, float, float]) -> None:
        for row, feature in zip(self._squares, features, strict=True):
            for index, other in enumerate(features):
                row[index] = row[index] * FORGETTING + feature * other
        for index, feature in enumerate(features):
            self._products[index] = self._products[index] * FORGETTING + feature

    def _descend(self, index: int) -> None:
        row, prices = self._squares[index], self._prices
        if row[index] < _TOO_LITTLE:
            return
        explained = row[0] * prices[0] + row[1] * prices[1] + row[2] * prices[2]
        rest = self._products[index] - explained + row[index] * prices[index]
        prices[index] = max(0.0, rest / row[index])
