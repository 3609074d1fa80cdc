"""The part of an answer that the client has received, and limits on the agent's messages.

If a request moves to another agent, this agent continues after the delivered part. So the balancer
keeps the ids of all delivered tokens, and the text if an agent may need it. A notice that the next
agent repeats is not delivered again.

A `Claim` limits what an agent may send for a request. It rejects more tokens than the request
allows, and parts of an answer in an impossible order.
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
"""The maximum number of notices for a client. One last notice then counts the omitted ones."""


class Notices:
    """The notices that the client has received, each once and at most `MAX_NOTICES`."""

    __slots__ = ("_delivered", "_num_left_out")

    def __init__(self) -> None:
        self._delivered: set[Notice] = set()
        self._num_left_out = 0

    def is_new(self, notice: Notice) -> bool:
        """Return whether to deliver `notice` to the client.

        If the method returns true, the notice counts as delivered.
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
        """The notice that gives the number of omitted notices, to be delivered at the end."""
        if not self._num_left_out:
            return None
        message = f"the request has more than {MAX_NOTICES} notices; left out: {self._num_left_out}"
        return Notice("notices_left_out", message)


Reported = CallStarted | Called | Noticed | PromptRead
"""The reports of an agent about an answer, except texts and the end."""

ReportedEvent = ToolCallStarted | ToolCall | Notice | Begun

MAX_TOKENS = MAX_BYTES // 4
"""The maximum number of kept token ids. No other agent can continue a longer answer."""


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
        """Return the record of an answer whose `events` another run of the balancer delivered."""
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
        """Whether the client has received a part of the answer or of the echoed prompt."""
        return self.has_answer or self.num_prompt_characters > 0

    @property
    def has_answer(self) -> bool:
        """Whether the client has received a part of the answer itself: tokens, text or a call."""
        return bool(self.num_tokens or self.num_characters or self.num_calls_started)

    def keep_text(self) -> None:
        """Start keeping the text, because an agent may continue the answer from its text.

        Does nothing if the answer has begun.
        """
        if self._text is None and not self.has_begun:
            self._text = StringIO(newline="")

    def drop_text(self) -> None:
        """Delete the kept text, because no agent will continue the answer from its text."""
        self._text = None

    @property
    def has_text(self) -> bool:
        """Whether the text of the whole delivered part is kept and the answer has no calls."""
        return self._text is not None and not (self.num_calls_started or self.num_calls)

    @property
    def num_tokens(self) -> int:
        """The number of kept token ids."""
        return len(self._tokens)

    def add(self, token: Token) -> None:
        """Count a delivered token of the answer or of the echoed prompt."""
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
        """Return the event to deliver for `item`, or `None` if the client has the event."""
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
        """Return the event about the prompt's tokens to deliver, or `None`.

        Returns `None` if the client has received this event, or if a server counted the prompt
        after the answer had begun.
        """
        if self._begun is not None:
            return None
        self._begun = begun
        return None if self.has_answer else begun

    @property
    def last_notice(self) -> Notice | None:
        """The notice that gives the number of omitted notices, to be delivered at the end."""
        return self._notices.last

    @property
    def num_computed(self) -> int:
        """The number of prompt tokens that were computed and not cached; 0 if unknown."""
        begun = self._begun
        return 0 if begun is None else begun.prompt_tokens - begun.cached_tokens

    def usage(self, num_tokens: int) -> Usage:
        """Return the usage of an answer that ends after `num_tokens` tokens."""
        return self.as_delivered(Usage(completion_tokens=num_tokens))

    def as_delivered(self, usage: Usage) -> Usage:
        """Return `usage` with the prompt's token counts that the client received first."""
        if self._begun is None:
            return usage
        return replace(
            usage,
            prompt_tokens=self._begun.prompt_tokens,
            cached_tokens=self._begun.cached_tokens,
        )

    def _give_up(self) -> None:
        """Delete the token ids. The answer goes on, but no other agent can continue it."""
        self.is_whole = False
        self._tokens = array("I")

    @property
    def by_ids(self) -> Continuation | None:
        """The continuation by token ids, or `None` if no agent can continue.

        No agent can continue an answer that is too long or has an impossible id.
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
        """The continuation by text, or `None` if no agent can continue from the text."""
        if self._text is None or not self.has_text or not self.is_whole:
            return None
        return Continuation(
            text=self._text.getvalue(),
            num_tokens=self.num_tokens,
            num_characters=self.num_characters,
            num_log_probs=self.num_log_probs,
        )


SPARE = 64
"""The number of tokens that an agent may report above the allowed number.

An agent may also count the tokens that end a part of the answer.
"""

SPARE_OF_SERVERS = 2**16
"""The same number for an upstream server, which may count tokens in another way."""

ITEMS_A_TOKEN = 8
"""The maximum items for one token, which may end a call, begin a call and give a notice."""

LONGEST_TOKEN = 1024
"""The maximum characters of a token if the model's facts name no maximum."""


MOST_PROGRESS = 2**16
"""The maximum number of progress reports for one prompt: one a second for 18 hours."""


@dataclass(slots=True)
class Claim:
    """Counts the items that an agent has sent for a request, and limits them.

    `num_tokens` also counts the tokens that earlier agents sent.
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
        """Return the claim of an agent that begins `request` or continues it after `delivered`."""
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
        """Count `item`. Raises `BadMessage` if an honest agent cannot send such an item."""
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
    """Return `usage` with at most as many cached and reasoning tokens as tokens."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    reasoning = min(usage.reasoning_tokens, usage.completion_tokens)
    if (cached, reasoning) == (usage.cached_tokens, usage.reasoning_tokens):
        return usage
    return replace(usage, cached_tokens=cached, reasoning_tokens=reasoning)
