"""Converts one request's neutral events to Messages API events, and to the whole message.

Invariants: `message_start` comes first, `message_stop` or `error` last; at most one block is open,
and each block is stopped before the next one starts and before the end; the events add up to
`MessageEvents.message`, which is also the answer to a request without streaming.

Thinking blocks are not signed: their `signature` is a placeholder that says so.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from ....shared.errors import RequestError
from ....shared.inference import Begun, Count, Done, Token, TokenKind, ToolCallStarted, Usage
from ..common.accumulator import arguments_of
from ..common.event_stream import HOLE, Deltas, EventRenderer
from ..transport.text_frame import TextFrame
from .context_edits import AppliedEdit
from .conversation.blocks import Json
from .errors import anthropic_error
from .options import MessageTier

StopReason = Literal[
    "end_turn",
    "stop_sequence",
    "max_tokens",
    "tool_use",
    "model_context_window_exceeded",
    "compaction",
]


class ThinkingDetails(TypedDict):
    """The number of an answer's thinking tokens."""

    thinking_tokens: Count


class TokenCounts(TypedDict):
    """Token counts. `input_tokens` does not include tokens that were read from a cache."""

    input_tokens: Count
    cache_read_input_tokens: Count
    cache_creation_input_tokens: Count
    output_tokens: Count
    output_tokens_details: ThinkingDetails
    server_tool_use: None


class CacheCreation(TypedDict):
    """Tokens that were written to a cache, by the cache's lifetime. These counts are always 0."""

    ephemeral_5m_input_tokens: Count
    ephemeral_1h_input_tokens: Count


class MessageUsage(TokenCounts):
    """Token counts, and how the request was served."""

    cache_creation: CacheCreation
    inference_geo: None
    service_tier: MessageTier


class TextBlock(TypedDict):
    """A block of text."""

    type: Literal["text"]
    text: str
    citations: None


class ThinkingBlock(TypedDict):
    """Reasoning of the model. The signature is a placeholder, because nothing is signed."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class DirectCaller(TypedDict):
    """The caller of a tool: the model itself."""

    type: Literal["direct"]


class ToolUseBlock(TypedDict):
    """A call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    caller: DirectCaller


class CompactionBlock(TypedDict):
    """The summary of a conversation; null if the model gave none.

    `tool_changes` are the changes of tools in the conversation.
    """

    type: Literal["compaction"]
    content: str | None
    tool_changes: list[dict[str, Any]]


Block = TextBlock | ThinkingBlock | ToolUseBlock | CompactionBlock


class ContextManaged(TypedDict):
    """The context edits that changed the prompt."""

    applied_edits: list[AppliedEdit]


class MessageAnswer(TypedDict):
    """A message. The stop reason is null until the message has ended.

    `context_management` is present if the request has it. Containers and details of the stop are
    never present.
    """

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Block]
    stop_reason: StopReason | None
    stop_sequence: str | None
    stop_details: None
    container: None
    usage: MessageUsage
    context_management: NotRequired[ContextManaged]


SIGNATURE = "unsigned"
"""The placeholder for a signature. Clients send thinking back only if it has a signature."""


_PING: Json = {"type": "ping"}
"""Says that the answer goes on while there is no text to send.

`tier` is the service tier of the request. With `hides_thinking` thinking blocks have no text. With
`summarizes` the message is one compaction block.
"""

Summarized = list[Json]
"""The changes of tools in a conversation that is summarized."""


class MessageEvents(EventRenderer):
    """One message while it is generated."""

    def __init__(
        self,
        id: str,
        *,
        model: str,
        max_tokens: int | None,
        tier: MessageTier = "standard",
        context: ContextManaged | None = None,
        hides_thinking: bool = False,
        summarizes: Summarized | None = None,
    ) -> None:
        """`id` has no prefix; `context` says which edits shortened the prompt.

        `tier` is the service tier of the request. With `hides_thinking` thinking blocks have no
        text. With `summarizes` the message is one compaction block.
        """
        self._id = id
        self._max_tokens = max_tokens
        self._hides_thinking = hides_thinking
        self._summarizes = summarizes
        self._open: _Block | None = None
        self._deltas: Deltas | None = None
        self.message: MessageAnswer = {
            "id": f"msg_{id}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "container": None,
            "usage": _usage(Usage(), tier),
        }
        """The message so far."""
        if context is not None:
            self.message["context_management"] = context

    def begin(self) -> list[Json]:
        """Return the events before the first token."""
        message: Json = {**self.message, "content": []}
        return [{"type": "message_start", "message": message}, _PING]

    def whole(self) -> MessageAnswer:
        """Return the complete message. Call this only after the last event."""
        return self.message

    def _begun(self, begun: Begun) -> None:
        usage = Usage(prompt_tokens=begun.prompt_tokens, cached_tokens=begun.cached_tokens)
        self._count(usage)

    def _count(self, usage: Usage) -> None:
        self.message["usage"] = _usage(usage, self.message["usage"]["service_tier"])

    # ---- blocks

    @property
    def _index(self) -> int:
        return len(self.message["content"])

    def _start(self, block: "_Block") -> Iterator[Json]:
        yield from self._stop()
        self._open = block
        self._deltas = None if block.is_silent else Deltas(self._delta(block.delta(HOLE)))
        opening = {"type": "content_block_start", "index": self._index}
        yield {**opening, "content_block": block.opening()}

    def _said(self, token: Token) -> Iterator[Json]:
        block = self._open
        if self._summarizes is not None and token.kind != "content":
            yield _PING
            return
        if block is None or block.kind != token.kind:
            block = self._new_block(token)
            yield from self._start(block)
        text = block.add(token.text)
        yield _PING if block.is_silent else self._delta(block.delta(text))

    def _new_block(self, token: Token) -> "_Block":
        if token.kind == "content":
            return _TextBlock() if self._summarizes is None else _Summary(self._summarizes)
        if token.kind == "reasoning":
            return _HiddenThinking() if self._hides_thinking else _Thinking()
        raise RuntimeError(f"{token.kind} came where there can be none")

    def _called(self, call: ToolCallStarted) -> Iterator[Json]:
        yield from self._start(_ToolUse(call))

    def _go_on(self, token: Token) -> bytes | None:
        block, deltas = self._open, self._deltas
        if block is None or deltas is None or block.kind != token.kind or not token.text:
            return None
        return deltas.write(block.add(token.text))

    def frame_of(self, kind: TokenKind) -> TextFrame | None:
        """Return the bytes around the text of each token of the open block."""
        block, deltas = self._open, self._deltas
        if block is None or deltas is None or block.kind != kind:
            return None
        return deltas.frame(kind, block.add)

    def _delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _stop(self) -> Iterator[Json]:
        block, self._open = self._open, None
        if block is None:
            return
        if (last := block.last_delta()) is not None:
            yield self._delta(last)
        yield {"type": "content_block_stop", "index": self._index}
        self.message["content"].append(block.whole())

    # ---- the end

    def _done(self, done: Done) -> Iterator[Json]:
        if self._summarizes is not None and self._open is None:
            yield from self._start(_Summary(self._summarizes))
        yield from self._stop()
        message = self.message
        message["stop_reason"] = self._stop_reason(done)
        message["stop_sequence"] = done.stop_string if done.finish_reason == "stop" else None
        self._count(done.usage)
        end = {
            "stop_reason": message["stop_reason"],
            "stop_sequence": message["stop_sequence"],
            "stop_details": None,
            "container": None,
        }
        delta: Json = {"type": "message_delta", "delta": end, "usage": _counts(done.usage)}
        if (context := message.get("context_management")) is not None:
            delta["context_management"] = context
        yield delta
        yield {"type": "message_stop"}

    def _stop_reason(self, done: Done) -> StopReason:
        match done.finish_reason:
            case "stop" if self._max_tokens == 0:
                return "max_tokens"
            case "stop" if self._summarizes is not None:
                return "compaction"
            case "stop":
                return "end_turn" if done.stop_string is None else "stop_sequence"
            case "length":
                is_all = done.usage.completion_tokens == self._max_tokens
                return "max_tokens" if is_all else "model_context_window_exceeded"
            case "tool_calls":
                return "tool_use"
            case "cancelled":
                return "end_turn"

    def _failed(self, error: RequestError) -> Iterator[Json]:
        yield from self._stop()
        yield {**anthropic_error(error, self._id)}


# ---- kinds of blocks


class _Block(ABC):
    """One content block while it is generated."""

    kind: TokenKind
    is_silent = False
    """Whether the text of the block is sent only at its end, or never."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> str:
        """Add text to the block, and return the part that the answer shows."""
        self._texts.append(text)
        return text

    @property
    def text(self) -> str:
        """Return the text of the block so far."""
        return "".join(self._texts)

    @abstractmethod
    def opening(self) -> Json:
        """Return the block without text, as it begins."""

    @abstractmethod
    def delta(self, text: str) -> Json:
        """Return the delta that carries `text`."""

    def last_delta(self) -> Json | None:
        """Return the delta at the end of the block, if it needs one."""
        return None

    @abstractmethod
    def whole(self) -> Block:
        """Return the complete block."""


class _TextBlock(_Block):
    kind = "content"

    def opening(self) -> Json:
        return {"type": "text", "text": "", "citations": None}

    def delta(self, text: str) -> Json:
        return {"type": "text_delta", "text": text}

    def whole(self) -> TextBlock:
        return {"type": "text", "text": self.text, "citations": None}


class _Thinking(_Block):
    kind = "reasoning"

    def opening(self) -> Json:
        return {"type": "thinking", "thinking": "", "signature": ""}

    def delta(self, text: str) -> Json:
        return {"type": "thinking_delta", "thinking": text}

    def last_delta(self) -> Json | None:
        return {"type": "signature_delta", "signature": SIGNATURE}

    def whole(self) -> ThinkingBlock:
        return {"type": "thinking", "thinking": self.text, "signature": SIGNATURE}


class _HiddenThinking(_Thinking):
    """A thinking block without its text, which shows the client that the model thought."""

    is_silent = True

    def whole(self) -> ThinkingBlock:
        return {"type": "thinking", "thinking": "", "signature": SIGNATURE}


class _Summary(_Block):
    """A compaction block. Clients expect its whole text in one delta."""

    kind = "content"
    is_silent = True

    def __init__(self, changes: Summarized) -> None:
        super().__init__()
        self._changes = changes

    def opening(self) -> Json:
        return {"type": "compaction", "content": None, "tool_changes": self._changes}

    def delta(self, text: str) -> Json:
        return {"type": "compaction_delta", "content": text}

    def last_delta(self) -> Json | None:
        return self.delta(self.text) if self.text else None

    def whole(self) -> CompactionBlock:
        content = self.text or None
        return {"type": "compaction", "content": content, "tool_changes": self._changes}


class _ToolUse(_Block):
    kind = "tool_call"

    def __init__(self, call: ToolCallStarted) -> None:
        super().__init__()
        self._call = call

    def opening(self) -> Json:
        return {**self._with({})}

    def delta(self, text: str) -> Json:
        return {"type": "input_json_delta", "partial_json": text}

    def whole(self) -> ToolUseBlock:
        return self._with(arguments_of(self.text))

    def _with(self, input: Json) -> ToolUseBlock:
        return {
            "type": "tool_use",
            "id": self._call.id,
            "name": self._call.name,
            "input": input,
            "caller": {"type": "direct"},
        }


def _counts(usage: Usage) -> TokenCounts:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "server_tool_use": None,
    }


def _usage(usage: Usage, tier: MessageTier) -> MessageUsage:
    return {
        **_counts(usage),
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "inference_geo": None,
        "service_tier": tier,
    }
