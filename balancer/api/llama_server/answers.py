"""Neutral events in llama-server's format: chunks of a stream, and whole answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, assert_never

from pydantic_core import to_json
from typing_extensions import TypedDict

from ....shared.inference import (
    Begun,
    Count,
    Done,
    Event,
    Failed,
    GenerateRequest,
    LogProb,
    Notice,
    Reading,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Waiting,
)
from ....shared.sampling import chosen
from ..common.accumulator import Accumulator
from ..common.log_probs import text_of
from ..common.rendering import Rendering
from ..openai.errors import openai_error
from ..transport.waiting import PromptProgress, comment, prompt_progress

StopType = Literal["none", "eos", "limit", "word"]


class TopProb(TypedDict):
    """A possible token. `bytes` may be a part of a character."""

    id: int
    token: str
    bytes: list[int]
    logprob: float | None


class TokenProb(TopProb):
    """The chosen token, and the most likely tokens at this position."""

    top_logprobs: list[TopProb]


class LlamaTimings(TypedDict):
    """Times of prompt and answer in milliseconds; null if unknown."""

    prompt_n: Count
    prompt_ms: float
    prompt_per_second: float | None
    predicted_n: Count
    predicted_ms: float
    predicted_per_second: float | None


class LlamaChunk(TypedDict):
    """A part of an answer. `id_slot` is always -1, because only agents know the slot."""

    index: Literal[0]
    content: str
    tokens: list[int]
    stop: bool
    id_slot: Literal[-1]
    tokens_predicted: Count
    tokens_evaluated: Count
    completion_probabilities: NotRequired[list[TokenProb]]
    prompt_progress: NotRequired[PromptProgress]


class LlamaAnswer(LlamaChunk):
    """A whole answer, or the last part of a stream, whose text is empty."""

    model: str
    generation_settings: Mapping[str, Any]
    has_new_line: bool
    truncated: Literal[False]
    stop_type: StopType
    stopping_word: str
    tokens_cached: Count
    timings: LlamaTimings


class CompletionAnswer(Rendering):
    """One answer: as server-sent events without a `[DONE]`, or as one object."""

    def __init__(
        self, request: GenerateRequest, model: str, *, has_tokens: bool, tells_progress: bool
    ) -> None:
        """Begin an answer. With `has_tokens` the whole answer has the ids of its tokens.

        With `tells_progress` the stream says how much of the prompt was read.
        """
        self._tells_progress = tells_progress
        self._request = request
        self._model = model
        self._has_tokens = has_tokens
        self._gathered = Accumulator()
        self._tokens: list[int] = []
        self._num_tokens = 0
        self._num_evaluated = 0
        self._has_new_line = False

    def render(self, event: Event, _number: int = 0, /) -> bytes:
        """Return the bytes for `event`; may be empty."""
        match event:
            case Token():
                self._count(event)
                return b"" if event.is_silent else _framed(self._part(event))
            case Begun():
                self._num_evaluated = event.prompt_tokens
                return b""
            case Reading() if self._tells_progress:
                part = self._part(Token(""))
                part["prompt_progress"] = prompt_progress(event)
                return _framed(part)
            case Waiting() | Reading():
                return comment(event)
            case Done():
                return _framed(self._last(event, "", []))
            case Failed():
                return _framed(openai_error(event.error))
            case Notice() | ToolCall() | ToolCallStarted():
                return b""
            case _:
                assert_never(event)

    def take(self, event: Event, _number: int = 0, /) -> None:
        """Collect `event` for the whole answer."""
        if isinstance(event, Token):
            self._count(event)
            self._tokens += event.tokens
        self._gathered.add(event)

    def whole(self) -> LlamaAnswer:
        """Return the whole answer."""
        tokens = self._tokens if self._has_tokens else []
        answer = self._last(self._gathered.done(), self._gathered.text(), tokens)
        if log_probs := self._gathered.log_probs():
            answer["completion_probabilities"] = _probs(log_probs)
        return answer

    def _count(self, token: Token) -> None:
        self._num_tokens += len(token.tokens)
        self._has_new_line = self._has_new_line or "\n" in token.text

    def _part(self, token: Token) -> LlamaChunk:
        part: LlamaChunk = {
            "index": 0,
            "content": token.text,
            "tokens": list(token.tokens),
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": self._num_tokens,
            "tokens_evaluated": self._num_evaluated,
        }
        if token.log_probs:
            part["completion_probabilities"] = _probs(token.log_probs)
        return part

    def _last(self, done: Done, text: str, tokens: list[int]) -> LlamaAnswer:
        usage = done.usage
        return {
            "index": 0,
            "content": text,
            "tokens": tokens,
            "stop": True,
            "id_slot": -1,
            "tokens_predicted": usage.completion_tokens,
            "tokens_evaluated": usage.prompt_tokens,
            "model": self._model,
            "generation_settings": _settings(self._request),
            "has_new_line": self._has_new_line,
            "truncated": False,
            "stop_type": _stop_type(done),
            "stopping_word": done.stop_string or "",
            "tokens_cached": usage.cached_tokens,
            "timings": _timings(done),
        }


def _framed(body: object) -> bytes:
    return b"data: %b\n\n" % to_json(body)


def _settings(request: GenerateRequest) -> Mapping[str, Any]:
    """Return the model's default settings, changed by the settings of the request."""
    most = -1 if request.max_tokens is None else request.max_tokens
    return {**chosen(request), "n_predict": most, "stream": request.stream}


def _stop_type(done: Done) -> StopType:
    if done.finish_reason == "length":
        return "limit"
    if done.finish_reason == "cancelled":
        return "none"
    return "eos" if done.stop_string is None else "word"


def _timings(done: Done) -> LlamaTimings:
    timings, usage = done.timings, done.usage
    begun = timings.total_ms if timings.first_token_ms is None else timings.first_token_ms
    return {
        "prompt_n": usage.prompt_tokens - usage.cached_tokens,
        "prompt_ms": max(0.0, begun - timings.queue_ms),
        "prompt_per_second": timings.prefill_tokens_per_second,
        "predicted_n": usage.completion_tokens,
        "predicted_ms": max(0.0, timings.total_ms - begun),
        "predicted_per_second": timings.decode_tokens_per_second,
    }


def _probs(log_probs: Sequence[TokenLogProbs]) -> list[TokenProb]:
    return [
        {**_prob(each.chosen), "top_logprobs": [_prob(top) for top in each.top]}
        for each in log_probs
    ]


def _prob(each: LogProb) -> TopProb:
    return {
        "id": each.token,
        "token": text_of(each),
        "bytes": list(each.piece),
        "logprob": each.log_prob,
    }
