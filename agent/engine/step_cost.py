"""What a step costs, learnt from the steps that were run.

Steps that generate have a line, by their tokens; and so has what prompt tokens take, by theirs, in
steps of their own or beyond what generating takes. Prompt tokens have two: from a certain number on
each costs less (see `mixing`), so it pays to read that many even where it takes a little longer.

A drafted token costs what another generating sequence's would, or another prompt token. Beside a
prompt it is computed for what the whole batch costs, so the price of drafts is that without.
"""

from .line import Line

LEAN = 0.5
"""The part of a step's price that a drafted token is thought to have for each in the step, as long
as steps were all of one size. What it really is shows with the first drafts."""

OVERDRAFT = 1.25
"""How much longer than it should a step may take that is large enough to be cheap."""

RETRY = 10
"""Steps with few prompt tokens after which one is tried again that is large enough to be cheap."""

FORGETTING = 0.99
STIFFNESS = 0.004
"""What drafts cost is forgotten slowly, so that it is seldom tried again where they are too dear.
What was seen soon outweighs `LEAN`, for there are many steps to be seen."""


class StepCost:
    """Prices in seconds. Unknown ones are 0."""

    def __init__(self, *, most_mixed: int = 0) -> None:
        self._most_mixed = most_mixed
        self._generating = Line()
        self._reading_little = Line()
        self._reading_much = Line()
        self._num_little = 0
        self._drafting = Line(forgetting=FORGETTING, stiffness=STIFFNESS, lean=LEAN)

    @property
    def knows_reading(self) -> bool:
        """Whether a step that reads was seen."""
        return self._reading_little.is_known or self._reading_much.is_known

    def observe(
        self, *, num_generating: int, num_prompt_tokens: int, num_drafted: int = 0, seconds: float
    ) -> None:
        """Learn from a step that took `seconds`."""
        num_tokens = num_generating + num_drafted
        if num_prompt_tokens:
            self._read(num_prompt_tokens, max(0.0, seconds - self.generate(num_tokens)))
        else:
            for line in (self._generating, self._drafting):
                line.observe(num_tokens, seconds)

    def generate(self, num_tokens: int) -> float:
        """Seconds of a step of nothing but so many generating sequences, or drafted tokens."""
        return self._generating.predict(num_tokens) if num_tokens else 0.0

    def draft_price(self, num_generating: int) -> float:
        """What a drafted token adds to a step of so many generating sequences, as a part of it."""
        return self._drafting.share(num_generating) if self._drafting.is_known else 1.0

    def read_within(self, seconds: float) -> float:
        """How many prompt tokens to read in `seconds`, or a little more."""
        much, little = self._reading_much, self._reading_little
        if not much.is_known:
            return little.most_within(seconds)
        fitting = much.most_within(seconds)
        enough = self._most_mixed + 1
        if fitting >= enough or not little.is_known:
            return fitting
        if much.predict(enough) <= OVERDRAFT * seconds or self._num_little >= RETRY:
            return enough
        return min(little.most_within(seconds), self._most_mixed)

    def _read(self, num_prompt_tokens: int, seconds: float) -> None:
        if num_prompt_tokens > self._most_mixed:
            self._reading_much.observe(num_prompt_tokens, seconds)
            self._num_little = 0
        else:
            self._reading_little.observe(num_prompt_tokens, seconds)
            self._num_little += 1
