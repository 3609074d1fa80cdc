"""What a step costs, learnt from the steps that were run.

Three lines: steps that only generate, by their tokens; steps that only read prompts, by theirs; and
what prompt tokens add to a step that generates. The last is no sum of the first two: a batch that
does both costs something of its own besides.

A drafted token costs what another generating sequence's would, or another prompt token. Beside a
prompt it is computed for what the whole batch costs, so the price of drafts is that without.
"""

from .line import Line

LEAN = 0.5
"""The part of a step's price that a drafted token is thought to have for each in the step, as long
as steps were all of one size. What it really is shows with the first drafts."""

FORGETTING = 0.99
STIFFNESS = 0.004
"""What drafts cost is forgotten slowly, so that it is seldom tried again where they are too dear.
What was seen soon outweighs `LEAN`, for there are many steps to be seen."""


class StepCost:
    """Prices in seconds. Unknown ones are 0."""

    def __init__(self) -> None:
        self._generating = Line()
        self._reading = Line()
        self._mixed = Line()
        self._drafting = Line(forgetting=FORGETTING, stiffness=STIFFNESS, lean=LEAN)

    @property
    def knows_reading(self) -> bool:
        """Whether a step that only reads was seen."""
        return self._reading.is_known

    @property
    def knows_mixed(self) -> bool:
        """Whether a step that reads and generates was seen."""
        return self._mixed.is_known

    def observe(
        self, *, num_generating: int, num_prompt_tokens: int, num_drafted: int = 0, seconds: float
    ) -> None:
        """Learn from a step that took `seconds`."""
        if not num_prompt_tokens:
            for line in (self._generating, self._drafting):
                line.observe(num_generating + num_drafted, seconds)
        elif not num_generating:
            self._reading.observe(num_prompt_tokens, seconds)
        else:
            added = max(0.0, seconds - self.generate(num_generating))
            self._mixed.observe(num_prompt_tokens + num_drafted, added)

    def generate(self, num_tokens: int) -> float:
        """Seconds of a step of nothing but so many generating sequences, or drafted tokens."""
        return self._generating.predict(num_tokens)

    def draft_price(self, num_generating: int) -> float:
        """What a drafted token adds to a step of so many generating sequences, as a part of it."""
        return self._drafting.share(num_generating) if self._drafting.is_known else 1.0

    def read_within(self, seconds: float) -> float:
        """How many prompt tokens a step of nothing else can read in `seconds`."""
        return self._reading.most_within(seconds)

    def mixed_within(self, seconds: float, num_generating: int) -> float:
        """How many prompt tokens fit into `seconds` beside so many generating sequences."""
        return self._mixed.most_within(seconds - self.generate(num_generating))
