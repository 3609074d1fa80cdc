"""llama.cpp's `adaptive_p`: tokens near a target probability are drawn, which follows what came.

What is left of a row is weighed by how near each token's probability is to the target. The target
moves against the probabilities of the tokens so far, so that their mean comes near the wished one.
"""

import numpy as np

from .selection import Row

_PEAK, _SHARPNESS, _WIDTH = np.float32(5), np.float32(10), np.float32(0.3)
_MOST_DECAY = 0.99


class AdaptiveProbability:
    """The target of one sequence."""

    def __init__(self, target: float, decay: float) -> None:
        self._target = np.float32(min(target, 1.0))
        self._decay = np.float32(min(decay, _MOST_DECAY))
        self._weight = np.float32(1) / (np.float32(1) - self._decay)
        self._sum = self._target * self._weight

    def weighed(self, probabilities: Row) -> Row:
        """Logits to draw by, of tokens that have these probabilities."""
        target = np.float32(2) * self._target - self._sum / self._weight
        distances = np.abs(probabilities - min(max(target, np.float32(0)), np.float32(1))) / _WIDTH
        logits: Row = _PEAK - _SHARPNESS * distances * distances / (np.float32(1) + distances)
        return logits

    def accept(self, probability: np.float32) -> None:
        """A token that had this probability was chosen."""
        self._sum = probability + self._decay * self._sum
        self._weight = np.float32(1) + self._decay * self._weight
