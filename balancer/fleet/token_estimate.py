"""Estimates the tokens of a request before it is tokenised.

The `Reservation` is held against the caller's limits until the request ends. It counts
`BYTES_PER_TOKEN` bytes of UTF-8 as one token, which is about right for English, a little high for
code, and low for most other scripts.

The charge is the weight of the request in the fair queue. It counts characters, so that its cost
does not grow with the text. Both estimates count token ids exactly, and both are replaced by the
real number of tokens when the request ends.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic_core import to_json

from ...shared.inference import ChatMessage, GenerateRequest
from ...shared.queries import Embed, Query, Rank

BYTES_PER_TOKEN = 4

TOKENS_PER_MESSAGE = 4
"""The approximate tokens that a chat template adds to a message."""

TOKENS_PER_IMAGE = 576
"""The tokens of a picture for LLaVA. Other models need a hundred to several thousand tokens.

Half a minute of sound needs about as many tokens.
"""

ASSUMED_ANSWER = 1024
"""The tokens that are reserved for an answer if the request has no `max_tokens`."""


CHARGED_ANSWER = 512
"""The tokens that count in the fair queue for such an answer."""

LEAST = 16
"""The minimum charge of a request in tokens, because even one token needs a slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The part of its caller's limits that a request may use.

    `num_prompt_tokens` and `num_answer_tokens` are upper estimates; without `max_tokens` the
    answer may be longer. If `num_requests` is 0, the reservation counts only as a running request.
    `num_copies` requests are admitted or refused together.
    """

    num_requests: int = 1
    num_prompt_tokens: int = 0
    num_answer_tokens: int = 0
    has_max_tokens: bool = False
    num_copies: int = 1

    @property
    def num_tokens(self) -> int:
        """The tokens of one copy's prompt and answer."""
        return self.num_prompt_tokens + self.num_answer_tokens


def reservation_of(request: GenerateRequest, room: float) -> Reservation:
    """Return the reservation of `request`; prompt and answer have at most `room` tokens."""
    prompt = _num_prompt_tokens(request)
    answer = ASSUMED_ANSWER if request.max_tokens is None else request.max_tokens
    if request.prefill_only:
        answer = 0
    elif request.n_discard is None:
        answer = int(min(answer, max(room - prompt, 1)))
    return Reservation(
        num_prompt_tokens=prompt,
        num_answer_tokens=answer,
        has_max_tokens=request.max_tokens is not None,
    )


def reservation_of_queries(queries: Sequence[Query]) -> Reservation:
    """Return the reservation of `queries`.

    Tokenising and counting tokens use neither requests nor tokens.
    """
    if not any(isinstance(each, Embed | Rank) for each in queries):
        return Reservation(num_requests=0)
    return Reservation(num_prompt_tokens=sum(map(_num_query_tokens, queries)))


def _num_query_tokens(query: Query) -> int:
    match query:
        case Embed(inputs=inputs):
            return sum(map(_num_input_tokens, inputs))
        case Rank(documents=documents):
            pairs = len(query.query.encode()) * len(documents) + _num_bytes(documents)
            return _tokens_of(pairs)
        case _:
            return 0


def _num_prompt_tokens(request: GenerateRequest) -> int:
    if request.prompt is not None:
        return _num_input_tokens(request.prompt) + _tokens_of(_num_bytes([request.suffix or ""]))
    messages = request.messages or ()
    num_bytes = sum(map(_num_message_bytes, messages))
    if request.tools:
        num_bytes += len(to_json(request.tools))
    num_media = sum(len(message.media) for message in messages)
    extra = TOKENS_PER_MESSAGE * len(messages) + TOKENS_PER_IMAGE * num_media
    return _tokens_of(num_bytes) + extra


def _num_message_bytes(message: ChatMessage) -> int:
    num_bytes = _num_bytes((*message.texts, message.reasoning_content or ""))
    return num_bytes + (len(to_json(message.tool_calls)) if message.tool_calls else 0)


def _num_input_tokens(text: str | Sequence[int]) -> int:
    return _tokens_of(_num_bytes([text])) if isinstance(text, str) else len(text)


def _num_bytes(texts: Iterable[str]) -> int:
    return sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in texts
    )


def _tokens_of(num_bytes: int) -> int:
    return -(-num_bytes // BYTES_PER_TOKEN)


# ---- the charge in the fair queue


def charge_of(request: GenerateRequest) -> int:
    """Return the estimated tokens of `request` for the fair queue."""
    answer = CHARGED_ANSWER if request.max_tokens is None else request.max_tokens
    prompt = _charged_prompt(request)
    return max(prompt + (0 if request.prefill_only else answer), LEAST)


def charge_of_usage(num_charged_prompt: int, num_answer_tokens: int) -> int:
    """Return the charge for the tokens that a request has really used."""
    return max(num_charged_prompt + num_answer_tokens, LEAST)


def _charged_prompt(request: GenerateRequest) -> int:
    if request.prompt is not None:
        return _charged(request.prompt) + _charged(request.suffix or "")
    messages = request.messages or ()
    return sum(map(_charged_message, messages))


def _charged_message(message: ChatMessage) -> int:
    text = _tokens_of(sum(map(len, message.texts)))
    return TOKENS_PER_MESSAGE + text + TOKENS_PER_IMAGE * len(message.images)


def _charged(given: str | Sequence[int]) -> int:
    return _tokens_of(len(given)) if isinstance(given, str) else len(given)
