"""One answer's content, reasoning and calls: text and tokens in, items for the balancer out.

Invariants: every token is in exactly one `Piece`; a step's tokens are in its first one. Between a
`CallStarted` and its `Called` come that call's arguments and nothing else. Every call that started
is `Called`, unless the answer is cancelled.
"""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

from ....shared.errors import shortened
from ....shared.inference import RequestId, TokenKind, TokenLogProbs
from ....shared.messages import MAX_NAME, MAX_WORDS, Called, CallStarted, Item, Noticed, Piece
from ...chat.calls.segments import CallBegan, CallEnded, Segment, TextSegment
from ...chat.calls.tools import Tools
from ...chat.output.attribution import Attribution
from ...chat.output.reasoning_count import ReasoningCount
from ...chat.output.transcript import Gain
from ...chat.parsing.segmenter import Segmenter
from .prepared import Reading

_ID_CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 9
"""Mistral's templates refuse a conversation with a call whose id is of another length."""


class Utterance:
    """The answer to the request `id`; without a `reading` all of it is content."""

    def __init__(
        self, id: RequestId, reading: Reading | None, attribution: Attribution | None = None
    ) -> None:
        """`attribution` gets the tokens before `take` does; `None` without log-probabilities."""
        self._id = id
        self._attribution = attribution
        self._tools = Tools(())
        self._segmenter: Segmenter | None = None
        if reading is not None:
            self._tools = reading.tools or self._tools
            self._segmenter = Segmenter(
                reading.family, is_thinking=reading.is_thinking, tools=reading.tools
            )
        self._call: CallStarted | None = None
        self._arguments: list[str] = []
        self._reasoning = ReasoningCount()
        self._tokens: tuple[int, ...] = ()
        """Tokens of the present step that are in no piece yet."""
        self.num_calls = 0

    def take(self, gain: Gain) -> list[Item]:
        """The items of one step's text and tokens."""
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
        """What was held back; to be called at the end of the answer."""
        return self._items(self._segmenter.flush()) if self._segmenter else []

    def rest(self) -> list[Item]:
        """Log-probabilities of tokens after the last character, unless a stop string cut it."""
        if self._attribution is None or not (log_probs := self._attribution.rest()):
            return []
        return [Piece(id=self._id, text="", kind=self._kind, log_probs=log_probs)]

    @property
    def num_reasoning_tokens(self) -> int:
        """How many of the tokens so far went into reasoning, its markers included."""
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
        """The log-probabilities of the tokens of text that is sent."""
        if self._attribution is None:
            return None
        return self._attribution.leave(len(raw), is_shown=True) or None

    def _hide(self, segment: Segment) -> None:
        if self._attribution is not None:
            self._attribution.leave(len(segment.raw), is_shown=False)

    def _claim_tokens(self) -> tuple[int, ...]:
        """The step's tokens, for its first piece; empty after that."""
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
            raise RuntimeError("a call ended that did not begin")
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
