"""What a client was given of an answer: another agent goes on after that.

Tokens are only counted, since every one comes by. What the next agent tells again is left out.
The text is kept for agents that go on by that, as long as it is plain text.
"""

from array import array
from collections.abc import Iterable
from dataclasses import replace
from io import StringIO
from typing import Self

from ....shared.continuation import MAX_BYTES, MAX_TEXT, Continuation
from ....shared.inference import (
    Begun,
    Event,
    Notice,
    Token,
    TokenKind,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from ....shared.messages import Called, CallStarted, Noticed, PromptRead
from .notices import Notices

Told = CallStarted | Called | Noticed | PromptRead
"""What an agent sends of an answer or about it, besides its pieces and its end."""

TellEvent = ToolCallStarted | ToolCall | Notice | Begun

MAX_TOKENS = MAX_BYTES // 4
"""Tokens of an answer that are kept; a longer one cannot move."""


class Delivered:
    """The ids of an answer's tokens, how much of what they gave was delivered, and what was told.

    Once it is not `is_whole`, no agent can go on.
    """

    __slots__ = (
        "_begun",
        "_notices",
        "_text",
        "_tokens",
        "is_whole",
        "num_calls",
        "num_calls_started",
        "num_characters",
        "num_log_probs",
        "num_prompt_characters",
        "num_prompt_log_probs",
    )

    def __init__(self) -> None:
        self._tokens = array("I")
        self._text: StringIO | None = None
        self._begun: Begun | None = None
        self._notices = Notices()
        self.is_whole = True
        self.num_characters = 0
        self.num_prompt_characters = 0
        self.num_prompt_log_probs = 0
        self.num_log_probs = 0
        self.num_calls_started = 0
        self.num_calls = 0

    @classmethod
    def after(cls, events: Iterable[Event]) -> Self:
        """Where a client was given these: what an earlier run of the balancer delivered."""
        delivered = cls()
        delivered.keep_text()
        for event in events:
            delivered._count(event)
        return delivered

    def _count(self, event: Event) -> None:
        match event:
            case Token():
                self.add(event)
            case ToolCallStarted():
                self.num_calls_started += 1
            case ToolCall():
                self.num_calls += 1
            case Begun():
                self._begun = event
            case Notice():
                self._notices.is_new(event)

    @property
    def has_begun(self) -> bool:
        """Whether anything of the answer was delivered: text or a call."""
        return self.has_answer or self.num_prompt_characters > 0

    @property
    def has_answer(self) -> bool:
        """The same, of what comes after the prompt."""
        return bool(self.num_tokens or self.num_characters or self.num_calls_started)

    def keep_text(self) -> None:
        """Agents may have to go on by text; from the beginning on, or not at all."""
        if self._text is None and not self.has_begun:
            self._text = StringIO(newline="")

    def drop_text(self) -> None:
        """No agent can go on by text."""
        self._text = None

    @property
    def has_text(self) -> bool:
        """Whether all that was delivered is text of the answer, and kept."""
        return self._text is not None and not (self.num_calls_started or self.num_calls)

    @property
    def num_tokens(self) -> int:
        """How many ids are kept."""
        return len(self._tokens)

    def add(self, token: Token) -> None:
        """A piece of the answer, or of the prompt before it."""
        text, kind, ids, log_probs = token
        if kind == "prompt":
            self.num_prompt_characters += len(text)
            self.num_prompt_log_probs += len(log_probs)
            return
        self.num_characters += len(text)
        if self._text is not None:
            self._add_text(self._text, text, kind)
        if log_probs:
            self.num_log_probs += len(log_probs)
        try:
            self._tokens.extend(ids)
        except OverflowError:
            self._give_up()
        if len(self._tokens) > MAX_TOKENS:
            self._give_up()

    def _add_text(self, kept: StringIO, text: str, kind: TokenKind) -> None:
        if kind == "content" and self.num_characters <= MAX_TEXT:
            kept.write(text)
        else:
            self._text = None

    def event_of(self, item: Told) -> TellEvent | None:
        """What the client gets of `item`; `None` if it was told the same before."""
        match item:
            case CallStarted():
                self.num_calls_started += 1
                return ToolCallStarted(item.call_id, item.name)
            case Called():
                self.num_calls += 1
                return ToolCall(item.call_id, item.name, item.arguments)
            case Noticed():
                notice = Notice(item.code, item.message)
                return notice if self._notices.is_new(notice) else None
            case PromptRead():
                cached = min(item.cached_tokens, item.prompt_tokens)
                return self._begin(Begun(item.prompt_tokens, cached))

    def _begin(self, begun: Begun) -> Begun | None:
        """Servers may count the prompt at the end: that is for the usage alone."""
        if self._begun is not None:
            return None
        self._begun = begun
        return None if self.has_answer else begun

    @property
    def last_notice(self) -> Notice | None:
        """To be told before the end: how many notices the client did not get, if any."""
        return self._notices.last

    def usage(self, num_tokens: int) -> Usage:
        """Of an answer that ends after `num_tokens`; its prompt counts once it was computed."""
        return self.as_told(Usage(completion_tokens=num_tokens))

    def as_told(self, usage: Usage) -> Usage:
        """With the prompt as the client heard of it first."""
        if self._begun is None:
            return usage
        return replace(
            usage,
            prompt_tokens=self._begun.prompt_tokens,
            cached_tokens=self._begun.cached_tokens,
        )

    def _give_up(self) -> None:
        """Nothing more is lost than that no other agent can go on; what comes is kept in vain."""
        self.is_whole = False
        self._tokens = array("I")

    @property
    def by_ids(self) -> Continuation | None:
        """Where another agent goes on by token ids.

        `None` if none can: the answer is too long, or has an id that no vocabulary has.
        """
        if not self.is_whole:
            return None
        return Continuation.after(
            self._tokens,
            num_characters=self.num_characters,
            num_prompt_characters=self.num_prompt_characters,
            num_prompt_log_probs=self.num_prompt_log_probs,
            num_log_probs=self.num_log_probs,
            num_calls_started=self.num_calls_started,
            num_calls=self.num_calls,
        )

    @property
    def by_text(self) -> Continuation | None:
        """Where another agent goes on by text; `None` if none can."""
        if self._text is None or not self.has_text or not self.is_whole:
            return None
        return Continuation(
            text=self._text.getvalue(),
            num_tokens=self.num_tokens,
            num_characters=self.num_characters,
            num_log_probs=self.num_log_probs,
        )
