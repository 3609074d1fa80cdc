"""One request's answer: the parts that its client got, and the limits on its agent's messages.

If the request moves to another agent, that agent continues after the delivered part. For this the
balancer keeps the ids of all delivered tokens, and the text too if an agent may need it. Notices
that the next agent repeats are not delivered again.

A `Claim` bounds the items that an agent may send for a request: it rejects more tokens than the
request allows, and parts of an answer in an impossible order.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from io import StringIO
from typing import Self, assert_never

from ....shared.continuation import MAX_BYTES, MAX_TEXT, Continuation
from ....shared.inference import (
    MAX_COUNT,
    Begun,
    Event,
    GenerateRequest,
    Notice,
    Token,
    TokenKind,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from ....shared.messages import (
    MAX_PIECE_TEXT,
    Called,
    CallStarted,
    Ended,
    Item,
    Noticed,
    Piece,
    PromptProgress,
    PromptRead,
)
from ....shared.reports.model_info import ModelInfo
from ..bad_messages import BadMessage

MAX_NOTICES = 64
"""Maximum notices that the client of a request gets; one last notice counts the rest."""


class Notices:
    """The notices that a client got: each notice once, and at most `MAX_NOTICES`."""

    __slots__ = ("_delivered", "_num_left_out")

    def __init__(self) -> None:
        self._delivered: set[Notice] = set()
        self._num_left_out = 0

    def is_new(self, notice: Notice) -> bool:
        """Return whether the client still has to get the notice.

        The notice then counts as delivered.
        """
        if notice in self._delivered:
            return False
        if len(self._delivered) == MAX_NOTICES:
            self._num_left_out += 1
            return False
        self._delivered.add(notice)
        return True

    @property
    def last(self) -> Notice | None:
        """The notice to deliver before the end if notices were omitted; it gives their number."""
        if not self._num_left_out:
            return None
        message = f"the request has more than {MAX_NOTICES} notices; left out: {self._num_left_out}"
        return Notice("notices_left_out", message)


Reported = CallStarted | Called | Noticed | PromptRead
"""An agent's reports about an answer, other than its pieces and its end."""

ReportedEvent = ToolCallStarted | ToolCall | Notice | Begun

MAX_TOKENS = MAX_BYTES // 4
"""Maximum token ids that are kept of an answer; a longer answer cannot move."""


class Delivered:
    """The delivered part of an answer: token ids, lengths, calls and notices.

    If `is_whole` is false, token ids are missing and no other agent can continue the answer.
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
        """Return the record of an answer that another run of the balancer delivered as `events`."""
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
            case _:
                pass

    @property
    def has_begun(self) -> bool:
        """Whether a part of the answer was delivered: text or a call."""
        return self.has_answer or self.num_prompt_characters > 0

    @property
    def has_answer(self) -> bool:
        """Whether any part after the prompt was delivered."""
        return bool(self.num_tokens or self.num_characters or self.num_calls_started)

    def keep_text(self) -> None:
        """Keep the text of the answer, for agents that can continue only from text.

        Has no effect once the answer has begun.
        """
        if self._text is None and not self.has_begun:
            self._text = StringIO(newline="")

    def drop_text(self) -> None:
        """Delete the kept text, because no agent will continue from text."""
        self._text = None

    @property
    def has_text(self) -> bool:
        """Whether the text of the whole delivered answer is kept, and the answer has no calls."""
        return self._text is not None and not (self.num_calls_started or self.num_calls)

    @property
    def num_tokens(self) -> int:
        """The number of kept token ids."""
        return len(self._tokens)

    def add(self, token: Token) -> None:
        """Count a delivered piece of the answer, or of the echoed prompt before the answer."""
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

    def event_of(self, item: Reported) -> ReportedEvent | None:
        """Return the event for `item` to deliver to the client.

        Returns `None` if the client has had the event.
        """
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
            case _:
                assert_never(item)

    def _begin(self, begun: Begun) -> Begun | None:
        """Return the event that the prompt was read.

        Returns `None` if the client has had the event, or if a server counted the prompt only
        after the answer had begun.
        """
        if self._begun is not None:
            return None
        self._begun = begun
        return None if self.has_answer else begun

    @property
    def last_notice(self) -> Notice | None:
        """The notice to deliver before the end if notices were omitted; it gives their number."""
        return self._notices.last

    @property
    def num_computed(self) -> int:
        """The number of prompt tokens that were computed, not cached; 0 if unknown."""
        begun = self._begun
        return 0 if begun is None else begun.prompt_tokens - begun.cached_tokens

    def usage(self, num_tokens: int) -> Usage:
        """Return the usage of an answer that ends after `num_tokens` tokens."""
        return self.as_delivered(Usage(completion_tokens=num_tokens))

    def as_delivered(self, usage: Usage) -> Usage:
        """Return `usage` with the counts of prompt tokens that the client was told first."""
        if self._begun is None:
            return usage
        return replace(
            usage,
            prompt_tokens=self._begun.prompt_tokens,
            cached_tokens=self._begun.cached_tokens,
        )

    def _give_up(self) -> None:
        """Drop the token ids, so that no other agent can continue. The answer itself goes on."""
        self.is_whole = False
        self._tokens = array("I")

    @property
    def by_ids(self) -> Continuation | None:
        """The continuation by token ids.

        `None` if no agent can continue: the answer is too long, or has an impossible id.
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
        """The continuation by text; `None` if no agent can continue."""
        if self._text is None or not self.has_text or not self.is_whole:
            return None
        return Continuation(
            text=self._text.getvalue(),
            num_tokens=self.num_tokens,
            num_characters=self.num_characters,
            num_log_probs=self.num_log_probs,
        )


SPARE = 64
"""Tokens that an agent may report beyond the allowed ones.

An agent may also count the tokens that end a part of the answer.
"""

SPARE_OF_SERVERS = 2**16
"""The same number for an upstream server, which may count tokens differently."""

ITEMS_A_TOKEN = 8
"""Maximum items that one token can cause: it may end a call, begin the next and give a notice."""

LONGEST_TOKEN = 1024
"""Default maximum characters of a token, if the model's facts name no maximum."""


MOST_PROGRESS = 2**16
"""Maximum reports of prompt progress of an agent for a request: one a second for 18 hours."""


@dataclass(slots=True)
class Claim:
    """The bounds on the items of one agent for a request, and counts of its items so far.

    `num_tokens` also counts the tokens that other agents sent earlier.
    """

    most_tokens: int = MAX_COUNT
    most_prompt: int = MAX_COUNT
    most_items: int = MAX_COUNT
    most_characters: int = MAX_COUNT
    may_echo: bool = False
    is_in_call: bool = False
    num_tokens: int = 0
    num_items: int = 0
    num_progress: int = 0
    num_characters: int = 0
    num_echoed: int = 0

    @classmethod
    def of(cls, request: GenerateRequest, model: ModelInfo | None, delivered: Delivered) -> "Claim":
        """Return the claim of an agent with `model` that begins or continues the request."""
        context = 0 if model is None or request.n_discard is not None else model.context_size
        is_servers = model is not None and model.upstream is not None
        spare = SPARE_OF_SERVERS if is_servers else SPARE
        most = min(request.max_tokens or MAX_COUNT, context or MAX_COUNT)
        most_tokens = max(most, delivered.num_tokens) + spare
        most_prompt = context + spare if context and not is_servers else MAX_COUNT
        may_echo = request.prompt_logprobs and not delivered.has_answer
        longest = max(0 if model is None else model.longest_token, LONGEST_TOKEN)
        return cls(
            most_tokens=most_tokens,
            most_prompt=most_prompt,
            most_items=ITEMS_A_TOKEN * (most_tokens + (most_prompt if may_echo else 0)),
            most_characters=most_tokens * longest,
            may_echo=may_echo,
            is_in_call=delivered.num_calls_started > delivered.num_calls,
            num_tokens=delivered.num_tokens,
        )

    def check(self, item: Item) -> None:
        """Count `item`. Raises `BadMessage` if the request cannot have such an item."""
        if isinstance(item, PromptProgress):
            self._check_progress(item)
            return
        self.num_items += 1
        match item:
            case Piece():
                self._check_piece(item)
            case Called():
                self.num_characters += len(item.arguments)
                self.is_in_call = False
            case PromptRead():
                self._check_prompt(item.prompt_tokens)
            case Ended(usage=usage):
                self._check_prompt(usage.prompt_tokens)
                self._check_tokens(usage.completion_tokens)
            case _:
                self.is_in_call = self.is_in_call or item.type == "call_started"
                self.may_echo = self.may_echo and item.type != "call_started"
        if self.num_items > self.most_items:
            raise BadMessage(f"more items for a request than {self.most_tokens} tokens can give")
        if self.num_characters > self.most_characters:
            raise BadMessage(f"more text for a request than {self.most_tokens} tokens can give")

    def _check_progress(self, item: PromptProgress) -> None:
        self._check_prompt(item.prompt_tokens)
        self.num_progress += 1
        if self.num_progress > MOST_PROGRESS:
            raise BadMessage(f"more than {MOST_PROGRESS} reports of how a prompt is read")

    def _check_piece(self, piece: Piece) -> None:
        if piece.kind == "prompt":
            self.num_echoed += len(piece.text)
            if not self.may_echo:
                raise BadMessage("a part of the prompt where none can come")
            if self.num_echoed > MAX_PIECE_TEXT:
                raise BadMessage(f"a prompt of more than {MAX_PIECE_TEXT} characters")
            return
        self.may_echo = False
        self.num_tokens += len(piece.tokens)
        self._check_tokens(self.num_tokens)
        if not (piece.text or piece.log_probs):
            return
        self.num_characters += len(piece.text)
        if piece.kind == "tool_call" and not self.is_in_call:
            raise BadMessage("a part of a call that did not begin")
        self.is_in_call = self.is_in_call and piece.kind == "tool_call"

    def _check_tokens(self, num: int) -> None:
        if num > self.most_tokens:
            raise BadMessage(f"{num} tokens for a request that can have {self.most_tokens}")

    def _check_prompt(self, num: int) -> None:
        if num > self.most_prompt:
            raise BadMessage(f"a prompt of {num} tokens where {self.most_prompt} fit")


def consistent(usage: Usage) -> Usage:
    """Return `usage` with cached and reasoning tokens limited to the tokens that exist."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    reasoning = min(usage.reasoning_tokens, usage.completion_tokens)
    if (cached, reasoning) == (usage.cached_tokens, usage.reasoning_tokens):
        return usage
    return replace(usage, cached_tokens=cached, reasoning_tokens=reasoning)
