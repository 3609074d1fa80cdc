"""Neutral events in Ollama's format: lines of a stream, and whole answers.

A call is sent when it is complete, with its arguments as an object. The `done_reason` of a
cancelled request, and of an answer that ends with calls, is `"stop"`, because Ollama has no other
word for these.

A token's line is assembled by hand from bytes that are precomputed for the answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, NotRequired, assert_never

from pydantic_core import to_json
from typing_extensions import TypedDict

from ....shared.errors import ModelNotFound, RequestError
from ....shared.inference import (
    Begun,
    Count,
    Done,
    Event,
    Failed,
    FinishReason,
    Notice,
    Reading,
    Token,
    TokenKind,
    ToolCall,
    ToolCallStarted,
    Waiting,
)
from ..common.accumulator import Accumulator, arguments_of
from ..common.log_probs import TokenLogProb, entries
from ..common.rendering import Rendering


class OllamaError(TypedDict):
    """The body of an error response."""

    error: str


def ollama_error(error: RequestError) -> OllamaError:
    """Return the body of an error response, which is also the last line of a failed stream.

    Clients look for "not found" in the message if a model is missing.
    """
    is_missing = isinstance(error, ModelNotFound)
    return {"error": f"model not found: {error.message}" if is_missing else error.message}


DoneReason = Literal["stop", "length", "load"]


class OllamaFunction(TypedDict):
    """The function of a call; `index` is the call's position among the calls of the answer."""

    index: Count
    name: str
    arguments: dict[str, Any]


class OllamaCall(TypedDict):
    """A tool call."""

    id: str
    function: OllamaFunction


class OllamaMessage(TypedDict):
    """A message, or a part of a message."""

    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[OllamaCall]]


class OllamaFigures(TypedDict, total=False):
    """Figures of an answer, in nanoseconds; `load_duration` is the wait for a slot."""

    done_reason: DoneReason
    total_duration: Count
    load_duration: Count
    prompt_eval_count: Count
    prompt_eval_duration: Count
    eval_count: Count
    eval_duration: Count


class OllamaHead(TypedDict):
    """Members of every line of an answer."""

    model: str
    created_at: str
    done: bool


class OllamaChat(OllamaHead, OllamaFigures):
    """An answer of `/api/chat`, or a part of it; only the last part has figures."""

    message: OllamaMessage
    logprobs: NotRequired[list[TokenLogProb]]


class OllamaText(OllamaHead, OllamaFigures):
    """An answer of `/api/generate`, or a part of it; only the last part has figures."""

    response: str
    thinking: NotRequired[str]
    logprobs: NotRequired[list[TokenLogProb]]


NANOSECONDS = 1_000_000
"""Nanoseconds of a millisecond."""

_REASONS: Mapping[FinishReason, DoneReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "stop",
    "cancelled": "stop",
}

_SHOWN: tuple[TokenKind, ...] = ("content", "reasoning")


def time_text(seconds: float) -> str:
    """Return a time in seconds since 1970 in Ollama's format."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class LineHead:
    """Members that every line repeats; `created` is in seconds since 1970."""

    model: str
    created: float

    @property
    def created_at(self) -> str:
        """Return `created` in Ollama's format."""
        return time_text(self.created)


@dataclass(frozen=True, slots=True)
class LineShape:
    """The bytes around a token's text, in which the lines of the two calls differ."""

    content: tuple[bytes, bytes]
    reasoning: tuple[bytes, bytes]


CHAT = LineShape(
    (b'"message":{"role":"assistant","content":', b"}"),
    (b'"message":{"role":"assistant","content":"","thinking":', b"}"),
)
GENERATE = LineShape((b'"response":', b""), (b'"response":"","thinking":', b""))


class OllamaAnswer(Rendering):
    """One answer, as lines or as one object (`whole`).

    No line is written before the first token, so that an earlier error becomes a status.
    """

    def __init__(
        self,
        shape: LineShape,
        head: LineHead,
        whole: Callable[[LineHead, Accumulator], OllamaChat | OllamaText],
    ) -> None:
        fields = {"model": head.model, "created_at": head.created_at}
        self._head = to_json(fields)[:-1] + b","
        self._shape = shape
        self._num_calls = 0
        self._make_whole = partial(whole, head)
        self._gathered = Accumulator()

    def take(self, event: Event, _number: int = 0, /) -> None:
        """Collect `event` for the whole answer."""
        self._gathered.add(event)

    def whole(self) -> OllamaChat | OllamaText:
        """Return the whole answer."""
        return self._make_whole(self._gathered)

    def render(self, event: Event, _number: int = 0, /) -> bytes:
        """Return the bytes for `event`; may be empty."""
        match event:
            case Token():
                return b"" if event.is_silent or event.kind not in _SHOWN else self._said(event)
            case ToolCall():
                self._num_calls += 1
                call = _call(event, self._num_calls - 1)
                message: OllamaMessage = {"role": "assistant", "content": "", "tool_calls": [call]}
                return b'%b"message":%b,"done":false}\n' % (self._head, to_json(message))
            case Done():
                figures: OllamaFigures = {}
                tell_figures(figures, event)
                return self._line("content", "", b',"done":true,' + to_json(figures)[1:-1])
            case Failed():
                return to_json(ollama_error(event.error)) + b"\n"
            case Begun() | Notice() | ToolCallStarted() | Waiting() | Reading():
                return b""
            case _:
                assert_never(event)

    def _said(self, token: Token) -> bytes:
        end = b',"done":false'
        if token.log_probs:
            end += b',"logprobs":' + to_json(entries(token.log_probs))
        return self._line(token.kind, token.text, end)

    def _line(self, kind: TokenKind, text: str, end: bytes) -> bytes:
        before, after = self._shape.reasoning if kind == "reasoning" else self._shape.content
        return b"%b%b%b%b%b}\n" % (self._head, before, to_json(text), after, end)


def tell_figures(line: OllamaFigures, done: Done) -> None:
    """Add the figures of an answer, and the reason of its end, to `line`."""
    timings = done.timings
    begun = timings.total_ms if timings.first_token_ms is None else timings.first_token_ms
    line["done_reason"] = _REASONS[done.finish_reason]
    line["total_duration"] = _nanoseconds(timings.total_ms)
    line["load_duration"] = _nanoseconds(timings.queue_ms)
    line["prompt_eval_count"] = done.usage.prompt_tokens
    line["prompt_eval_duration"] = _nanoseconds(begun - timings.queue_ms)
    line["eval_count"] = done.usage.completion_tokens
    line["eval_duration"] = _nanoseconds(timings.total_ms - begun)


def whole_chat(head: LineHead, answer: Accumulator) -> OllamaChat:
    """Return a whole answer of `/api/chat`. Raises the request's error."""
    whole = _empty_chat(head)
    tell_figures(whole, answer.done())
    message = whole["message"]
    message["content"] = answer.text()
    if thinking := answer.text("reasoning"):
        message["thinking"] = thinking
    if answer.calls:
        message["tool_calls"] = [_call(call, index) for index, call in enumerate(answer.calls)]
    if log_probs := answer.log_probs():
        whole["logprobs"] = entries(log_probs)
    return whole


def whole_text(head: LineHead, answer: Accumulator) -> OllamaText:
    """Return a whole answer of `/api/generate`. Raises the request's error."""
    whole = _empty_text(head)
    tell_figures(whole, answer.done())
    whole["response"] = answer.text()
    if thinking := answer.text("reasoning"):
        whole["thinking"] = thinking
    if log_probs := answer.log_probs():
        whole["logprobs"] = entries(log_probs)
    return whole


def loaded_chat(head: LineHead) -> OllamaChat:
    """Return the answer to a chat without messages, which only checks that the model is served."""
    answer = _empty_chat(head)
    answer["done_reason"] = "load"
    return answer


def loaded_text(head: LineHead) -> OllamaText:
    """Return the answer to an empty prompt, which only checks that the model is served."""
    answer = _empty_text(head)
    answer["done_reason"] = "load"
    return answer


def _empty_chat(head: LineHead) -> OllamaChat:
    return {
        "model": head.model,
        "created_at": head.created_at,
        "message": {"role": "assistant", "content": ""},
        "done": True,
    }


def _empty_text(head: LineHead) -> OllamaText:
    return {"model": head.model, "created_at": head.created_at, "response": "", "done": True}


def _call(call: ToolCall, index: int) -> OllamaCall:
    arguments = arguments_of(call.arguments)
    return {
        "id": call.id,
        "function": {"index": index, "name": call.name, "arguments": arguments},
    }


def _nanoseconds(milliseconds: float) -> int:
    return max(0, round(milliseconds * NANOSECONDS))
