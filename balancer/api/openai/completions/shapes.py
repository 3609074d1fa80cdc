"""How chat and completions differ: what stands in a choice of a chunk, and in a whole one.

A cancelled request ends with `finish_reason` `"stop"`, since OpenAI has no other value for this.
Reasoning goes to `reasoning_content`; an answer with tool calls only has the content `null`.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from .....shared.inference import (
    Done,
    FinishReason,
    Token,
    TokenKind,
    TokenLogProbs,
    ToolCallStarted,
)
from ...common.accumulator import Accumulator
from ..answer_types import (
    ChatCall,
    ChatChoice,
    ChatFinish,
    ChatLogProbs,
    ChatMessage,
    CompletionChoice,
    CompletionLogProbs,
)
from .log_probs import LogProbsWriter, chat_log_probs

_FINISH_REASONS: dict[FinishReason, ChatFinish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "cancelled": "stop",
}


class Shape(Protocol):
    """How chat and completions differ."""

    id_prefix: str
    object_name: str
    chunk_name: str
    has_log_probs: bool

    def choice(
        self, number: int, accumulator: Accumulator, done: Done
    ) -> ChatChoice | CompletionChoice:
        """A choice of a whole answer."""

    def log_probs(self, number: int, token: Token) -> ChatLogProbs | CompletionLogProbs | None:
        """Log-probabilities of a choice's next token, if requested."""

    def opening(self, number: int) -> dict[str, object] | None:
        """The content of a choice's first chunk, if one is sent before its text."""

    def text_frame(self, kind: TokenKind, call_index: int) -> tuple[bytes, bytes]:
        """The JSON between the choice's index and a token's text, and the JSON after the text."""

    def call_started(self, call: ToolCallStarted, call_index: int) -> dict[str, object]:
        """The content of the first chunk of a tool call."""

    def closing(self) -> dict[str, object]:
        """The content of the chunk with a choice's `finish_reason`."""

    def finish_reason(self, done: Done) -> ChatFinish:
        """Why a choice ended."""


class Chat:
    """`/v1/chat/completions`"""

    id_prefix = "chatcmpl-"
    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(self, *, has_log_probs: bool = False) -> None:
        self.has_log_probs = has_log_probs

    def choice(self, number: int, accumulator: Accumulator, done: Done) -> ChatChoice:
        """A whole message."""
        text = accumulator.text()
        content = text if text or not accumulator.calls else None
        message: ChatMessage = {"role": "assistant", "content": content, "refusal": None}
        if reasoning := accumulator.text("reasoning"):
            message["reasoning_content"] = reasoning
        if accumulator.calls:
            message["tool_calls"] = [
                _call(call.id, call.name, call.arguments) for call in accumulator.calls
            ]
        log_probs = chat_log_probs(accumulator.log_probs()) if self.has_log_probs else None
        return {
            "index": number,
            "message": message,
            "logprobs": log_probs,
            "finish_reason": self.finish_reason(done),
        }

    def log_probs(self, number: int, token: Token) -> ChatLogProbs | None:
        """Log-probabilities of the content only, without reasoning and calls."""
        if not self.has_log_probs or token.kind != "content":
            return None
        return chat_log_probs(token.log_probs)

    def opening(self, number: int) -> dict[str, object] | None:
        """The role comes first."""
        return {"delta": {"role": "assistant", "content": ""}}

    def text_frame(self, kind: TokenKind, call_index: int) -> tuple[bytes, bytes]:
        """Content, reasoning, or a part of a call's arguments."""
        if kind == "tool_call":
            start = b'"delta":{"tool_calls":[{"index":%d,"function":{"arguments":' % call_index
            return start, b"}}]}"
        name = b"reasoning_content" if kind == "reasoning" else b"content"
        return b'"delta":{"%b":' % name, b"}"

    def call_started(self, call: ToolCallStarted, call_index: int) -> dict[str, object]:
        """All of the call but its arguments."""
        return {"delta": {"tool_calls": [{"index": call_index, **_call(call.id, call.name, "")}]}}

    def closing(self) -> dict[str, object]:
        """Nothing more is added."""
        return {"delta": {}}

    def finish_reason(self, done: Done) -> ChatFinish:
        """As the request ended."""
        return _FINISH_REASONS[done.finish_reason]


class Completion:
    """`/v1/completions`"""

    id_prefix = "cmpl-"
    object_name = "text_completion"
    chunk_name = "text_completion"

    def __init__(
        self,
        *,
        has_log_probs: bool = False,
        echoes: Sequence[str] = (),
        generates: bool = True,
    ) -> None:
        """`echoes` are the texts that the choices begin with, if any."""
        self.has_log_probs = has_log_probs
        self._generates = generates
        self._echoes = echoes
        self._log_probs: dict[int, LogProbsWriter] = {}

    def choice(self, number: int, accumulator: Accumulator, done: Done) -> CompletionChoice:
        """The text, after the prompt if it is echoed."""
        text = self._echo(number) + accumulator.text("prompt") + accumulator.text()
        log_probs = [*accumulator.log_probs("prompt"), *accumulator.log_probs()]
        return {
            "index": number,
            "text": text,
            "logprobs": self._told(number, log_probs),
            "finish_reason": self.finish_reason(done),
        }

    def log_probs(self, number: int, token: Token) -> CompletionLogProbs | None:
        """Of the prompt, and then of what follows."""
        return self._told(number, token.log_probs)

    def _told(self, number: int, log_probs: Sequence[TokenLogProbs]) -> CompletionLogProbs | None:
        if not self.has_log_probs:
            return None
        return self._log_probs.setdefault(number, LogProbsWriter()).render(log_probs)

    def _echo(self, number: int) -> str:
        return self._echoes[number] if self._echoes else ""

    def opening(self, number: int) -> dict[str, object] | None:
        """The prompt comes first, if it is echoed."""
        return {"text": echo} if (echo := self._echo(number)) else None

    def text_frame(self, kind: TokenKind, call_index: int) -> tuple[bytes, bytes]:
        """Prompt and continuation are one text."""
        return b'"text":', b""

    def call_started(self, call: ToolCallStarted, call_index: int) -> dict[str, object]:
        """Raw text has no calls."""
        raise RuntimeError(f"a raw prompt's answer calls {call.name}")

    def closing(self) -> dict[str, object]:
        """Nothing more is added."""
        return {"text": ""}

    def finish_reason(self, done: Done) -> Literal["stop", "length"]:
        """As the request ended; `length` if no tokens were to be generated."""
        is_cut_off = done.finish_reason == "length" or not self._generates
        return "length" if is_cut_off else "stop"


def _call(id: str, name: str, arguments: str) -> ChatCall:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
