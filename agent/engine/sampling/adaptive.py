"""llama.cpp's `adaptive_p`: draws tokens whose probability is near a target.

The other samplers come first. Each remaining token is weighed by the distance of its probability
from the target. If the tokens so far were likelier than the request's target, the moving target
falls; if they were less likely, it rises. So the mean comes near the request's target.
"""

import numpy as np

from .selection import Row

_PEAK, _SHARPNESS, _WIDTH = np.float32(5), np.float32(10), np.float32(0.3)
_MOST_DECAY = 0.99


class AdaptiveProbability:
    """The moving target of one sequence."""

    def __init__(self, target: float, decay: float) -> None:
        self._target = np.float32(min(target, 1.0))
        self._decay = np.float32(min(decay, _MOST_DECAY))
        self._weight = np.float32(1) / (np.float32(1) - self._decay)
        self._sum = self._target * self._weight

    def weighed(self, probabilities: Row) -> Row:
        """Return the logits to draw by, for tokens with these probabilities."""
        target = np.float32(2) * self._target - self._sum / self._weight
        distances = np.abs(probabilities - min(max(target, np.float32(0)), np.float32(1))) / _WIDTH
        logits: Row = _PEAK - _SHARPNESS * distances * distances / (np.float32(1) + distances)
        return logits

    def accept(self, probability: np.float32) -> None:
        """Update the target: a token with this probability was chosen."""
        self._sum = probability + self._decay * self._sum
        self._weight = np.float32(1) + self._decay * self._weight
