"""What a request may cost in tokens, before anybody has tokenised it.

Token ids are counted. Of a text, every `BYTES_PER_TOKEN` bytes of UTF-8 count as one token: with
common vocabularies that is about right for English, a little more than it takes for code, and less
for most other scripts. What it really took counts at its end.
"""

from collections.abc import Iterable, Sequence

from pydantic_core import to_json

from ....shared.inference import ChatMessage, GenerateRequest
from ....shared.queries import Embed, Query, Rank
from .account import Demand

BYTES_PER_TOKEN = 4

TOKENS_PER_MESSAGE = 4
"""What chat templates put around a message, about."""

TOKENS_PER_IMAGE = 576
"""What LLaVA takes for each picture; others take from a hundred to thousands.

Of sounds half a minute takes as many, or less.
"""

ASSUMED_ANSWER = 1024
"""Tokens that are held for an answer whose request names no `max_tokens`."""


def demand_of(request: GenerateRequest, room: float) -> Demand:
    """What `request` asks for; prompt and answer together have at most `room` tokens."""
    prompt = _num_prompt_tokens(request)
    answer = ASSUMED_ANSWER if request.max_tokens is None else request.max_tokens
    if request.prefill_only:
        answer = 0
    elif request.n_discard is None:
        answer = int(min(answer, max(room - prompt, 1)))
    return Demand(
        num_prompt_tokens=prompt,
        num_answer_tokens=answer,
        has_max_tokens=request.max_tokens is not None,
    )


def demand_of_queries(queries: Sequence[Query]) -> Demand:
    """What a call asks for: tokenising, counting and the like cost neither requests nor tokens."""
    if not any(isinstance(each, Embed | Rank) for each in queries):
        return Demand(num_requests=0)
    return Demand(num_prompt_tokens=sum(map(_num_query_tokens, queries)))


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
