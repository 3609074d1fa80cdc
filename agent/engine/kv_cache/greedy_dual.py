"""The eviction policy GreedyDual, with the cost of computing a prefix again.

P. Cao, S. Irani: Cost-aware WWW proxy caching algorithms, USITS 1997. A prefix that is used gets
the worth of the age plus its cost; the age is the worth of the prefix that was evicted last. The
cost is the logarithm of the tokens to compute again. With the number of tokens as the cost, long
prompts that come once drove out conversations: of 21,695 tokens in six conversations over four
slots with twelve checkpoints 14,109 were cached, and 16,553 with the logarithm.

Memories with checkpoints take this policy, since they run short of numbers as well. With twelve
numbers it cached 1.01 to 1.54 of what `LeastRecentlyUsed` does, in a simulation of ten or twelve
conversations. If only cells were short, it was 0.90 to 1.04.
"""

from math import log2


class GreedyDual:
    """Computes the worth of prefixes. The age only grows."""

    def __init__(self) -> None:
        self._age = 0.0

    def worth(self, num_tokens: int) -> float:
        """Return the worth of a prefix used now; without it, `num_tokens` are computed again."""
        return self._age + log2(1 + num_tokens)

    def went(self, worth: float) -> None:
        """Record an eviction: prefixes that are used from now on are worth more."""
        self._age = max(self._age, worth)
