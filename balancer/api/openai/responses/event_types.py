"""What a streamed response consists of, as types; the OpenAPI document is made of them.

`events` makes these as plain objects, and the deltas of most tokens as bytes. A test holds what is
sent against these types.
"""

from typing import Literal

from typing_extensions import TypeAliasType, TypedDict

from .....shared.inference import Count
from .answer_types import OutputItem, OutputTextPart, ReasoningTextPart, Response


class ResponseEvent(TypedDict):
    """The response as it is now. The last three types end a stream."""

    type: Literal[
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: Response
    sequence_number: Count


class ResponseError(TypedDict):
    """An error; `response.failed` follows. `param` names the wrong field."""

    type: Literal["error"]
    code: str | None
    message: str
    param: str | None
    sequence_number: Count


class ItemEvent(TypedDict):
    """An item begins, still empty, or is complete."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: Count
    item: OutputItem
    sequence_number: Count


class _OfItem(TypedDict):
    item_id: str
    output_index: Count
    sequence_number: Count


class _OfPart(_OfItem):
    content_index: Count


class PartEvent(_OfPart):
    """A part of an item begins, still empty, or is complete."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    part: OutputTextPart | ReasoningTextPart


class PossibleToken(TypedDict):
    """A token that was likely in the place of another."""

    token: str
    logprob: float


class EventLogProb(TypedDict):
    """A token's log-probability, in fewer members than in a part."""

    token: str
    logprob: float
    top_logprobs: list[PossibleToken]


class OutputTextDelta(_OfPart):
    """Some more text of a message."""

    type: Literal["response.output_text.delta"]
    delta: str
    logprobs: list[EventLogProb]


class OutputTextDone(_OfPart):
    """The whole text of a message."""

    type: Literal["response.output_text.done"]
    text: str
    logprobs: list[EventLogProb]


class ReasoningDelta(_OfPart):
    """Some more reasoning."""

    type: Literal["response.reasoning_text.delta"]
    delta: str


class ReasoningDone(_OfPart):
    """The whole reasoning of an item."""

    type: Literal["response.reasoning_text.done"]
    text: str


class ArgumentsDelta(_OfItem):
    """Some more of a call's arguments, a part of JSON text."""

    type: Literal["response.function_call_arguments.delta"]
    delta: str


class ArgumentsDone(_OfItem):
    """All arguments of a call, as JSON text."""

    type: Literal["response.function_call_arguments.done"]
    arguments: str


ResponseStreamEvent = TypeAliasType(
    "ResponseStreamEvent",
    ResponseEvent
    | ResponseError
    | ItemEvent
    | PartEvent
    | OutputTextDelta
    | OutputTextDone
    | ReasoningDelta
    | ReasoningDone
    | ArgumentsDelta
    | ArgumentsDone,
)
"""One event of a stream."""
