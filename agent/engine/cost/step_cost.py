"""The cost of a step, learnt from the steps that were run.

Steps that generate have a line, by their tokens; and so has what prompt tokens take, by theirs, in
steps of their own or beyond what generating takes (`prefill_cost`).

A drafted token costs what another generating sequence's would, or another prompt token. Beside a
prompt it is computed for what the whole batch costs, so the price of drafts is that without.

A step under another adapter than the step before takes longer. What that change costs is learnt by
itself, beyond what generating takes.
"""

from .linear_cost import LEAST_SURPRISE, LinearCost
from .prefill_cost import PrefillCost

LEAN = 0.5
"""The part of a step's price that a drafted token is thought to have for each in the step, as long
as steps were all of one size. What it really is shows with the first drafts."""

LEAST_OWN = 0.1
"""The least that prompt tokens are taken to cost beside generating ones, as a part of their share
by number. What generating is thought to take may come from a time when the machine was slower: then
nothing would be left for prompts, and their next chunk had no bound."""

MOST_CHANGE = 1.15
"""How much longer than predicted a step takes if the machine has not become slower."""

FORGETTING = 0.99
STIFFNESS = 0.004
"""What drafts cost is forgotten slowly, so that it is seldom tried again where they are too dear.
What was seen soon outweighs `LEAN`, for there are many steps to be seen."""


class StepCost:
    """Prices in seconds. Unknown ones are 0."""

    def __init__(self, *, most_mixed: int = 0, can_mix: bool = True) -> None:
        self._generating = LinearCost(doubts=True)
        self._reading = PrefillCost(most_mixed=most_mixed, can_mix=can_mix)
        self._drafting = LinearCost(forgetting=FORGETTING, stiffness=STIFFNESS, lean=LEAN)
        self._changing = LinearCost(doubts=True)
        self.knows_unchanged = False
        """Whether a step was seen that only generates, under the adapter of the step before."""

    @property
    def knows_reading(self) -> bool:
        """Whether a step that reads was seen."""
        return self._reading.is_known

    def observe(
        self,
        *,
        num_generating: int,
        num_prompt_tokens: int,
        depth: int = 0,
        num_drafted: int = 0,
        seconds: float,
        changes_adapter: bool = False,
    ) -> None:
        """Learn from a step that took `seconds`, whose prompts were read from `depth` on."""
        num_tokens = num_generating + num_drafted
        if changes_adapter and num_prompt_tokens:
            seconds = max(LEAST_OWN * seconds, seconds - self.change)
        elif changes_adapter and self.knows_unchanged:
            self._observe_change(num_tokens, seconds)
            return
        if num_prompt_tokens:
            own = self._own(num_tokens, num_prompt_tokens, depth, seconds)
            self._reading.observe(num_prompt_tokens, depth, own, num_generating=num_tokens)
        else:
            for line in (self._generating, self._drafting):
                line.observe(num_tokens, seconds)
            self._reading.bound_base(self.generate(num_tokens))
            self.knows_unchanged = self.knows_unchanged or not changes_adapter

    def _observe_change(self, num_tokens: int, seconds: float) -> None:
        """As with prompts: one that took much longer or less tells of the machine, too."""
        generating = self.generate(num_tokens)
        ratio = seconds / (generating + self.change) if self._changing.is_known else 1.0
        if not LEAST_SURPRISE <= ratio <= MOST_CHANGE:
            generating *= ratio
            self._generating.observe(num_tokens, generating)
        self._changing.observe(1, max(0.0, seconds - generating))

    @property
    def change(self) -> float:
        """Seconds that a change of the adapter adds to a step."""
        return self._changing.predict(1) if self._changing.is_known else 0.0

    def _own(self, num_tokens: int, num_prompt_tokens: int, depth: int, seconds: float) -> float:
        """The part of a step's `seconds` that its prompt tokens take.

        If the step was much slower or faster than predicted, so is the machine: then both parts
        cost more or less. Otherwise what generating is thought to take would be out of date, since
        no step that only generates may come for long, and prompts would have to make up for it.
        """
        if not num_tokens:
            return seconds
        generating = self.generate(num_tokens)
        reading = self._reading.predict(num_prompt_tokens, depth, num_generating=num_tokens)
        change = seconds / (generating + reading) if generating and reading else 1.0
        if not LEAST_SURPRISE <= change <= MOST_CHANGE:
            generating *= change
            self._generating.observe(num_tokens, generating)
        share = num_prompt_tokens / (num_prompt_tokens + num_tokens)
        return max(LEAST_OWN * seconds * share, seconds - generating)

    def generate(self, num_tokens: int) -> float:
        """Seconds of a step of nothing but so many generating sequences, or drafted tokens."""
        return self._generating.predict(num_tokens) if num_tokens else 0.0

    def draft_price(self, num_generating: int) -> float:
        """What a drafted token adds to a step of so many generating sequences, as a part of it."""
        return self._drafting.share(num_generating) if self._drafting.is_known else 1.0

    def read_within(
        self, seconds: float, num_wanted: int, *, depth: int = 0, num_generating: int = 0
    ) -> float:
        """How many of `num_wanted` prompt tokens, from `depth` on, to read in `seconds`.

        It may be a little more; infinite where nothing is known. Beside `num_generating` the
        seconds are those beyond what generating takes.
        """
        return self._reading.within(seconds, num_wanted, depth, num_generating=num_generating)
