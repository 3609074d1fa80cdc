"""What dispatch may know of a request to choose an agent for it: never its text."""

from dataclasses import dataclass
from typing import Literal

from ....shared.inference import GenerateRequest
from ..caller import ANONYMOUS, Caller

PriorityClass = Literal["interactive", "default", "batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRequest:
    """`model` of `None` is any. `prefix_key` names a stored prompt that the request begins with.

    `num_tokens` of the prompt are known only where it was given as token ids. Dispatch goes by the
    model so far.
    """

    model: str | None = None
    priority_class: PriorityClass = "default"
    caller: Caller = ANONYMOUS
    prefix_key: str | None = None
    num_tokens: int | None = None


def routing_of(request: GenerateRequest, caller: Caller) -> RoutingRequest:
    """The routing request of `request`."""
    prompt = request.prompt
    return RoutingRequest(
        model=request.model,
        caller=caller,
        prefix_key=request.cache_key,
        num_tokens=len(prompt) if isinstance(prompt, tuple) else None,
    )
