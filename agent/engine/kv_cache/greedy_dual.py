"""What goes first: GreedyDual, with the cost of computing again.

What is worth most ages as in GreedyDual (P. Cao, S. Irani: Cost-aware WWW proxy caching algorithms,
USITS 1997): what is used is worth so much more than what went last. By how much says the logarithm
of the tokens that would be computed again. By their number, long prompts that come once would drive
out conversations (six of them over four slots with twelve checkpoints: 14,109 tokens cached of
21,695, by the logarithm 16,553).

Memories with checkpoints take this policy, since they run short of numbers as well: with twelve of
them it cached 1.01 to 1.54 of what `LeastRecentlyUsed` does, in a simulation of ten or twelve
conversations. If only cells were short, it was 0.90 to 1.04.
"""

from math import log2


class GreedyDual:
    """Those that went last were worth as much as the age, from which all others count."""

    def __init__(self) -> None:
        self._age = 0.0

    def worth(self, num_tokens: int) -> float:
        """What a prefix is worth that is used now: without it `num_tokens` are computed again."""
        return self._age + log2(1 + num_tokens)

    def went(self, worth: float) -> None:
        """A prefix of this worth had to go: what is used from now on is worth more."""
        self._age = max(self._age, worth)
