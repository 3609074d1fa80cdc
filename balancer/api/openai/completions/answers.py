"""Neutral events in OpenAI's format: chunks of a stream, and whole answers.

A prompt counts once in `usage`, however many choices it has. `AnswerShape` has the differences
between chat and completions.

A token's chunk is assembled by hand from bytes that are precomputed for each choice.
"""

from codecs import getincrementaldecoder
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NotRequired, Protocol, assert_never

from pydantic_core import to_json
from typing_extensions import TypedDict

from .....shared.errors import RequestError
from .....shared.inference import (
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
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Usage,
    UsedTier,
    Waiting,
)
from ...common.accumulator import Accumulator
from ...common.log_probs import TokenLogProb, entries, text_of
from ...common.rendering import Rendering
from ...transport.text_frame import TextFrame
from ...transport.waiting import comment, prompt_progress
from ..errors import openai_error

# ---- usage


class PromptDetails(TypedDict):
    """The number of a prompt's cached tokens."""

    cached_tokens: Count


class CompletionDetails(TypedDict):
    """The number of an answer's reasoning tokens."""

    reasoning_tokens: Count


class OpenAIUsage(TypedDict):
    """Token counts of all choices; a prompt counts once."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class RunningUsage:
    """Counts by choice. Each `num_choices` consecutive choices share a prompt, which
    counts once.
    """

    def __init__(self, num_choices: int) -> None:
        self._num_choices = num_choices
        self._usages: dict[int, Usage] = {}

    def take(self, number: int, event: Event) -> None:
        """Count `event` of the choice `number`."""
        usage = self._usages.get(number, Usage())
        match event:
            case Begun():
                usage = replace(
                    usage, prompt_tokens=event.prompt_tokens, cached_tokens=event.cached_tokens
                )
            case Token():
                thought = len(event.tokens) if event.kind == "reasoning" else 0
                usage = replace(
                    usage,
                    completion_tokens=usage.completion_tokens + len(event.tokens),
                    reasoning_tokens=usage.reasoning_tokens + thought,
                )
            case Done():
                usage = event.usage
            case _:
                pass
        self._usages[number] = usage

    @property
    def total(self) -> OpenAIUsage:
        """Return the usage of all choices so far."""
        return total_usage(self._usages, self._num_choices)


def total_usage(usages: dict[int, Usage], num_choices: int) -> OpenAIUsage:
    """Return the counts of all choices together; each prompt is counted from its first choice."""
    prompts = [usage for number, usage in usages.items() if number % num_choices == 0]
    prompt_tokens = sum(usage.prompt_tokens for usage in prompts)
    completion_tokens = sum(usage.completion_tokens for usage in usages.values())
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in prompts)},
        "completion_tokens_details": {
            "reasoning_tokens": sum(usage.reasoning_tokens for usage in usages.values())
        },
    }


# ---- log-probabilities


class ChatLogProbs(TypedDict):
    """Log-probabilities of the tokens of a message's content."""

    content: list[TokenLogProb]
    refusal: None


class CompletionLogProbs(TypedDict):
    """Log-probabilities of a text's tokens, as parallel lists; null for a prompt's first token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[Count]


_Utf8Decoder = getincrementaldecoder("utf-8")


def chat_log_probs(log_probs: Sequence[TokenLogProbs]) -> ChatLogProbs:
    """Return the log-probabilities of a message's content, or of a part of it."""
    return {"content": entries(log_probs), "refusal": None}


class LogProbsWriter:
    """Writes the log-probabilities of one choice's text, part by part, with offsets."""

    def __init__(self, offset: int = 0) -> None:
        """Begin a choice. `offset` is the position of the first token, in characters."""
        self._offset = offset
        self._decoder = _Utf8Decoder(errors="replace")

    def render(self, log_probs: Sequence[TokenLogProbs]) -> CompletionLogProbs:
        """Return the log-probabilities of the next tokens."""
        return {
            "tokens": [text_of(each.chosen) for each in log_probs],
            "token_logprobs": [each.chosen.log_prob for each in log_probs],
            "top_logprobs": [_by_text(each) for each in log_probs],
            "text_offset": [self._place(each.chosen.piece) for each in log_probs],
        }

    def _place(self, piece: bytes) -> int:
        place = self._offset
        self._offset += len(self._decoder.decode(piece))
        return place


def _by_text(log_probs: TokenLogProbs) -> dict[str, float | None] | None:
    """Return the most likely tokens and the chosen token, which may be one more than requested.

    Returns `None` for the first token of a prompt, which has no log-probability.
    """
    if log_probs.chosen.log_prob is None:
        return None
    found: dict[str, float | None] = {}
    for each in (*log_probs.top, log_probs.chosen):
        found.setdefault(text_of(each), each.log_prob)
    return found


# ---- how chat and completions differ


ChatFinish = Literal["stop", "length", "tool_calls", "function_call"]


class FunctionCall(TypedDict):
    """A function call. `arguments` is JSON as the model wrote it."""

    name: str
    arguments: str


class ChatCall(TypedDict):
    """A call of a function."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class ChatMessage(TypedDict):
    """A message of the model. An answer with only calls has no content."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ChatCall]]
    function_call: NotRequired[FunctionCall]


class ChatChoice(TypedDict):
    """One of `n` answers."""

    index: Count
    message: ChatMessage
    logprobs: ChatLogProbs | None
    finish_reason: ChatFinish


class CompletionChoice(TypedDict):
    """One of `n` answers to one of the prompts."""

    index: Count
    text: str
    logprobs: CompletionLogProbs | None
    finish_reason: Literal["stop", "length"]


_FINISH_REASONS: dict[FinishReason, ChatFinish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "cancelled": "stop",
}


class AnswerShape(Protocol):
    """The parts in which answers of chat and completions differ."""

    id_prefix: str
    object_name: str
    chunk_name: str
    has_log_probs: bool

    def choice(
        self, number: int, accumulator: Accumulator, done: Done
    ) -> ChatChoice | CompletionChoice:
        """Return a choice of a whole answer."""

    def log_probs(self, number: int, token: Token) -> ChatLogProbs | CompletionLogProbs | None:
        """Return the log-probabilities of a choice's next token, if requested."""

    def opening(self, number: int) -> dict[str, object] | None:
        """Return the content of a choice's first chunk, if one is sent before its text."""

    def text_frame(self, kind: TokenKind, call_index: int) -> tuple[bytes, bytes]:
        """Return the JSON before and after a token's text; the first part follows the choice's
        index.
        """

    def call_started(self, call: ToolCallStarted, call_index: int) -> dict[str, object]:
        """Return the content of the first chunk of a tool call."""

    def closing(self) -> dict[str, object]:
        """Return empty content, for chunks without text: a choice's last chunk, and progress."""

    def finish_reason(self, done: Done) -> ChatFinish:
        """Return why a choice ended."""


class Chat:
    """Answers of `/v1/chat/completions`."""

    id_prefix = "chatcmpl-"
    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(self, *, has_log_probs: bool = False, has_functions: bool = False) -> None:
        """Describe the answers. With `has_functions` a call has the older form of a function
        call.
        """
        self.has_log_probs = has_log_probs
        self._has_functions = has_functions

    def choice(self, number: int, accumulator: Accumulator, done: Done) -> ChatChoice:
        """Return a whole message."""
        text = accumulator.text()
        content = text if text or not accumulator.calls else None
        message: ChatMessage = {"role": "assistant", "content": content, "refusal": None}
        if reasoning := accumulator.text("reasoning"):
            message["reasoning_content"] = reasoning
        if accumulator.calls and self._has_functions:
            call = accumulator.calls[0]
            message["function_call"] = {"name": call.name, "arguments": call.arguments}
        elif accumulator.calls:
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
        """Return the log-probabilities of content only, not of reasoning and calls."""
        if not self.has_log_probs or token.kind != "content":
            return None
        return chat_log_probs(token.log_probs)

    def opening(self, number: int) -> dict[str, object] | None:
        """Return the role, which comes first."""
        return {"delta": {"role": "assistant", "content": ""}}

    def text_frame(self, kind: TokenKind, call_index: int) -> tuple[bytes, bytes]:
        """Return the frame for content, reasoning, or a part of a call's arguments."""
        if kind == "tool_call" and self._has_functions:
            return b'"delta":{"function_call":{"arguments":', b"}}"
        if kind == "tool_call":
            start = b'"delta":{"tool_calls":[{"index":%d,"function":{"arguments":' % call_index
            return start, b"}}]}"
        name = b"reasoning_content" if kind == "reasoning" else b"content"
        return b'"delta":{"%b":' % name, b"}"

    def call_started(self, call: ToolCallStarted, call_index: int) -> dict[str, object]:
        """Return the call without its arguments."""
        if self._has_functions:
            return {"delta": {"function_call": {"name": call.name, "arguments": ""}}}
        return {"delta": {"tool_calls": [{"index": call_index, **_call(call.id, call.name, "")}]}}

    def closing(self) -> dict[str, object]:
        """Return empty content."""
        return {"delta": {}}

    def finish_reason(self, done: Done) -> ChatFinish:
        """Return why the choice ended, in OpenAI's words."""
        reason = _FINISH_REASONS[done.finish_reason]
        return "function_call" if reason == "tool_calls" and self._has_functions else reason


class Completion:
    """Answers of `/v1/completions`."""

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
        """Describe the answers. If prompts are echoed, `echoes` are the first texts of the
        choices.
        """
        self.has_log_probs = has_log_probs
        self._generates = generates
        self._echoes = echoes
        self._log_probs: dict[int, LogProbsWriter] = {}

    def choice(self, number: int, accumulator: Accumulator, done: Done) -> CompletionChoice:
        """Return the text, after the prompt if it is echoed."""
        text = self._echo(number) + accumulator.text("prompt") + accumulator.text()
        log_probs = [*accumulator.log_probs("prompt"), *accumulator.log_probs()]
        return {
            "index": number,
            "text": text,
            "logprobs": self._rendered_log_probs(number, log_probs),
            "finish_reason": self.finish_reason(done),
        }

    def log_probs(self, number: int, token: Token) -> CompletionLogProbs | None:
        """Return the log-probabilities of the prompt, and then of the text."""
        return self._rendered_log_probs(number, token.log_probs)

    def _rendered_log_probs(
        self, number: int, log_probs: Sequence[TokenLogProbs]
    ) -> CompletionLogProbs | None:
        if not self.has_log_probs:
            return None
        return self._log_probs.setdefault(number, LogProbsWriter()).render(log_probs)

    def _echo(self, number: int) -> str:
        return self._echoes[number] if self._echoes else ""

    def opening(self, number: int) -> dict[str, object] | None:
        """Return the prompt, if it is echoed."""
        return {"text": echo} if (echo := self._echo(number)) else None

    def text_frame(self, kind: TokenKind, call_index: int) -> tuple[bytes, bytes]:
        """Return the frame for text; prompt and answer are one text."""
        return b'"text":', b""

    def call_started(self, call: ToolCallStarted, call_index: int) -> dict[str, object]:
        """Raise an error, because the answer to a raw prompt has no calls."""
        raise RuntimeError(f"a raw prompt's answer calls {call.name}")

    def closing(self) -> dict[str, object]:
        """Return empty content."""
        return {"text": ""}

    def finish_reason(self, done: Done) -> Literal["stop", "length"]:
        """Return why the choice ended; `length` if no tokens were requested."""
        is_cut_off = done.finish_reason == "length" or not self._generates
        return "length" if is_cut_off else "stop"


def _call(id: str, name: str, arguments: str) -> ChatCall:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


# ---- streams, and whole answers


_TEXT_END = b',"finish_reason":null}]'


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkHead:
    """The fields that every chunk of an answer repeats; `created` is in seconds since 1970."""

    id: str
    created: int
    model: str
    service_tier: UsedTier = "default"


def _head_fields(head: ChunkHead, object_name: str) -> dict[str, object]:
    return {
        "object": object_name,
        "id": head.id,
        "created": head.created,
        "model": head.model,
        "service_tier": head.service_tier,
    }


class ChoicesAnswer(Rendering):
    """Writes all choices, each of which ends exactly once, as SSE chunks or as one object."""

    def __init__(
        self,
        shape: AnswerShape,
        head: ChunkHead,
        *,
        num_choices: int,
        include_usage: bool,
        has_running_usage: bool = False,
        tells_progress: bool = False,
    ) -> None:
        """Begin an answer. `num_choices` is the number of choices for one prompt.

        With `has_running_usage` every chunk has the usage so far. With `tells_progress` chunks say
        how much of the prompt was read.
        """
        self._tells_progress = tells_progress
        self._gathered: defaultdict[int, Accumulator] = defaultdict(Accumulator)
        self._head = head
        self._shape = shape
        self._num_choices = num_choices
        self._include_usage = include_usage
        head_json = to_json(_head_fields(head, shape.chunk_name))[:-1]
        self._tail_start = b'data: %b,"choices":[],"usage":' % head_json
        self._usage = RunningUsage(num_choices) if has_running_usage else None
        self._is_plain = self._usage is None and not shape.has_log_probs
        """Whether a choice's chunks differ only in their text."""
        self._no_usage = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._start = b'data: %b,"choices":[' % head_json
        self._text_frames: dict[tuple[int, TokenKind], TextFrame] = {}
        self._num_calls: Counter[int] = Counter()
        self._begun: set[int] = set()
        self._ends: dict[int, Done] = {}

    def render(self, event: Event, number: int = 0, /) -> bytes:
        """Return the bytes for `event` of choice `number`; may be empty."""
        if self._usage is not None:
            self._usage.take(number, event)
        if isinstance(event, Token):
            return self._token(number, event)
        match event:
            case Failed():
                return error_chunk(event.error)
            case Reading() if self._tells_progress:
                return self._progress(number, event)
            case Waiting() | Reading():
                return comment(event)
            case Begun() | Notice() | ToolCall():  # of a call, all has been said
                return b""
            case ToolCallStarted():
                return self._opening(number) + self._call_started(number, event)
            case Done():
                return self._opening(number) + self._end(number, event)
            case _:
                assert_never(event)

    def _progress(self, number: int, reading: Reading) -> bytes:
        """Return a chunk with only llama-server's `prompt_progress`."""
        members = b',"prompt_progress":%b' % to_json(prompt_progress(reading))
        return self._chunk(number, self._shape.closing(), None, members)

    def _token(self, number: int, token: Token) -> bytes:
        text, kind, _, log_probs = token
        if not text and not log_probs:
            return self._opening(number)
        frame = self._text_frames.get((number, kind))
        opening = b"" if frame else self._opening(number)
        _, start, end, _ = frame or self._text_frame(number, kind)
        if not self._is_plain:
            end += self._log_probs(number, token) + _TEXT_END + self._end_json
        return b"%b%b%b%b" % (opening, start, to_json(text), end)

    def frame_of(self, kind: TokenKind, /) -> TextFrame | None:
        """Return the bytes around the text of the next tokens; only for one choice with plain
        text.
        """
        return self._text_frames.get((0, kind)) if self._is_plain else None

    def _log_probs(self, number: int, token: Token) -> bytes:
        log_probs = self._shape.log_probs(number, token)
        return b"null" if log_probs is None else to_json(log_probs)

    def take(self, event: Event, number: int = 0, /) -> None:
        """Collect `event` of choice `number` for the whole answer."""
        self._gathered[number].add(event)

    def whole(self) -> dict[str, object]:
        """Return all choices in one object."""
        answers = [self._gathered[number] for number in sorted(self._gathered)]
        return whole_answer(self._shape, self._head, answers, self._num_choices)

    def tail(self) -> bytes:
        """Return the last bytes of the stream, once all choices have ended."""
        if not self._include_usage:
            return b"data: [DONE]\n\n"
        ends = [self._ends[number] for number in sorted(self._ends)]
        usage = to_json(usage_of(ends, self._num_choices))
        return self._tail_start + usage + b"}\n\ndata: [DONE]\n\n"

    def _opening(self, number: int) -> bytes:
        if number in self._begun:
            return b""
        self._begun.add(number)
        opening = self._shape.opening(number)
        return b"" if opening is None else self._chunk(number, opening, None)

    def _text_frame(self, number: int, kind: TokenKind) -> TextFrame:
        start, end = self._shape.text_frame(kind, self._num_calls[number] - 1)
        end += b',"logprobs":'
        if self._is_plain:
            end += b"null" + _TEXT_END + self._end_json
        frame = TextFrame(kind, b'%b{"index":%d,%b' % (self._start, number, start), end)
        self._text_frames[number, kind] = frame
        return frame

    def _call_started(self, number: int, call: ToolCallStarted) -> bytes:
        content = self._shape.call_started(call, self._num_calls[number])
        self._num_calls[number] += 1
        self._text_frames.pop((number, "tool_call"), None)
        return self._chunk(number, content, None)

    def _end(self, number: int, done: Done) -> bytes:
        self._ends[number] = done
        return self._chunk(number, self._shape.closing(), self._shape.finish_reason(done))

    def _chunk(
        self,
        number: int,
        content: dict[str, object],
        finish_reason: str | None,
        members: bytes = b"",
    ) -> bytes:
        choice = {"index": number, **content, "logprobs": None, "finish_reason": finish_reason}
        return b"%b%b]%b%b" % (self._start, to_json(choice), members, self._end_json)

    @property
    def _end_json(self) -> bytes:
        """Return the JSON after a chunk's choices."""
        if self._usage is None:
            return self._no_usage
        return b',"usage":%b}\n\n' % to_json(self._usage.total)


def error_chunk(error: RequestError) -> bytes:
    """Return the last chunk of a failed stream."""
    return b"data: %b\n\n" % to_json(openai_error(error))


def whole_answer(
    shape: AnswerShape, head: ChunkHead, answers: Sequence[Accumulator], num_choices: int
) -> dict[str, object]:
    """Return all choices in one object, `num_choices` consecutive ones for each prompt.

    Raises the error of the first request that failed.
    """
    ends = [accumulator.done() for accumulator in answers]
    pairs = enumerate(zip(answers, ends, strict=True))
    choices = [shape.choice(number, accumulator, end) for number, (accumulator, end) in pairs]
    return {
        "id": head.id,
        "object": shape.object_name,
        "created": head.created,
        "model": head.model,
        "service_tier": head.service_tier,
        "choices": choices,
        "usage": usage_of(ends, num_choices),
    }


def usage_of(ends: Sequence[Done], num_choices: int) -> OpenAIUsage:
    """Return the counts of all choices together; each prompt is counted from its first choice."""
    return total_usage({number: end.usage for number, end in enumerate(ends)}, num_choices)
