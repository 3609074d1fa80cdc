"""What a step costs, learnt from the steps that were run.

Three lines: steps that only generate, by their sequences; steps that only read prompts, by their
tokens; and what prompt tokens add to a step that generates. The last is no sum of the first two: a
batch that does both costs something of its own besides.
"""

from .line import Line


class StepCost:
    """Prices in seconds. Unknown ones are 0."""

    def __init__(self) -> None:
        self._generating = Line()
        self._reading = Line()
        self._mixed = Line()

    @property
    def knows_reading(self) -> bool:
        """Whether a step that only reads was seen."""
        return self._reading.is_known

    @property
    def knows_mixed(self) -> bool:
        """Whether a step that reads and generates was seen."""
        return self._mixed.is_known

    def observe(self, *, num_generating: int, num_prompt_tokens: int, seconds: float) -> None:
        """Learn from a step that took `seconds`."""
        if not num_prompt_tokens:
            self._generating.observe(num_generating, seconds)
        elif not num_generating:
            self._reading.observe(num_prompt_tokens, seconds)
        else:
            added = max(0.0, seconds - self.generate(num_generating))
            self._mixed.observe(num_prompt_tokens, added)

    def generate(self, num_generating: int) -> float:
        """Seconds of a step of nothing but so many generating sequences."""
        return self._generating.predict(num_generating)

    def read_within(self, seconds: float) -> float:
        """How many prompt tokens a step of nothing else can read in `seconds`."""
        return self._reading.most_within(seconds)

    def mixed_within(self, seconds: float, num_generating: int) -> float:
        """How many prompt tokens fit into `seconds` beside so many generating sequences."""
        return self._mixed.most_within(seconds - self.generate(num_generating))
