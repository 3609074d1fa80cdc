"""Finds troubles other than agents' issues. The dashboard shows these lines first.

Pure. The number of lines is bounded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...shared.messages import Issue
from ..access.refusals import Door
from ..control.model_status import ModelStatus
from ..fleet.view import ModelView
from .answer_types import Trouble

MAX_MODELS = 8
"""Maximum models with a line of their own. The other models share one line."""

MAX_NAMES = 5
"""Maximum names in a line."""


def of_models(
    models: Iterable[ModelView],
    adapters: Mapping[str, ModelStatus],
    waiting: Mapping[str, object],
) -> Iterator[Trouble]:
    """Yield desired or requested models without an agent, and models with issues.

    An adapter has a line only if its model has no line. `waiting` has the models for which
    requests wait.
    """
    found = {view.info.name: words for view in models if (words := _of_model(view, waiting))}
    for name in [name for name in found if name in adapters]:
        if adapters[name].model.name in found:
            del found[name]
    for name in [*found][:MAX_MODELS]:
        message, hint = found[name]
        yield Trouble(kind="model", name=name, num=1, message=message, hint=hint)
    if others := [*found][MAX_MODELS:]:
        yield Trouble(kind="model", name=None, num=len(others), message=_names(others), hint="")


def _of_model(view: ModelView, waiting: Mapping[str, object]) -> tuple[str, str] | None:
    is_served = view.status in ("loaded", "loading")
    if not view.issues:
        if is_served or view.info.name not in waiting:
            return None
        return "is not served, and requests wait for it", ""
    how = "has failed" if view.status == "failed" else f"is {view.status}"
    first, *others = view.issues
    more = f" (and {len(others)} more)" if others else ""
    return f"{how}: {first.message}{more}", first.hint


def of_hosts(lost: Sequence[str]) -> Iterator[Trouble]:
    """Yield the hosts whose connection was lost."""
    if lost:
        hint = "start the agent again, or forget a host that is gone for good"
        yield Trouble(kind="hosts", name=None, num=len(lost), message=_names(lost), hint=hint)


def of_balancer(issues: Iterable[Issue]) -> Iterator[Trouble]:
    """Yield the balancer's own troubles: problems of its store, certificate and keys."""
    for each in issues:
        yield Trouble(kind="balancer", name=each.code, num=1, message=each.message, hint=each.hint)


def of_refusals(refused: Mapping[Door, tuple[Sequence[str], str]]) -> Iterator[Trouble]:
    """Yield the callers that are refused repeatedly, with the reason, by door."""
    for door, (callers, why) in refused.items():
        message = f"{_names(callers)}, {why}"
        yield Trouble(kind="refused", name=door, num=len(callers), message=message, hint="")


def _names(names: Sequence[str]) -> str:
    others = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{others}"
