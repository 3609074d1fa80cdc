"""Checks that agents can read a request, before it is accepted.

An agent that gets an unreadable frame loses its connection and all its requests, and the request
would then break the next agent. Texts and token ids are never longer in a frame than in the body,
and do not nest. Free-form JSON can get longer: the frame nests it deeper, and may write its numbers
with more characters. So only the free-form JSON is encoded and decoded as a check.
"""

from collections.abc import Iterator

from pydantic import ValidationError

from ....shared.errors import InvalidRequest, RequestTooLarge
from ....shared.framing.frames import MAX_MESSAGE_BYTES
from ....shared.inference import ChatMessage, GenerateRequest, JsonSchemaGrammar, RequestId
from ....shared.messages import Ask, decode_from_balancer, encode_from_balancer
from ....shared.queries import CountTokens

MAX_TEXT_BYTES = MAX_MESSAGE_BYTES // 2
"""Most bytes that texts and token ids of one request may have, and most that the rest may have."""

_ID = RequestId("0" * 40)
"""An id as long as any that the balancer draws."""


def check_readable(request: GenerateRequest) -> None:
    """Refuse a request that agents could not read. Raises `RequestTooLarge` or `InvalidRequest`.

    Its texts and token ids must come from one body, or have at most `MAX_TEXT_BYTES` together.
    """
    free = _free_form(request)
    if free is None:
        return
    # Of the frames that carry requests to agents, this is the longest and most deeply nested.
    frame = encode_from_balancer(Ask(id=_ID, query=CountTokens(request=free)))
    if len(frame) > MAX_TEXT_BYTES:
        raise RequestTooLarge(
            f"the tools, calls, schema and variables of the request have {len(frame)} "
            f"bytes as JSON; at most {MAX_TEXT_BYTES} are allowed"
        )
    try:
        decode_from_balancer(frame)
    except ValidationError as error:
        finding = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise InvalidRequest(f"no agent could read the request: {finding}") from error


def check_copies(num_bytes: int, *, field: str) -> None:
    """Refuse a call whose requests have too many bytes together. Raises `RequestTooLarge`.

    `field` is the field that multiplies the body.
    """
    if num_bytes > MAX_TEXT_BYTES:
        raise RequestTooLarge(
            f"`{field}`: the requests of this call have {num_bytes} bytes together; at "
            f"most {MAX_TEXT_BYTES} are allowed",
            field=field,
        )


def _free_form(request: GenerateRequest) -> GenerateRequest | None:
    """Return `request` reduced to its free-form JSON, or `None` if it has none."""
    messages = tuple(_calls(request))
    grammar = request.grammar if isinstance(request.grammar, JsonSchemaGrammar) else None
    if not (messages or request.tools or grammar or request.chat_template_kwargs):
        return None
    return GenerateRequest(
        prompt=None if messages else "",
        messages=messages or None,
        tools=request.tools,
        grammar=grammar,
        chat_template_kwargs=request.chat_template_kwargs,
    )


def _calls(request: GenerateRequest) -> Iterator[ChatMessage]:
    for message in request.messages or ():
        if message.tool_calls:
            yield ChatMessage(role="assistant", tool_calls=message.tool_calls)
