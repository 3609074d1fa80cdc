"""What one request of a caller may ask for: its model, its longest answer, its priority."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ....shared.errors import InvalidRequest, ModelNotFound, RequestError
from ....shared.inference import (
    PRIORITY_CLASSES,
    PRIORITY_NUMBERS,
    GenerateRequest,
    PriorityClass,
)
from ..identity import NO_LIMITS, CallerLimits

T = TypeVar("T")

_MOST_PRIORITY: dict[PriorityClass, int] = {"batch": -1, "default": 0, "interactive": 100}
"""The highest `priority` of a request: numbers above 0 are interactive, those below 0 batch."""

_MAX_NAMES = 10


def joined(own: CallerLimits, defaults: CallerLimits) -> CallerLimits:
    """`own`, and `defaults` for what it leaves open; of the priorities the lower."""
    if defaults is NO_LIMITS:
        return own
    if own is NO_LIMITS:
        return defaults
    return CallerLimits(
        models=_first(own.models, defaults.models),
        requests_per_minute=_first(own.requests_per_minute, defaults.requests_per_minute),
        tokens_per_minute=_first(own.tokens_per_minute, defaults.tokens_per_minute),
        max_concurrent=_first(own.max_concurrent, defaults.max_concurrent),
        max_queued=_first(own.max_queued, defaults.max_queued),
        max_tokens=_first(own.max_tokens, defaults.max_tokens),
        priority=min(own.priority, defaults.priority, key=PRIORITY_CLASSES.index),
        default_priority=_first(own.default_priority, defaults.default_priority),
    )


def share_of(limits: CallerLimits, num_balancers: int) -> CallerLimits:
    """What one of several balancers lets a caller have, so that all together let it have `limits`.

    Shares are rounded up, so all together may let it have up to one more for each balancer.
    """
    if num_balancers == 1:
        return limits
    return replace(
        limits,
        requests_per_minute=_share(limits.requests_per_minute, num_balancers),
        tokens_per_minute=_share(limits.tokens_per_minute, num_balancers),
        max_concurrent=_share(limits.max_concurrent, num_balancers),
        max_queued=_share(limits.max_queued, num_balancers),
    )


def _share(limit: int | None, num_balancers: int) -> int | None:
    return None if limit is None else -(-limit // num_balancers)


def model_for(
    model: str | None, limits: CallerLimits, resolve: Callable[[str | None], str | None]
) -> str | RequestError | None:
    """The model that a request for `model` is for, as `resolve` names it; or why it may not.

    A caller with one model need not name it. One with several has to, since any would be too many.
    """
    if limits.models is None:
        return resolve(model)
    if model is None:
        if len(limits.models) == 1:
            return resolve(limits.models[0])
        return InvalidRequest(f"name a model, one of {_listed(limits.models)}", field="model")
    if model in limits.models or resolve(model) in map(resolve, limits.models):
        return resolve(model)
    return ModelNotFound(
        f"there is no model `{model[:200]}`; there are {_listed(limits.models)}", field="model"
    )


def hidden(
    error: RequestError | None, model: str | None, limits: CallerLimits
) -> RequestError | None:
    """`error` without the names of models that the caller may not use."""
    if limits.models is None or model is None or not isinstance(error, ModelNotFound):
        return error
    return ModelNotFound(f"no agent serves the model `{model[:200]}`", field="model")


def bounded(request: GenerateRequest, limits: CallerLimits) -> GenerateRequest | InvalidRequest:
    """`request` within `limits`: without `max_tokens` it gets the most, a higher one is an error.

    One that says no priority has its caller's default; a higher one is lowered.
    """
    most = limits.max_tokens
    if most is not None and request.max_tokens is None:
        request = replace(request, max_tokens=most)
    if most is not None and request.max_tokens is not None and request.max_tokens > most:
        return InvalidRequest(
            f"`max_tokens`: at most {most} for this caller, not {request.max_tokens}",
            field="max_tokens",
        )
    priority = priority_within(request.priority, limits)
    return request if priority == request.priority else replace(request, priority=priority)


def priority_within(priority: int | None, limits: CallerLimits) -> int | None:
    """The priority that a request for `priority` gets; `None` is that nobody said one."""
    if priority is None and limits.default_priority is not None:
        priority = PRIORITY_NUMBERS[limits.default_priority]
    most = _MOST_PRIORITY[limits.priority]
    return most if (priority or 0) > most else priority


def _first(own: T | None, default: T | None) -> T | None:
    return default if own is None else own


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{name[:200]}`" for name in names[:_MAX_NAMES])
    return shown + ", …" * (len(names) > _MAX_NAMES)
