"""Which models are here, and what each can do; so what is asked in vain is refused at once.

Invariant: each link counts once, with the model it reported last.
"""

from collections.abc import Iterable

from ...shared.errors import InvalidRequest, ModelNotFound, RequestError
from ...shared.messages import ModelInfo, Task
from .decisions import LinkId
from .tally import Tally

_VERBS: dict[Task, str] = {
    "generate": "generate text",
    "embed": "embed texts",
    "rank": "rank documents",
}

_MAX_NAMES = 10


class ModelRegistry:
    """Agents that take no work (any more) count as well: their models are known."""

    def __init__(self) -> None:
        self._models: dict[LinkId, ModelInfo] = {}
        self._names: Tally[str] = Tally()
        self._able: Tally[tuple[Task, str | None]] = Tally()

    def changed(self, link: LinkId, model: ModelInfo | None) -> None:
        """An agent is here, or has another model."""
        self.left(link)
        if model is not None:
            self._models[link] = model
            self._count(model, 1)

    def left(self, link: LinkId) -> None:
        """An agent is gone, if it was here."""
        if (model := self._models.pop(link, None)) is not None:
            self._count(model, -1)

    def misplaced(self, task: Task, model: str) -> RequestError | None:
        """The error for a model that is here and cannot do `task`."""
        if model not in self._names or (task, model) in self._able:
            return None
        message = f"the model `{model[:200]}` cannot {_VERBS[task]}"
        return InvalidRequest(message, field="model")

    def refusal(self, task: Task | None, model: str | None) -> RequestError | None:
        """The error for what no agent here can do; `None` also when none is here to say so.

        Every model can do what has no `task`.
        """
        if not self._names:
            return None
        if model is not None:
            known = model in self._names
            return self.misplaced(task, model) if known and task else self._unknown(model)
        if task is None or (task, None) in self._able:
            return None
        return InvalidRequest(f"no agent here has a model that can {_VERBS[task]}", field="model")

    def _unknown(self, model: str) -> ModelNotFound | None:
        if model in self._names:
            return None
        return model_not_found(model, self._names)

    def _count(self, model: ModelInfo, sign: int) -> None:
        self._names.add(model.name, sign)
        for task in model.tasks:
            for name in (None, model.name):
                self._able.add((task, name), sign)


def model_not_found(model: str, served: Iterable[str]) -> ModelNotFound:
    """None of the models that are `served` is that one."""
    names = sorted(served)
    shown = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
    return ModelNotFound(
        f"no agent serves the model `{model[:200]}`; served: {shown}", field="model"
    )
