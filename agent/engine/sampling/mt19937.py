"""Bit-exact `std::mt19937` and distributions: seeds match llama.cpp.

The distributions are libstdc++'s `std::uniform_real_distribution` of `double` and of `float`.
"""

import numpy as np

_BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))

_MOST_SKIPPED = 2**16
"""Maximum draws skipped at once, to bound the memory."""


class Mt19937:
    """A random generator. `seed` is below 2**32."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.MT19937()
        np.random.RandomState(self._words).seed(seed)

    def skip(self, num_draws: int) -> None:
        """Skip `num_draws` draws."""
        while num_draws > 0:
            some = min(num_draws, _MOST_SKIPPED)
            self._words.random_raw(2 * some)
            num_draws -= some

    def draw(self) -> float:
        """Draw uniformly from [0, 1), in double precision."""
        low = self._words.random_raw()
        return (low | self._words.random_raw() << 32) / 2**64

    def draw_single(self) -> float:
        """Draw uniformly from [0, 1), in single precision."""
        word = self._words.random_raw()
        return min(float(np.float32(word) / np.float32(2**32)), _BELOW_ONE)
