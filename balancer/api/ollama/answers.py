"""Neutral events in Ollama's format: lines of a stream, and whole answers.

A call is told when it is complete, with its arguments as an object. A cancelled request and one
that ends with calls have the `done_reason` `"stop"`, since Ollama has no other word for it.

A token's line is assembled by hand from bytes that are precomputed for the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from pydantic_core import to_json

from ....shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    FinishReason,
    Notice,
    Token,
    TokenKind,
    ToolCall,
    ToolCallStarted,
    Waiting,
)
from ..common.accumulator import Accumulator, arguments_of
from ..common.field_names import FieldNames
from ..common.log_probs import entries
from .answer_types import (
    DoneReason,
    OllamaCall,
    OllamaChat,
    OllamaFigures,
    OllamaMessage,
    OllamaText,
)
from .errors import ollama_error

NANOSECONDS = 1_000_000
"""In a millisecond."""

_REASONS: Mapping[FinishReason, DoneReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "stop",
    "cancelled": "stop",
}

_SHOWN: tuple[TokenKind, ...] = ("content", "reasoning")


def told_time(seconds: float) -> str:
    """Seconds since 1970 as Ollama writes times."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Head:
    """What every line repeats; `created` in seconds since 1970."""

    model: str
    created: float

    @property
    def created_at(self) -> str:
        """`created` as it is told."""
        return told_time(self.created)


@dataclass(frozen=True, slots=True)
class Shape:
    """How the lines of the two calls differ: what stands before and after a token's text."""

    content: tuple[bytes, bytes]
    reasoning: tuple[bytes, bytes]


CHAT = Shape(
    (b'"message":{"role":"assistant","content":', b"}"),
    (b'"message":{"role":"assistant","content":"","thinking":', b"}"),
)
GENERATE = Shape((b'"response":', b""), (b'"response":"","thinking":', b""))


class LineWriter:
    """The lines of one stream.

    Nothing is written before the first token, so that an error before it is a status.
    """

    def __init__(self, shape: Shape, head: Head, names: FieldNames) -> None:
        fields = {"model": head.model, "created_at": head.created_at}
        self._head = to_json(fields)[:-1] + b","
        self._shape = shape
        self._names = names
        self._has_begun = False
        self._num_calls = 0

    def __call__(self, event: Event) -> bytes:
        """The bytes for `event`, if any. Raises an error that precedes all bytes."""
        written = self._written(event)
        self._has_begun = self._has_begun or bool(written)
        return written

    def _written(self, event: Event) -> bytes:
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
                error = self._names.told(event.error)
                if not self._has_begun:
                    raise error
                return to_json(ollama_error(error)) + b"\n"
            case Begun() | Notice() | ToolCallStarted() | Waiting():
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
    """Adds how an answer ended, and what it took."""
    timings = done.timings
    begun = timings.total_ms if timings.first_token_ms is None else timings.first_token_ms
    line["done_reason"] = _REASONS[done.finish_reason]
    line["total_duration"] = _nanoseconds(timings.total_ms)
    line["load_duration"] = _nanoseconds(timings.queue_ms)
    line["prompt_eval_count"] = done.usage.prompt_tokens
    line["prompt_eval_duration"] = _nanoseconds(begun - timings.queue_ms)
    line["eval_count"] = done.usage.completion_tokens
    line["eval_duration"] = _nanoseconds(timings.total_ms - begun)


def whole_chat(head: Head, answer: Accumulator) -> OllamaChat:
    """A whole answer of `/api/chat`. Raises the request's error."""
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


def whole_text(head: Head, answer: Accumulator) -> OllamaText:
    """A whole answer of `/api/generate`. Raises the request's error."""
    whole = _empty_text(head)
    tell_figures(whole, answer.done())
    whole["response"] = answer.text()
    if thinking := answer.text("reasoning"):
        whole["thinking"] = thinking
    if log_probs := answer.log_probs():
        whole["logprobs"] = entries(log_probs)
    return whole


def loaded_chat(head: Head) -> OllamaChat:
    """The answer to a chat without messages: the model is there."""
    answer = _empty_chat(head)
    answer["done_reason"] = "load"
    return answer


def loaded_text(head: Head) -> OllamaText:
    """The answer to an empty prompt, likewise."""
    answer = _empty_text(head)
    answer["done_reason"] = "load"
    return answer


def _empty_chat(head: Head) -> OllamaChat:
    return {
        "model": head.model,
        "created_at": head.created_at,
        "message": {"role": "assistant", "content": ""},
        "done": True,
    }


def _empty_text(head: Head) -> OllamaText:
    return {"model": head.model, "created_at": head.created_at, "response": "", "done": True}


def _call(call: ToolCall, index: int) -> OllamaCall:
    arguments = arguments_of(call.arguments)
    return {
        "id": call.id,
        "function": {"index": index, "name": call.name, "arguments": arguments},
    }


def _nanoseconds(milliseconds: float) -> int:
    return max(0, round(milliseconds * NANOSECONDS))
