"""One running request's answer: the engine's outputs in, items for the balancer out.

Invariants of an `Answer`: `take` and `cancel` return at most one end and are not called after the
end. Invariants of its `Turn`, which separates content, reasoning and calls: every token is in
exactly one `Piece`, the first piece of its step. Between a `CallStarted` and its `Called` there
are only that call's arguments. Every call that started is `Called`, unless the answer is
cancelled.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, assert_never

from ....shared.errors import RequestError, shortened, to_wire
from ....shared.inference import (
    FinishReason,
    LogProb,
    Notice,
    Rates,
    RequestId,
    TokenKind,
    TokenLogProbs,
    Usage,
    rate_of,
)
from ....shared.messages import (
    MAX_NAME,
    MAX_WORDS,
    Called,
    CallStarted,
    Ended,
    Item,
    Noticed,
    Piece,
    PromptProgress,
    PromptRead,
    Refused,
)
from ...chat.output.attribution import Attribution, ReasoningCount, with_bytes
from ...chat.output.transcript import Detokenizer, Gain, Transcript
from ...chat.parsing.schema_check import find_mismatch
from ...chat.parsing.segmenter import Segmenter
from ...chat.parsing.segments import CallBegan, CallEnded, Segment, TextSegment
from ...chat.parsing.tools import Tools
from ...engine.sampling.log_probs import LEAST, LogProbs
from ...engine.sequence import SequenceEnd, SequenceOutput, SequenceStats
from .delivered import Delivered, MiscountError
from .prepared import Parsing, Prepared


@dataclass(frozen=True, slots=True)
class EchoPart:
    """A part of the prompt."""

    text: str
    log_probs: tuple[TokenLogProbs, ...]


class EchoWriter:
    """Echoes one `prompt` to the client, with the log-probabilities of its tokens.

    If the client gave `text`, the text is echoed unchanged. `piece` returns a token's bytes.
    Invariant: every token of the prompt is sent once, in order, and the texts joined are the
    prompt.
    """

    def __init__(
        self, prompt: Sequence[int], text: str | None, piece: Callable[[int], bytes]
    ) -> None:
        self._first: int | None = prompt[0]
        self._text = text
        self._piece = piece
        self._detokenizer = Detokenizer(piece)

    def push(self, log_probs: Sequence[LogProbs]) -> EchoPart | None:
        """Return the next part, given the log-probabilities of its tokens; `None` if it is empty.

        The first token of the prompt has no log-probability.
        """
        entries = [with_bytes(each, self._piece) for each in log_probs]
        if self._first is not None:
            entries.insert(0, TokenLogProbs(LogProb(self._first, self._piece(self._first))))
            self._first = None
        if not entries:
            return None
        return EchoPart(self._next_text([each.chosen.token for each in entries]), tuple(entries))

    def _next_text(self, tokens: Sequence[int]) -> str:
        if self._text is None:
            return self._detokenizer.push(tokens)
        text, self._text = self._text, ""
        return text


class Answer:
    """The answer to the request `id`. `piece` returns a token's bytes."""

    def __init__(
        self,
        id: RequestId,
        prepared: Prepared,
        piece: Callable[[int], bytes],
        *,
        delivered: Delivered | None = None,
    ) -> None:
        """Begin the answer. Items that another agent `delivered` will not be returned again."""
        self._id = id
        self._delivered = delivered
        """The counts that another agent delivered, until all counted items were produced again."""
        self._num_prompt_tokens = len(prepared.sequence.prompt)
        self._num_more = prepared.num_more
        self._stats: SequenceStats | None = None
        """The last counts from the engine; `_num_since` further tokens came after these counts."""
        self._num_since = 0
        self._decode_seconds: float | None = None
        piece = _showing(piece, prepared.parsing)
        self._transcript = Transcript(piece, prepared.stop)
        is_explained = prepared.sequence.sampling.top_log_probs is not None
        self._attribution = Attribution(piece) if is_explained else None
        # After a token all of the prompt was sent.
        is_echoed = delivered is not None and delivered.tokens > 0
        self._echo = None if is_echoed else _echo_writer(prepared, piece)
        self._explains_end = prepared.echo is not None
        self._piece = piece
        self._turn = Turn(id, prepared.parsing, self._attribution)
        self._content = None if prepared.schema is None else Content(id, prepared.schema)
        self._has_begun = False
        self.is_over = False

    def replay(self, tokens: Sequence[int]) -> list[Item]:
        """Pass `tokens` that another agent generated through the answer; return the new items.

        The log-probabilities of these tokens are not known. Raises `MiscountError` if the tokens
        do not match the counts delivered, or do not fit the answer.
        """
        gain = self._transcript.push(tokens)
        if len(gain.tokens) < len(tokens):
            raise MiscountError(f"it ends before its token {self._transcript.num_tokens + 1}")
        if self._attribution is not None:
            self._attribution.push(gain.ends, [LogProbs(token, LEAST) for token in tokens])
        items = self._turn.take(gain)
        if self._transcript.is_stopped:
            items += [*self._turn.flush(), self._ended("stop", None)]
        return self._new(self._checked(items))

    @property
    def is_past_delivered(self) -> bool:
        """Return whether all delivered items of the answer were produced again."""
        return self._delivered is None or self._delivered.is_answer_past

    def would_be_past_delivered(self) -> bool:
        """Return whether `is_past_delivered` would hold if the answer ended here.

        Call this last, because it ends the answer. The end itself can be missing while a save is
        written.
        """
        if not self.is_over:
            self._new([*self._flush(), *self._turn.rest()])
        if self._delivered is not None and self._explains_end:
            self._delivered.log_probs = max(0, self._delivered.log_probs - 1)
        return self.is_past_delivered

    @property
    def is_explained(self) -> bool:
        """Return whether the log-probabilities of all tokens so far were sent."""
        return self._attribution is None or self._attribution.is_settled

    def take(self, output: SequenceOutput) -> list[Item]:
        """Return the new items of one step."""
        if output.num_read is not None:
            return self._progress(output.num_read, output.stats)
        items = self._checked(self._taken(output))
        return items if self._delivered is None else self._new(items)

    def _checked(self, items: list[Item]) -> list[Item]:
        return items if self._content is None else self._content.checked(items)

    def _new(self, items: list[Item]) -> list[Item]:
        """Return the items of `items` that were not delivered yet."""
        if self._delivered is None:
            return items
        items = self._delivered.beyond(items)
        if self._delivered.is_past:
            self._delivered = None
        return items

    def _taken(self, output: SequenceOutput) -> list[Item]:
        self._count(output)
        items: list[Item] = [noticed(self._id, notice) for notice in output.notices]
        if self._echo is not None:
            items += self._echoed(self._echo, output)
        if not self._has_begun:
            items += self._begun(output)
        gain = self._transcript.push(output.tokens)
        if self._attribution is not None:
            self._attribution.push(gain.ends, output.log_probs)
        items += self._turn.take(gain)
        if self._transcript.is_stopped:
            items += self._turn.flush()
            items.append(self._ended("stop", output.end))
        elif output.end is not None:
            items += self._end(output.end, output)
        return items

    def _counts(self) -> SequenceStats | None:
        """Return the engine's counts so far; `None` before its first counts."""
        if self._stats is None:
            return None
        num_tokens = self._stats.completion_tokens + self._num_since
        return replace(
            self._stats, completion_tokens=num_tokens, decode_seconds=self._decode_seconds
        )

    def _count(self, output: SequenceOutput) -> None:
        """Take the counts of `output`. If it has no counts, count its tokens.

        Programs that score texts generate one token and read the last value.
        """
        stats = output.stats if output.end is None else output.end.stats
        if stats is not None:
            self._stats, self._num_since = stats, 0
            self._decode_seconds = stats.decode_seconds
        elif output.tokens:
            self._num_since += len(output.tokens)
            self._decode_seconds = output.decode_seconds

    def cancel(self) -> Ended:
        """End the answer early, with the tokens generated so far."""
        return self._ended("cancelled", None)

    def _end(self, end: SequenceEnd, output: SequenceOutput) -> list[Item]:
        if isinstance(end.reason, RequestError):
            self.is_over = True
            return [Refused(id=self._id, error=to_wire(end.reason))]
        return [
            *self._flush(),
            *self._turn.rest(),
            *self._end_token(output),
            self._ended(end.reason, end),
        ]

    def _flush(self) -> list[Item]:
        """Return the items held back; the answer is over."""
        return [*self._turn.take(self._transcript.flush()), *self._turn.flush()]

    def _progress(self, num_read: int, stats: SequenceStats | None) -> list[Item]:
        num_tokens = self._num_prompt_tokens
        return [
            PromptProgress(
                id=self._id,
                prompt_tokens=num_tokens,
                read_tokens=min(num_read, num_tokens),
                cached_tokens=min(num_read, 0 if stats is None else stats.cached_tokens),
            )
        ]

    def _begun(self, output: SequenceOutput) -> list[Item]:
        """Return the `PromptRead` item once the engine has reported the number of cached tokens."""
        has_failed = output.end is not None and isinstance(output.end.reason, RequestError)
        if self._stats is None or has_failed:
            return []
        self._has_begun = True
        return [
            PromptRead(
                id=self._id,
                prompt_tokens=self._num_prompt_tokens,
                cached_tokens=self._stats.cached_tokens,
            )
        ]

    def _echoed(self, echo: EchoWriter, output: SequenceOutput) -> list[Item]:
        part = echo.push(output.prompt_log_probs)
        if part is None:
            return []
        return [Piece(id=self._id, text=part.text, kind="prompt", log_probs=part.log_probs)]

    def _end_token(self, output: SequenceOutput) -> list[Item]:
        """Return the log-probability of the answer's end token, for `prompt_logprobs`.

        Programs that score texts generate one token and read the last value.
        """
        explained = output.log_probs[len(output.tokens) :]
        if not self._explains_end or not explained:
            return []
        entries = tuple(with_bytes(each, self._piece) for each in explained)
        return [Piece(id=self._id, text="", log_probs=entries)]

    def _ended(self, reason: FinishReason, end: SequenceEnd | None) -> Ended:
        self.is_over = True
        if reason == "stop" and self._turn.num_calls:
            reason = "tool_calls"
        usage = Usage(
            prompt_tokens=self._num_prompt_tokens,
            cached_tokens=0 if self._stats is None else self._stats.cached_tokens,
            completion_tokens=max(0, self._transcript.num_tokens + self._num_more),
            reasoning_tokens=self._turn.num_reasoning_tokens,
        )
        return Ended(
            id=self._id,
            finish_reason=reason,
            stop_string=self._transcript.stop_string,
            usage=usage,
            rates=rates(self._counts(), has_end_token=end is not None and end.reason == "stop"),
        )


def _showing(piece: Callable[[int], bytes], parsing: Parsing | None) -> Callable[[int], bytes]:
    """Return `piece`, changed to return texts for the control tokens that the parser needs."""
    if parsing is None or not parsing.shown:
        return piece
    shown = parsing.shown
    return lambda token: shown.get(token) or piece(token)


def _echo_writer(prepared: Prepared, piece: Callable[[int], bytes]) -> EchoWriter | None:
    if prepared.echo is None:
        return None
    return EchoWriter(prepared.sequence.prompt.tokens, prepared.echo.text, piece)


def noticed(id: RequestId, notice: Notice) -> Noticed:
    """Return `notice` as an item of the request `id`."""
    return Noticed(id=id, code=notice.code, message=shortened(notice.message, MAX_WORDS))


def rates(stats: SequenceStats | None, *, has_end_token: bool) -> Rates:
    """Return tokens per second by the scheduler's clock; `None` for a phase without steps.

    The first token comes from the last prefill step. An end-of-generation token takes a step but
    is no completion token.
    """
    if stats is None:
        return Rates()
    num_unseen = 1 if has_end_token else 0
    return Rates(
        prefill_tokens_per_second=rate_of(stats.prefill_tokens, stats.prefill_seconds),
        decode_tokens_per_second=rate_of(
            stats.completion_tokens - 1 + num_unseen, stats.decode_seconds
        ),
    )


class Content:
    """Collects the content of an answer, and checks it against a schema at the end."""

    def __init__(self, id: RequestId, schema: Mapping[str, Any]) -> None:
        self._id = id
        self._schema = schema
        self._texts: list[str] = []

    def checked(self, items: list[Item]) -> list[Item]:
        """Return `items`, with a notice before the end if the content does not match the schema."""
        self._texts += [
            item.text for item in items if isinstance(item, Piece) and item.kind == "content"
        ]
        last = items[-1] if items else None
        if not isinstance(last, Ended) or last.finish_reason != "stop":
            return items
        finding = _mismatch("".join(self._texts), self._schema)
        if finding is None:
            return items
        message = shortened(f"the answer does not match the schema: {finding}", MAX_WORDS)
        notice = Noticed(id=self._id, code="schema_mismatch", message=message)
        return [*items[:-1], notice, last]


def _mismatch(text: str, schema: Mapping[str, Any]) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "it is not valid JSON"
    found = find_mismatch(value, schema)
    return None if found is None else f"`{found.place or 'the value'}` {found.finding}"


# ---- content, reasoning and calls

_ID_CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 9
"""Length of call ids, which Mistral's templates demand."""


class Turn:
    """Turns the text of the request `id` into items; without a `parsing`, all text is content."""

    def __init__(
        self, id: RequestId, parsing: Parsing | None, attribution: Attribution | None = None
    ) -> None:
        """Begin an empty answer. Without an `attribution`, items get no log-probabilities.

        The caller must pass tokens to `attribution` before `take`.
        """
        self._id = id
        self._attribution = attribution
        self._tools = Tools(())
        self._segmenter: Segmenter | None = None
        if parsing is not None:
            self._tools = parsing.tools or self._tools
            self._segmenter = Segmenter(
                parsing.family, is_thinking=parsing.is_thinking, tools=parsing.tools
            )
        self._call: CallStarted | None = None
        self._arguments: list[str] = []
        self._reasoning = ReasoningCount()
        self._tokens: tuple[int, ...] = ()
        """Tokens of the current step that were not added to a piece yet."""
        self.num_calls = 0

    def take(self, gain: Gain) -> list[Item]:
        """Return the items for one step's text and tokens."""
        if self._segmenter is None:
            return self._plain(gain)
        self._reasoning.push(gain.ends)
        self._tokens = gain.tokens
        items = self._items(self._segmenter.push(gain.text))
        if not self._tokens:
            return items
        # These tokens give no text, but they are progress.
        return [Piece(id=self._id, text="", kind=self._kind, tokens=self._claim_tokens()), *items]

    def flush(self) -> list[Item]:
        """Return the items held back; call this at the end of the answer."""
        return self._items(self._segmenter.flush()) if self._segmenter else []

    def rest(self) -> list[Item]:
        """Return the log-probabilities of tokens after the last character.

        The result is empty if a stop string cut the answer.
        """
        if self._attribution is None or not (log_probs := self._attribution.rest()):
            return []
        return [Piece(id=self._id, text="", kind=self._kind, log_probs=log_probs)]

    @property
    def num_reasoning_tokens(self) -> int:
        """The number of reasoning tokens so far, including the markers of reasoning."""
        return self._reasoning.total(is_reasoning=self._kind == "reasoning")

    @property
    def _kind(self) -> TokenKind:
        return self._segmenter.kind if self._segmenter else "content"

    def _plain(self, gain: Gain) -> list[Item]:
        if not gain.text and not gain.tokens:
            return []
        log_probs = self._show(gain.text)
        return [Piece(id=self._id, text=gain.text, tokens=gain.tokens, log_probs=log_probs)]

    def _show(self, raw: str) -> tuple[TokenLogProbs, ...] | None:
        """Return the log-probabilities of the tokens in a text that is sent."""
        if self._attribution is None:
            return None
        return self._attribution.leave(len(raw), is_shown=True) or None

    def _hide(self, segment: Segment) -> None:
        if self._attribution is not None:
            self._attribution.leave(len(segment.raw), is_shown=False)

    def _claim_tokens(self) -> tuple[int, ...]:
        """Return the step's tokens for its first piece; empty for later pieces."""
        tokens, self._tokens = self._tokens, ()
        return tokens

    def _items(self, segments: Iterable[Segment]) -> list[Item]:
        items: list[Item] = []
        for segment in segments:
            is_reasoning = isinstance(segment, TextSegment) and segment.is_reasoning
            self._reasoning.leave(len(segment.raw), is_reasoning=is_reasoning)
            match segment:
                case TextSegment():
                    self._say(segment, items)
                case CallBegan():
                    self._hide(segment)
                    items.append(self._begin(segment))
                case CallEnded():
                    self._hide(segment)
                    items += self._end()
                case _:
                    assert_never(segment)
        return items

    def _say(self, said: TextSegment, items: list[Item]) -> None:
        if said.kind == "markup" or not said.text:
            self._hide(said)
            return
        log_probs = self._show(said.raw)
        if said.kind == "tool_call":
            self._arguments.append(said.text)
        last = items[-1] if items else None
        if isinstance(last, Piece) and last.kind == said.kind:
            both = ((last.log_probs or ()) + (log_probs or ())) or None
            items[-1] = replace(last, text=last.text + said.text, log_probs=both)
        else:
            tokens = self._claim_tokens()
            items.append(
                Piece(
                    id=self._id, text=said.text, kind=said.kind, tokens=tokens, log_probs=log_probs
                )
            )

    def _begin(self, began: CallBegan) -> CallStarted:
        call_id = shortened(began.id or _call_id(self._id, self.num_calls), MAX_NAME)
        self.num_calls += 1
        self._arguments.clear()
        self._call = CallStarted(id=self._id, call_id=call_id, name=shortened(began.name, MAX_NAME))
        return self._call

    def _end(self) -> list[Item]:
        if self._call is None:
            raise RuntimeError("a call ended before it began")
        call, self._call = self._call, None
        arguments = "".join(self._arguments)
        items: list[Item] = [
            Called(id=self._id, call_id=call.call_id, name=call.name, arguments=arguments)
        ]
        if complaint := self._tools.complaint(call.name, arguments):
            message = shortened(f"call {call.call_id}: {complaint}", MAX_WORDS)
            items.append(Noticed(id=self._id, code="tool_call_mismatch", message=message))
        return items


def _call_id(id: RequestId, number: int) -> str:
    value = int.from_bytes(sha256(f"{id}:{number}".encode()).digest())
    characters = []
    for _ in range(_ID_LENGTH):
        value, digit = divmod(value, len(_ID_CHARACTERS))
        characters.append(_ID_CHARACTERS[digit])
    return "".join(characters)
