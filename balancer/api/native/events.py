"""Neutral events in the native API's format: as bytes for a stream, and as one object.

A token's line is assembled by hand from bytes that are precomputed for the request; only its text
is encoded. So a test checks that these lines equal a `TokenEvent` as JSON. All events of one
request have the same identity: `{"id": …}`, and in a batch on a WebSocket also `"item"`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NotRequired, assert_never

from pydantic_core import to_json
from typing_extensions import TypeAliasType, TypedDict

from ....shared.errors import public_body
from ....shared.inference import (
    Begun,
    Count,
    Done,
    EndEvent,
    Event,
    Failed,
    FinishReason,
    Notice,
    Reading,
    Timings,
    Token,
    TokenKind,
    ToolCall,
    ToolCallStarted,
    Usage,
    Waiting,
    WaitsFor,
)
from ..common.accumulator import Accumulator
from ..common.log_probs import TokenLogProb, entries
from ..openapi.document import ErrorAnswer
from ..transport.text_frame import TextFrame
from .batch_statistics import BatchStatistics

# ---- how a request ends


class DoneFields(TypedDict):
    """The end of a request. `stop_string` is the string that ended it, if any."""

    finish_reason: FinishReason
    stop_string: NotRequired[str]
    usage: Usage
    timings: Timings
    agent: str


class AnswerFields(DoneFields):
    """A whole answer. Fields without a value are omitted."""

    text: str
    logprobs: NotRequired[list[TokenLogProb]]
    prompt_logprobs: NotRequired[list[TokenLogProb]]
    reasoning: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]
    warnings: NotRequired[list[Notice]]


class Answer(AnswerFields):
    """A whole answer with its request's id. Absent values are omitted."""

    id: str


class FailedAnswer(ErrorAnswer):
    """One request of a batch that failed."""

    id: str


class BatchAnswer(TypedDict):
    """The answers in the order of the requests."""

    results: list[Answer | FailedAnswer]
    statistics: BatchStatistics


# ---- the events of a stream


_For = TypedDict("_For", {"for": WaitsFor})


class WaitingEvent(_For):
    """The request waits for a slot, or for an agent that has its model.

    `position` counts from 1. `seconds_left` is an estimate. If the request waits for an agent,
    `reason` says why no agent serves the model.
    """

    event: Literal["waiting"]
    id: str
    position: Count
    seconds_left: float | None
    reason: str | None


class TokenEvent(TypedDict):
    """A piece of text, always of whole characters."""

    event: Literal["token"]
    id: str
    kind: TokenKind
    text: str
    logprobs: NotRequired[list[TokenLogProb]]


class ToolCallStartedEvent(TypedDict):
    """The model calls a tool; the arguments follow as tokens of the kind `tool_call`."""

    event: Literal["tool_call_started"]
    id: str
    call: ToolCallStarted


class ToolCallEvent(TypedDict):
    """A tool call is complete."""

    event: Literal["tool_call"]
    id: str
    call: ToolCall


class WarningEvent(TypedDict):
    """A warning; the request continues."""

    event: Literal["warning"]
    id: str
    code: str
    message: str


class DoneEvent(DoneFields):
    """The last event of a request that ended well."""

    event: Literal["done"]
    id: str


class ErrorEvent(ErrorAnswer):
    """The last event of a request that failed."""

    event: Literal["error"]
    id: str


class BatchDoneEvent(TypedDict):
    """The last event of a batch, after the events of all its requests."""

    event: Literal["batch_done"]
    id: None
    statistics: BatchStatistics


NativeEvent = TypeAliasType(
    "NativeEvent",
    WaitingEvent
    | TokenEvent
    | ToolCallStartedEvent
    | ToolCallEvent
    | WarningEvent
    | DoneEvent
    | ErrorEvent
    | BatchDoneEvent,
)


# ---- writing


@dataclass(frozen=True, slots=True)
class Framing:
    """The bytes before and after each event's JSON."""

    before: bytes
    after: bytes


NDJSON_LINES = Framing(b"", b"\n")
SERVER_SENT_EVENTS = Framing(b"data: ", b"\n\n")
RPC_NOTIFICATIONS = Framing(b'{"jsonrpc":"2.0","method":"event","params":', b"}")


class EventWriter:
    """Writes the events of one request as framed JSON."""

    def __init__(self, identity: Mapping[str, str | int | float | None], framing: Framing) -> None:
        self._identity = to_json(identity)[1:-1]
        self._framing = framing
        self._token_starts: dict[TokenKind, bytes] = {}

    def render(self, event: Event) -> bytes:
        """Return `event` as bytes to write; empty if the event is not shown."""
        if isinstance(event, Token):
            if event.is_silent:
                return b""
            start = self._token_starts.get(event.kind) or self._token_start(event.kind)
            text = to_json(event.text)
            if event.log_probs:
                text += b',"logprobs":' + to_json(entries(event.log_probs))
            return b"%b%b}%b" % (start, text, self._framing.after)
        match event:
            case Begun():
                return b""  # the end counts the prompt
            case Waiting(position=position, what=what, seconds_left=left, reason=reason):
                values = {
                    "position": position,
                    "for": what,
                    "seconds_left": left,
                    "reason": reason,
                }
                return self._event("waiting", values)
            case Reading(num_read=num_read, num_tokens=num_tokens):
                values = {"read_tokens": num_read, "prompt_tokens": num_tokens}
                return self._event("reading", values)
            case ToolCallStarted():
                return self._event("tool_call_started", {"call": event})
            case ToolCall():
                return self._event("tool_call", {"call": event})
            case Notice():
                return self._event("warning", {"code": event.code, "message": event.message})
            case Done():
                return self._event("done", done_fields(event))
            case Failed():
                return self._event("error", {"error": public_body(event.error)})
            case _:
                assert_never(event)

    def frame_of(self, kind: TokenKind) -> TextFrame:
        """Return the bytes around the text of tokens of a kind."""
        start = self._token_starts.get(kind) or self._token_start(kind)
        return TextFrame(kind, start, b"}" + self._framing.after)

    def _token_start(self, kind: TokenKind) -> bytes:
        start = b'%b{"event":"token",%b,"kind":"%b","text":' % (
            self._framing.before,
            self._identity,
            kind.encode(),
        )
        self._token_starts[kind] = start
        return start

    def _event(self, name: str, values: Mapping[str, object]) -> bytes:
        return b'%b{"event":"%b",%b,%b%b' % (
            self._framing.before,
            name.encode(),
            self._identity,
            to_json(values)[1:],
            self._framing.after,
        )


def batch_done(statistics: BatchStatistics, framing: Framing) -> bytes:
    """Return the last event of a batch, as bytes."""
    event = {"event": "batch_done", "id": None, "statistics": statistics}
    return framing.before + to_json(event) + framing.after


def done_fields(done: Done) -> DoneFields:
    """Return the fields of the last event of a request."""
    fields: DoneFields = {
        "finish_reason": done.finish_reason,
        "usage": done.usage,
        "timings": done.timings,
        "agent": done.agent,
    }
    if done.stop_string is not None:
        fields["stop_string"] = done.stop_string
    return fields


def end_fields(end: EndEvent) -> DoneFields | ErrorAnswer:
    """Return the fields of the end of a request in a batch."""
    return {"error": public_body(end.error)} if isinstance(end, Failed) else done_fields(end)


def answer_fields(accumulator: Accumulator) -> AnswerFields | ErrorAnswer:
    """Return the fields of a whole answer, or its error."""
    end = accumulator.end
    if isinstance(end, Failed):
        return {"error": public_body(end.error)}
    answer: AnswerFields = {
        "finish_reason": end.finish_reason,
        "usage": end.usage,
        "timings": end.timings,
        "agent": end.agent,
        "text": accumulator.text(),
    }
    if end.stop_string is not None:
        answer["stop_string"] = end.stop_string
    if log_probs := accumulator.log_probs():
        answer["logprobs"] = entries(log_probs)
    if prompt_log_probs := accumulator.log_probs("prompt"):
        answer["prompt_logprobs"] = entries(prompt_log_probs)
    if reasoning := accumulator.text("reasoning"):
        answer["reasoning"] = reasoning
    if accumulator.calls:
        answer["tool_calls"] = [*accumulator.calls]
    if accumulator.notices:
        answer["warnings"] = [*accumulator.notices]
    return answer
