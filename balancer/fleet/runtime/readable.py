"""Whether agents can read a request, which is looked at before one is accepted.

A frame that an agent cannot read costs it its connection and all that it runs, and the request
would go on to do the same to the next agent. Doors limit bodies; a body's JSON is nested a little
deeper in a frame, though, and numbers can be written in fewer characters than they have there.
"""

from pydantic import ValidationError

from ....shared.errors import InvalidRequest, RequestTooLarge
from ....shared.framing.frames import MAX_MESSAGE_BYTES
from ....shared.inference import GenerateRequest, RequestId
from ....shared.messages import Ask, decode_from_balancer, encode_from_balancer
from ....shared.queries import CountTokens

_ID = RequestId("0" * 40)
"""As long as any that the balancer draws."""


def check_readable(request: GenerateRequest) -> None:
    """Raises `RequestTooLarge` or `InvalidRequest` where agents could not read it."""
    # Of what carries requests to agents, this is the longest and nests them deepest.
    frame = encode_from_balancer(Ask(id=_ID, query=CountTokens(request=request)))
    if len(frame) > MAX_MESSAGE_BYTES:
        raise RequestTooLarge(
            f"for an agent the request is {len(frame)} bytes long; {MAX_MESSAGE_BYTES} are allowed"
        )
    try:
        decode_from_balancer(frame)
    except ValidationError as error:
        finding = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise InvalidRequest(f"no agent could read the request: {finding}") from error
