"""Events and answers of the native API as dataclasses.

Unknown fields and events of a newer balancer are ignored, so an older client keeps working.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from .errors import RequestFailed, failure

R = TypeVar("R")

Kind = Literal["content", "reasoning", "tool_call", "prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of a request. `cached_tokens` of the prompt were taken from the cache."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Milliseconds since the request's arrival, and rates; `None` if not measured.

    `moves` is the number of times that the request moved to another agent.
    """

    queue_ms: float | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None
    moves: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A text of one or more tokens. `logprobs` has an entry for each token, if requested."""

    text: str
    kind: Kind = "content"
    item: int | str | None = None
    logprobs: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """The model calls a tool; tokens of the kind `tool_call` with its arguments follow."""

    call_id: str
    name: str
    item: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call is complete. `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str
    item: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A warning; the request goes on."""

    code: str
    message: str
    item: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The request waits in the queue, at `position` (from 1).

    `what` says what the request waits for: "slot" for a free slot, "model" for an agent that
    serves the model. `seconds_left` is an estimate, if known. `reason` says why no agent serves
    the model.
    """

    position: int | None = None
    what: str = "slot"
    seconds_left: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An agent reads the prompt: `read_tokens` of `prompt_tokens` so far; both are 0 if unknown."""

    read_tokens: int = 0
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The last event of a request that succeeded."""

    finish_reason: str
    usage: Usage
    timings: Timings
    agent: str | None = None
    stop_string: str | None = None
    item: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The last event of a request that failed."""

    error: RequestFailed
    item: int | str | None = None


Event = Token | ToolCallStarted | ToolCall | Warned | Waiting | Reading | Done


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer. `text` is its content."""

    id: str
    text: str
    finish_reason: str
    usage: Usage
    timings: Timings
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    warnings: tuple[Warned, ...] = ()
    agent: str | None = None
    stop_string: str | None = None
    logprobs: list[dict[str, Any]] | None = None


def event_of(body: Mapping[str, Any]) -> Event | Failed | None:
    """Return the event in a line of a stream; `None` if this client does not know the event."""
    item = body.get("item")
    match body.get("event"):
        case "token":
            return Token(
                text=body["text"], kind=body["kind"], item=item, logprobs=body.get("logprobs")
            )
        case "tool_call_started":
            return ToolCallStarted(call_id=body["call"]["id"], name=body["call"]["name"], item=item)
        case "tool_call":
            return _call(body["call"], item)
        case "warning":
            return Warned(code=body["code"], message=body["message"], item=item)
        case "waiting":
            return Waiting(
                position=body.get("position"),
                what=body.get("for", "slot"),
                seconds_left=body.get("seconds_left"),
                reason=body.get("reason"),
            )
        case "reading":
            return Reading(
                read_tokens=body.get("read_tokens", 0), prompt_tokens=body.get("prompt_tokens", 0)
            )
        case "done":
            return done_of(body, item)
        case "error":
            return Failed(error=failure(body, request_id=body.get("id")), item=item)
        case _:
            return None


def done_of(body: Mapping[str, Any], item: int | str | None = None) -> Done:
    """Return the end of a request from a `done` event or a JSON-RPC result."""
    return Done(
        finish_reason=body["finish_reason"],
        usage=_record(Usage, body.get("usage")),
        timings=_record(Timings, body.get("timings")),
        agent=body.get("agent"),
        stop_string=body.get("stop_string"),
        item=item,
    )


def answer_of(body: Mapping[str, Any]) -> Answer:
    """Return the answer in the body of an answer that was not streamed."""
    done = done_of(body)
    return Answer(
        id=str(body.get("id", "")),
        text=body.get("text", ""),
        reasoning=body.get("reasoning", ""),
        tool_calls=tuple(_call(each, None) for each in body.get("tool_calls", ())),
        warnings=tuple(
            Warned(code=each["code"], message=each["message"]) for each in body.get("warnings", ())
        ),
        finish_reason=done.finish_reason,
        usage=done.usage,
        timings=done.timings,
        agent=done.agent,
        stop_string=done.stop_string,
        logprobs=body.get("logprobs"),
    )


def put_together(id: str, events: Iterable[Event]) -> Answer:
    """Return the answer made of `events`. Raises `ValueError` if they have no end."""
    text: dict[str, list[str]] = {"content": [], "reasoning": []}
    calls: list[ToolCall] = []
    warnings: list[Warned] = []
    done: Done | None = None
    for event in events:
        match event:
            case Token(kind=kind) if kind in text:
                text[kind].append(event.text)
            case ToolCall():
                calls.append(event)
            case Warned():
                warnings.append(event)
            case Done():
                done = event
            case _:
                pass
    if done is None:
        raise ValueError("the events have no end")
    return Answer(
        id=id,
        text="".join(text["content"]),
        reasoning="".join(text["reasoning"]),
        tool_calls=tuple(calls),
        warnings=tuple(warnings),
        finish_reason=done.finish_reason,
        usage=done.usage,
        timings=done.timings,
        agent=done.agent,
        stop_string=done.stop_string,
    )


def _call(body: Mapping[str, Any], item: int | str | None) -> ToolCall:
    return ToolCall(call_id=body["id"], name=body["name"], arguments=body["arguments"], item=item)


def _record(cls: type[R], body: Mapping[str, Any] | None) -> R:
    names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in (body or {}).items() if name in names})
