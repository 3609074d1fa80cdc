"""Requests above the class `batch`: how many are here, and when the last of them came, by model.

Batches leave room for them. `None` stands for those that name no model, which may go anywhere.
"""

from collections import OrderedDict

from .....shared.inference import RequestId
from ...tally import Tally
from ...view import ForegroundView

MAX_MODELS = 1024
"""Models that are remembered at most: clients choose the names."""


class Foreground:
    """Say who `came` and who `left`."""

    __slots__ = ("_last", "_models", "_num")

    def __init__(self) -> None:
        self._models: dict[RequestId, str | None] = {}
        self._num: Tally[str | None] = Tally()
        self._last: OrderedDict[str | None, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def came(self, id: RequestId, model: str | None, now: float) -> None:
        """A request is here."""
        self._models[id] = model
        self._num.add(model, 1)
        self._last[model] = now
        self._last.move_to_end(model)
        if len(self._last) > MAX_MODELS:
            self._last.popitem(last=False)

    def left(self, id: RequestId) -> None:
        """A request has ended, if it was one of these."""
        if id in self._models:
            self._num.add(self._models.pop(id), -1)

    def view(self, model: str | None, now: float) -> ForegroundView:
        """Of those that may go where a request of `model` goes; of all for `None`."""
        if model is None:
            last = max(self._last.values(), default=None)
            return ForegroundView(len(self._models), _since(last, now))
        times = [self._last[key] for key in (model, None) if key in self._last]
        num_here = self._num[model] + self._num[None]
        return ForegroundView(num_here, _since(max(times, default=None), now))


def _since(last: float | None, now: float) -> float | None:
    return None if last is None else now - last
