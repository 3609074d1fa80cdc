"""Neutral events in OpenAI's format: chunks of a stream, and whole answers.

A prompt counts once in `usage`, however many choices it has. Where chat and completions differ, a
`Shape` says how.

A token's chunk is assembled by hand from bytes that are precomputed for each choice.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from pydantic_core import to_json

from .....shared.errors import RequestError
from .....shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    Notice,
    Token,
    TokenKind,
    ToolCall,
    ToolCallStarted,
    UsedTier,
    Waiting,
)
from ...common.accumulator import Accumulator
from ...transport.pushing.text_frame import TextFrame
from ...transport.waiting import comment
from ..answer_types import OpenAIUsage
from ..errors import openai_error
from .running_usage import RunningUsage, total_usage
from .shapes import Shape

_TEXT_END = b',"finish_reason":null}]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The fields that every chunk of an answer repeats; `created` in Unix seconds."""

    id: str
    created: int
    model: str
    service_tier: UsedTier = "default"


def _head_fields(head: Head, object_name: str) -> dict[str, object]:
    return {
        "object": object_name,
        "id": head.id,
        "created": head.created,
        "model": head.model,
        "service_tier": head.service_tier,
    }


class ChunkWriter:
    """Writes events of all choices as SSE chunks; each choice ends exactly once."""

    def __init__(
        self,
        shape: Shape,
        head: Head,
        *,
        num_choices: int,
        include_usage: bool,
        has_running_usage: bool = False,
    ) -> None:
        """`num_choices` is that of one prompt. A running usage stands in every chunk."""
        self._shape = shape
        self._num_choices = num_choices
        self._include_usage = include_usage
        head_json = to_json(_head_fields(head, shape.chunk_name))[:-1]
        self._tail_start = b'data: %b,"choices":[],"usage":' % head_json
        self._usage = RunningUsage(num_choices) if has_running_usage else None
        self._is_plain = self._usage is None and not shape.has_log_probs
        """Whether a choice's chunks differ in their text alone."""
        self._no_usage = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._start = b'data: %b,"choices":[' % head_json
        self._text_frames: dict[tuple[int, TokenKind], TextFrame] = {}
        self._num_calls: Counter[int] = Counter()
        self._begun: set[int] = set()
        self._ends: dict[int, Done] = {}

    def render(self, number: int, event: Event) -> bytes:
        """Bytes for `event` of choice `number`; may be empty. Raises the error of a `Failed`."""
        if self._usage is not None:
            self._usage.take(number, event)
        if isinstance(event, Token):
            return self._token(number, event)
        match event:
            case Failed():
                raise event.error
            case Waiting():
                return comment(event)
            case Begun() | Notice() | ToolCall():  # of a call, all has been said
                return b""
            case ToolCallStarted():
                return self._opening(number) + self._call_started(number, event)
            case Done():
                return self._opening(number) + self._end(number, event)
            case _:
                assert_never(event)

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

    def frame_of(self, number: int, kind: TokenKind) -> TextFrame | None:
        """What is around the text of a choice's tokens of a kind, if they differ in no more."""
        return self._text_frames.get((number, kind)) if self._is_plain else None

    def _log_probs(self, number: int, token: Token) -> bytes:
        log_probs = self._shape.log_probs(number, token)
        return b"null" if log_probs is None else to_json(log_probs)

    def tail(self) -> bytes:
        """The stream's last bytes, once all choices have ended."""
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

    def _chunk(self, number: int, content: dict[str, object], finish_reason: str | None) -> bytes:
        choice = {"index": number, **content, "logprobs": None, "finish_reason": finish_reason}
        return b"%b%b]%b" % (self._start, to_json(choice), self._end_json)

    @property
    def _end_json(self) -> bytes:
        """The JSON after a chunk's choices."""
        if self._usage is None:
            return self._no_usage
        return b',"usage":%b}\n\n' % to_json(self._usage.total)


def error_chunk(error: RequestError) -> bytes:
    """The last chunk of a stream that broke off."""
    return b"data: %b\n\n" % to_json(openai_error(error))


def whole_answer(
    shape: Shape, head: Head, answers: Sequence[Accumulator], num_choices: int
) -> dict[str, object]:
    """All choices in one object, `num_choices` in a row for each prompt.

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
    """The counts of all choices together; each prompt is counted from its first choice."""
    return total_usage({number: end.usage for number, end in enumerate(ends)}, num_choices)
