"""What an agent may say of a request that it has: no more than could have come of that request.

The types of the messages bound each number. Here they are held against what was asked: the tokens
that were allowed, and the order in which the parts of an answer can come.
"""

from dataclasses import dataclass, replace

from ....shared.inference import MAX_COUNT, GenerateRequest, Usage
from ....shared.messages import MAX_PIECE_TEXT, Called, Ended, Item, Piece, PromptRead
from ....shared.reports.model_info import ModelInfo
from ..bad_messages import BadMessage
from .delivered import Delivered

SPARE = 64
"""Tokens beyond those that were allowed: agents may count what ends a part of an answer."""

SPARE_OF_SERVERS = 2**16
"""The same of servers, which count in their own ways."""

ITEMS_A_TOKEN = 8
"""One token may end a call, begin another and say a warning."""

LONGEST_TOKEN = 1024
"""Characters of a token, unless the model says that it has longer ones."""


@dataclass(slots=True)
class Claim:
    """What one agent may say of one request, and what it said so far.

    `num_tokens` counts the whole answer, of other agents before it, too.
    """

    most_tokens: int = MAX_COUNT
    most_prompt: int = MAX_COUNT
    most_items: int = MAX_COUNT
    most_characters: int = MAX_COUNT
    may_echo: bool = False
    is_in_call: bool = False
    num_tokens: int = 0
    num_items: int = 0
    num_characters: int = 0
    num_echoed: int = 0

    @classmethod
    def of(cls, request: GenerateRequest, model: ModelInfo | None, delivered: Delivered) -> "Claim":
        """That of an agent with `model` which begins a request, or goes on with it."""
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
        """Count it. Raises `BadMessage` for what cannot be true."""
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
    """`usage` with no more cached than there was, and no more thought than said."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    reasoning = min(usage.reasoning_tokens, usage.completion_tokens)
    if (cached, reasoning) == (usage.cached_tokens, usage.reasoning_tokens):
        return usage
    return replace(usage, cached_tokens=cached, reasoning_tokens=reasoning)
