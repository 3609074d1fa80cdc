"""The eviction policy GreedyDual, with the cost of computing again.

P. Cao, S. Irani: Cost-aware WWW proxy caching algorithms, USITS 1997. A prefix that is used is
worth the age and its cost; the age is the worth of the prefix that was evicted last. The cost is
the logarithm of the tokens that would be computed again. With their number as the cost, long
prompts that come once drove out conversations: of 21,695 tokens in six conversations over four
slots with twelve checkpoints 14,109 were cached, and 16,553 with the logarithm.

Memories with checkpoints take this policy, since they run short of numbers as well. With twelve
numbers it cached 1.01 to 1.54 of what `LeastRecentlyUsed` does, in a simulation of ten or twelve
conversations. If only cells were short, it was 0.90 to 1.04.
"""

from math import log2


class GreedyDual:
    """The age only grows."""

    def __init__(self) -> None:
        self._age = 0.0

    def worth(self, num_tokens: int) -> float:
        """The worth of a prefix that is used now; `num_tokens` are computed again without it."""
        return self._age + log2(1 + num_tokens)

    def went(self, worth: float) -> None:
        """A prefix of this worth was evicted: prefixes that are used from now on are worth more."""
        self._age = max(self._age, worth)
