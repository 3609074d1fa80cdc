"""What dispatch may know of a request to choose an agent for it: never its text."""

from dataclasses import dataclass
from typing import Literal

from ....shared.inference import GenerateRequest
from ..caller import ANONYMOUS, Caller

PriorityClass = Literal["interactive", "default", "batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRequest:
    """`model` of `None` is any. Dispatch uses the model only; the other fields are not used yet.

    `prefix_key` names a stored prompt that the request begins with: agents that hold it could be
    preferred. `num_tokens` of the prompt are known only where it was given as token ids. Every
    request has the default `priority_class`: `GenerateRequest.priority` orders requests within
    an agent's engine and not in this queue.
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
