"""Types of the Responses API's answers."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from .....shared.inference import Count, UsedTier
from ...common.log_probs import TokenLogProb
from .items import Status

# ---- items


class InputTextPart(TypedDict):
    """A part of the model's input."""

    type: Literal["input_text"]
    text: str


class InputImagePart(TypedDict):
    """A picture of the model's input."""

    type: Literal["input_image"]
    image_url: str
    detail: Literal["auto"]


class OutputTextPart(TypedDict):
    """A part of an answer of the model."""

    type: Literal["output_text"]
    annotations: list[Any]
    text: str
    logprobs: list[TokenLogProb]


MessagePart = InputTextPart | InputImagePart | OutputTextPart


class SummaryTextPart(TypedDict):
    """A part of a summary that the client sent; the answers of this balancer have no summaries."""

    type: Literal["summary_text"]
    text: str


class ReasoningTextPart(TypedDict):
    """A part of the model's reasoning."""

    type: Literal["reasoning_text"]
    text: str


class MessageItem(TypedDict):
    """A message of the conversation."""

    id: str | None
    type: Literal["message"]
    status: Status
    role: Literal["user", "assistant", "system", "developer"]
    content: list[MessagePart]


class ReasoningItem(TypedDict):
    """Reasoning of the model."""

    id: str | None
    type: Literal["reasoning"]
    status: Status
    summary: list[SummaryTextPart]
    content: list[ReasoningTextPart]


class FunctionCallItem(TypedDict):
    """A function call. `arguments` is JSON text."""

    id: str | None
    type: Literal["function_call"]
    status: Status
    call_id: str
    name: str
    namespace: NotRequired[str]
    arguments: str


class FunctionCallOutputItem(TypedDict):
    """The result of a function call."""

    id: str | None
    type: Literal["function_call_output"]
    status: Status
    call_id: str
    output: str


OutputItem = MessageItem | ReasoningItem | FunctionCallItem
InputItem = OutputItem | FunctionCallOutputItem


class InputItems(TypedDict):
    """A page of the input items of a request."""

    object: Literal["list"]
    data: list[InputItem]
    first_id: str
    last_id: str
    has_more: bool


# ---- the response


class InputDetails(TypedDict):
    """The number of an input's cached tokens."""

    cached_tokens: Count
    cache_write_tokens: Count


class OutputDetails(TypedDict):
    """The number of an output's reasoning tokens."""

    reasoning_tokens: Count


class ResponseUsage(TypedDict):
    """Token counts."""

    input_tokens: Count
    input_tokens_details: InputDetails
    output_tokens: Count
    output_tokens_details: OutputDetails
    total_tokens: Count


class ResponseFault(TypedDict):
    """The reason of a failed response, with one of the few codes that clients know."""

    code: Literal["rate_limit_exceeded", "server_error"]
    message: str


class IncompleteDetails(TypedDict):
    """The reason of an incomplete response; null if a client cancelled it."""

    reason: Literal["max_output_tokens"] | None


class TextEcho(TypedDict):
    """The `text` of the request: format and verbosity."""

    format: dict[str, Any]
    verbosity: NotRequired[Literal["low", "medium", "high"]]


class ReasoningEcho(TypedDict):
    """The `reasoning` of the request."""

    effort: str | None
    summary: str | None


class ConversationEcho(TypedDict):
    """The conversation of the request."""

    id: str


class ResponseEcho(TypedDict):
    """Members that a response copies from its request, and the service tier."""

    model: str
    instructions: str | None
    previous_response_id: str | None
    conversation: ConversationEcho | None
    max_output_tokens: int | None
    max_tool_calls: None
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    text: TextEcho
    reasoning: ReasoningEcho
    truncation: Literal["disabled"]
    service_tier: UsedTier
    top_logprobs: int
    metadata: dict[str, str]
    store: bool
    prompt_cache_key: str | None
    safety_identifier: str | None
    user: NotRequired[str]


class Response(ResponseEcho):
    """A response; times are in seconds since 1970."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    background: bool
    completed_at: int | None
    error: ResponseFault | None
    incomplete_details: IncompleteDetails | None
    output: list[OutputItem]
    usage: ResponseUsage | None


class CountedInput(TypedDict):
    """The number of an input's tokens."""

    object: Literal["response.input_tokens"]
    input_tokens: Count


class DeletedResponse(TypedDict):
    """The answer to the deletion of a response."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]
