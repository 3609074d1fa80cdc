"""The neutral events in the native API's words, as bytes for a stream and as one object.

A token's line is put together by hand from bytes that were made once for the request; only its
text is encoded. Events of one request all carry the same identity: `{"id": …}`, and in a batch on
a WebSocket also `"item"`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import assert_never

from pydantic_core import to_json

from ....shared.errors import public_body
from ....shared.inference import (
    Begun,
    Done,
    EndEvent,
    Event,
    Failed,
    Notice,
    Token,
    TokenKind,
    ToolCall,
    ToolCallStarted,
)
from ..common.accumulator import Accumulator
from ..common.log_probs import entries


@dataclass(frozen=True, slots=True)
class Framing:
    """What stands before and after each event's JSON."""

    before: bytes
    after: bytes


NDJSON_LINES = Framing(b"", b"\n")
SERVER_SENT_EVENTS = Framing(b"data: ", b"\n\n")
RPC_NOTIFICATIONS = Framing(b'{"jsonrpc":"2.0","method":"event","params":', b"}")


class EventWriter:
    """Events of one request as framed JSON."""

    def __init__(self, identity: Mapping[str, str | int | float | None], framing: Framing) -> None:
        self._identity = to_json(identity)[1:-1]
        self._framing = framing
        self._token_starts: dict[TokenKind, bytes] = {}

    def render(self, event: Event) -> bytes:
        """`event` as bytes that are ready to be written; of what shows nothing there are none."""
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
            case ToolCallStarted():
                return self._event("tool_call_started", {"call": asdict(event)})
            case ToolCall():
                return self._event("tool_call", {"call": asdict(event)})
            case Notice():
                return self._event("warning", {"code": event.code, "message": event.message})
            case Done():
                return self._event("done", done_fields(event))
            case Failed():
                return self._event("error", {"error": public_body(event.error)})
            case _:
                assert_never(event)

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


def done_fields(done: Done) -> dict[str, object]:
    """How the request ended: `finish_reason`, `stop_string`, `usage`, `timings`, `agent`."""
    stop_string = {} if done.stop_string is None else {"stop_string": done.stop_string}
    return {
        "finish_reason": done.finish_reason,
        **stop_string,
        "usage": asdict(done.usage),
        "timings": asdict(done.timings),
        "agent": done.agent,
    }


def end_fields(end: EndEvent) -> dict[str, object]:
    """How a request of a batch ended: the `done` fields, or `error`."""
    return {"error": public_body(end.error)} if isinstance(end, Failed) else done_fields(end)


def answer_fields(accumulator: Accumulator) -> dict[str, object]:
    """A whole answer: the `done` fields and `text`.

    With `logprobs`, those of the text, and with `prompt_logprobs` those of the prompt; `reasoning`,
    `tool_calls`, `warnings` if there are any.
    If the request failed, only `error`.
    """
    if isinstance(accumulator.end, Failed):
        return end_fields(accumulator.end)
    answer = done_fields(accumulator.end) | {"text": accumulator.text()}
    if log_probs := accumulator.log_probs():
        answer["logprobs"] = entries(log_probs)
    if prompt_log_probs := accumulator.log_probs("prompt"):
        answer["prompt_logprobs"] = entries(prompt_log_probs)
    if reasoning := accumulator.text("reasoning"):
        answer["reasoning"] = reasoning
    if accumulator.calls:
        answer["tool_calls"] = [asdict(call) for call in accumulator.calls]
    if accumulator.notices:
        answer["warnings"] = [asdict(notice) for notice in accumulator.notices]
    return answer
