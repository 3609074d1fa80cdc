"""How long requests of each model keep their slots: a moving average.

With it, the time until a full model's next slot is free is known, however few requests come.
"""

from collections import OrderedDict

MAX_MODELS = 1024
"""Models that are remembered at most: agents choose the names."""

WEIGHT = 0.1
"""Share of the latest request in the average, once there were enough."""


class SlotTimes:
    """The key `None` stands for all models together."""

    __slots__ = ("_means",)

    def __init__(self) -> None:
        self._means: OrderedDict[str | None, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._means)

    def ended(self, model: str | None, seconds: float) -> None:
        """A request of `model` had its slot for so long."""
        for key in {None, model}:
            self._learn(key, seconds)
        while len(self._means) > MAX_MODELS:
            self._means.popitem(last=False)

    def mean(self, model: str | None) -> float | None:
        """Seconds that a request of `model` has its slot; `None` before one has ended."""
        known = self._means.get(model)
        return None if known is None else known[0]

    def num_ended(self, model: str | None) -> int:
        """How many requests of `model` the average is made of."""
        return self._means.get(model, (0.0, 0))[1]

    def _learn(self, key: str | None, seconds: float) -> None:
        mean, num = self._means.get(key, (0.0, 0))
        weight = max(WEIGHT, 1 / (num + 1))
        self._means[key] = (mean + (seconds - mean) * weight, num + 1)
        self._means.move_to_end(key)
