"""Converts one request's neutral events to Responses API events, and to the whole response.

Invariants:

- `response.created` and `response.in_progress` come first, and one event that ends the response
  comes last;
- every item and part that was added is done before the next one and before the end;
- `sequence_number` counts from 0 without a gap;
- the last event has the response of `ResponseEvents.response`, which is also the answer to a
  request without streaming.

If an item is open when the tokens run out or an error comes, the item and the response are
`incomplete`. Whether a call is complete is known only when the next item begins, so a call is not
done before that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from .....shared.errors import Cancelled, RateLimited, RequestError
from .....shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    Token,
    TokenKind,
    ToolCallStarted,
    Usage,
    Waiting,
)
from ...common.event_stream import HOLE, Deltas, EventRenderer
from ...common.log_probs import TokenLogProb, entries
from ..errors import error_fields
from .answer_types import (
    FunctionCallItem,
    MessageItem,
    MessagePart,
    OutputTextPart,
    ReasoningItem,
    ReasoningTextPart,
    Response,
    ResponseEcho,
    ResponseUsage,
)
from .items import Json, Status, item_id

RESPONSE_PREFIX = "resp_"

_NO_NAMESPACES: Mapping[str, tuple[str, str]] = MappingProxyType({})


class ResponseEvents(EventRenderer):
    """One response while it is generated."""

    def __init__(
        self,
        id: str,
        *,
        created_at: int,
        echo: ResponseEcho,
        namespaces: Mapping[str, tuple[str, str]] = _NO_NAMESPACES,
        is_background: bool = False,
    ) -> None:
        """Begin a response. `id` has no prefix; `echo` has the members copied from the request.

        `namespaces` maps the model's name of a function to its namespace and its name there.
        """
        self._id = id
        self._echo = echo
        self._namespaces = namespaces
        self._created_at = created_at
        self._is_background = is_background
        self._sequence_number = 0
        self._open: _TextItem | _CallItem | None = None
        self.response: Response = {
            "id": response_id(id),
            "object": "response",
            "created_at": created_at,
            "status": "queued" if is_background else "in_progress",
            "background": is_background,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            **echo,
            "output": [],
            "usage": None,
        }
        """The response so far."""

    def anew(self) -> "ResponseEvents":
        """Return a renderer of the same response, at its beginning."""
        return ResponseEvents(
            self._id,
            created_at=self._created_at,
            echo=self._echo,
            namespaces=self._namespaces,
            is_background=self._is_background,
        )

    def begin(self) -> list[Json]:
        """Return the events before the first token."""
        state = self.response["status"]
        return self._numbered(self._about("response.created"), self._about(f"response.{state}"))

    def whole(self) -> Response:
        """Return the complete response. Call this only after the last event."""
        return self.response

    def take(self, event: Event, _number: int = 0, /) -> list[Json]:
        """Return the API's events for `event`."""
        if self.response["status"] != "queued" or isinstance(event, Waiting | Failed):
            return self._numbered(*super().take(event))
        self.response["status"] = "in_progress"
        return self._numbered(self._about("response.in_progress"), *super().take(event))

    def _begun(self, begun: Begun) -> None:
        pass  # a response has no usage before its end

    # ---- items

    @property
    def _index(self) -> int:
        return len(self.response["output"])

    def _next_id(self, type: str) -> str:
        return item_id(type, self._id, str(self._index))

    def _go_on(self, token: Token) -> bytes | None:
        item = self._open
        if item is None or item.token_kind != token.kind or not token.text or token.log_probs:
            return None
        number, self._sequence_number = self._sequence_number, self._sequence_number + 1
        return item.deltas.write(item.add(token.text), b',"sequence_number":%d' % number)

    def _said(self, token: Token) -> Iterator[Json]:
        item = self._open
        if item is None or item.token_kind != token.kind:
            yield from self._close("completed")
            kind = _TEXT_KINDS.get(token.kind)
            if kind is None:
                raise RuntimeError(f"{token.kind} came where there can be none")
            item = _TextItem(self._next_id(kind.type), self._index, kind)
            yield from self._added(item)
        yield item.push(token)

    def _called(self, call: ToolCallStarted) -> Iterator[Json]:
        yield from self._close("completed")
        space, name = self._namespaces.get(call.name, (None, call.name))
        id = self._next_id("function_call")
        yield from self._added(_CallItem(id, self._index, replace(call, name=name), space))

    def _added(self, item: "_TextItem | _CallItem") -> Iterator[Json]:
        self._open = item
        yield from item.opening()

    def _close(self, status: Status) -> Iterator[Json]:
        item, self._open = self._open, None
        if item is not None:
            yield from item.closing(status)
            self.response["output"].append(item.whole(status))

    # ---- the end

    def _done(self, done: Done) -> Iterator[Json]:
        is_whole = done.finish_reason in ("stop", "tool_calls")
        status: Status = "completed" if is_whole else "incomplete"
        yield from self._close(status)
        is_cancelled = done.finish_reason == "cancelled" and self.response["background"]
        self.response["status"] = "cancelled" if is_cancelled else status
        self.response["usage"] = _usage(done.usage)
        if is_whole:
            seconds = round(done.timings.total_ms / 1000)
            self.response["completed_at"] = self._created_at + seconds
        else:
            self.response["incomplete_details"] = {
                "reason": "max_output_tokens" if done.finish_reason == "length" else None
            }
        yield self._about(f"response.{status}")

    def _failed(self, error: RequestError) -> Iterator[Json]:
        yield from self._close("incomplete")
        fields = error_fields(error)
        yield {
            "type": "error",
            "code": fields["code"],
            "message": fields["message"],
            "param": fields["param"],
        }
        # A response's `error` has few codes, and none for errors of a fleet.
        is_cancelled = isinstance(error, Cancelled) and self.response["background"]
        self.response["status"] = "cancelled" if is_cancelled else "failed"
        self.response["error"] = {
            "code": "rate_limit_exceeded" if isinstance(error, RateLimited) else "server_error",
            "message": error.message,
        }
        yield self._about("response.failed")

    # ---- events

    def _about(self, type: str) -> Json:
        return {"type": type, "response": {**self.response, "output": [*self.response["output"]]}}

    def _numbered(self, *events: Json) -> list[Json]:
        for event in events:
            event["sequence_number"] = self._sequence_number
            self._sequence_number += 1
        return list(events)


@dataclass(frozen=True, slots=True)
class _TextKind:
    """The parts in which messages and reasoning differ."""

    token: TokenKind
    type: str
    event: str
    part: Callable[[str, list[TokenLogProb]], OutputTextPart | ReasoningTextPart]
    item: Callable[[str, Status, list[Any]], MessageItem | ReasoningItem]
    has_log_probs: bool


def _output_text(text: str, log_probs: list[TokenLogProb]) -> OutputTextPart:
    return {"type": "output_text", "annotations": [], "text": text, "logprobs": log_probs}


def _reasoning_text(text: str, _log_probs: list[TokenLogProb]) -> ReasoningTextPart:
    return {"type": "reasoning_text", "text": text}


def _message(id: str, status: Status, parts: list[MessagePart]) -> MessageItem:
    return {
        "id": id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": parts,
    }


def _reasoning(id: str, status: Status, parts: list[ReasoningTextPart]) -> ReasoningItem:
    return {"id": id, "type": "reasoning", "status": status, "summary": [], "content": parts}


_MESSAGE = _TextKind(
    token="content",
    type="message",
    event="response.output_text",
    part=_output_text,
    item=_message,
    has_log_probs=True,
)
_REASONING = _TextKind(
    token="reasoning",
    type="reasoning",
    event="response.reasoning_text",
    part=_reasoning_text,
    item=_reasoning,
    has_log_probs=False,
)


_TEXT_KINDS = {kind.token: kind for kind in (_MESSAGE, _REASONING)}


class _TextItem:
    """An item with one text part."""

    def __init__(self, id: str, index: int, kind: _TextKind) -> None:
        self.kind = kind
        self.token_kind = kind.token
        self._id = id
        self._index = index
        self._texts: list[str] = []
        self._log_probs: list[TokenLogProb] = []
        self.deltas = Deltas(self._delta(HOLE, []))

    def opening(self) -> Iterator[Json]:
        item = self.kind.item(self._id, "in_progress", [])
        yield {"type": "response.output_item.added", "output_index": self._index, "item": item}
        yield self._event("response.content_part.added", part=self._part())

    def add(self, text: str) -> str:
        self._texts.append(text)
        return text

    def push(self, token: Token) -> Json:
        log_probs = entries(token.log_probs)
        self._log_probs += log_probs
        return self._delta(self.add(token.text), log_probs)

    def _delta(self, text: str, log_probs: list[TokenLogProb]) -> Json:
        log_prob_fields = self._rendered([_without_bytes(each) for each in log_probs])
        return self._event(f"{self.kind.event}.delta", delta=text, **log_prob_fields)

    def closing(self, status: Status) -> Iterator[Json]:
        log_prob_fields = self._rendered([_without_bytes(each) for each in self._log_probs])
        yield self._event(f"{self.kind.event}.done", text="".join(self._texts), **log_prob_fields)
        yield self._event("response.content_part.done", part=self._part())
        item = self.whole(status)
        yield {"type": "response.output_item.done", "output_index": self._index, "item": item}

    def whole(self, status: Status) -> MessageItem | ReasoningItem:
        return self.kind.item(self._id, status, [self._part()])

    def _part(self) -> OutputTextPart | ReasoningTextPart:
        return self.kind.part("".join(self._texts), [*self._log_probs])

    def _rendered(self, log_probs: list[Json]) -> Json:
        return {"logprobs": log_probs} if self.kind.has_log_probs else {}

    def _event(self, type: str, **values: object) -> Json:
        place = {"item_id": self._id, "output_index": self._index, "content_index": 0}
        return {"type": type, **place, **values}


class _CallItem:
    """A function call."""

    token_kind: TokenKind = "tool_call"

    def __init__(self, id: str, index: int, call: ToolCallStarted, namespace: str | None) -> None:
        self._id = id
        self._namespace = namespace
        self._index = index
        self._call = call
        self._arguments: list[str] = []
        self.deltas = Deltas(self._delta(HOLE))

    def opening(self) -> Iterator[Json]:
        item = self.whole("in_progress")
        yield {"type": "response.output_item.added", "output_index": self._index, "item": item}

    def add(self, text: str) -> str:
        self._arguments.append(text)
        return text

    def push(self, token: Token) -> Json:
        return self._delta(self.add(token.text))

    def _delta(self, text: str) -> Json:
        return self._event("response.function_call_arguments.delta", delta=text)

    def closing(self, status: Status) -> Iterator[Json]:
        arguments = "".join(self._arguments)
        type, name = "response.function_call_arguments.done", self._call.name
        yield self._event(type, name=name, arguments=arguments)
        item = self.whole(status)
        yield {"type": "response.output_item.done", "output_index": self._index, "item": item}

    def whole(self, status: Status) -> FunctionCallItem:
        item: FunctionCallItem = {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call.id,
            "name": self._call.name,
            "arguments": "".join(self._arguments),
        }
        if self._namespace is not None:
            item["namespace"] = self._namespace
        return item

    def _event(self, type: str, **values: object) -> Json:
        return {"type": type, "item_id": self._id, "output_index": self._index, **values}


def _without_bytes(entry: TokenLogProb) -> Json:
    """Return a token's log-probability in the form of events, which omit its bytes."""
    top = [{"token": each["token"], "logprob": each["logprob"]} for each in entry["top_logprobs"]]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": top}


def response_id(id: str) -> str:
    """Return the id of the response to the request `id`."""
    return RESPONSE_PREFIX + id


def _usage(usage: Usage) -> ResponseUsage:
    return {
        "input_tokens": usage.prompt_tokens,
        # Agents decide what stays in their prompt caches, so no retention is promised.
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
