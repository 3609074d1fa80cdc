"""Bit-exact `std::mt19937` and distributions: seeds match llama.cpp.

`std::mt19937` under libstdc++'s `std::uniform_real_distribution` of `double` and of `float`.
"""

from typing import Any

import numpy as np

_BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))


class Mt19937:
    """Draws of one generator. `seed` is below 2**32."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.MT19937()
        state: Any = np.random.RandomState(seed).get_state(legacy=False)
        self._bits.state = state

    def draw(self) -> float:
        """Evenly between 0 and 1, in double precision."""
        low, high = self._bits.random_raw(), self._bits.random_raw()
        return float(low + (high << 32)) / 2**64

    def draw_single(self) -> float:
        """Evenly between 0 and 1, in single precision."""
        return min(float(np.float32(self._bits.random_raw()) / np.float32(2**32)), _BELOW_ONE)
