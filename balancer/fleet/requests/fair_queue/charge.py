"""What a request counts among its caller's: tokens, as far as they are known before it runs.

A prompt's text counts one token for every `CHARACTERS_PER_TOKEN`; the answer what it may have at
most, or `ASSUMED_ANSWER`. The cost of looking does not grow with the length of a text.
"""

from collections.abc import Sequence

from .....shared.inference import ChatMessage, GenerateRequest

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
"""What chat templates put around a message, about."""

TOKENS_PER_IMAGE = 576
"""What LLaVA takes for each picture; others take from a hundred to thousands."""

ASSUMED_ANSWER = 512
"""Tokens of an answer whose request names no `max_tokens`."""

LEAST = 16
"""Tokens that every request counts at least: a slot is taken and given even for one."""


def charge_of(request: GenerateRequest) -> int:
    """Tokens that `request` may take."""
    answer = ASSUMED_ANSWER if request.max_tokens is None else request.max_tokens
    prompt = _prompt_tokens(request)
    return max(prompt + (0 if request.prefill_only else answer), LEAST)


def charge_of_usage(num_prompt_tokens: int, num_answer_tokens: int) -> int:
    """Tokens that a request took."""
    return max(num_prompt_tokens + num_answer_tokens, LEAST)


def _prompt_tokens(request: GenerateRequest) -> int:
    if request.prompt is not None:
        return _tokens(request.prompt) + _tokens(request.suffix or "")
    messages = request.messages or ()
    return sum(map(_message_tokens, messages))


def _message_tokens(message: ChatMessage) -> int:
    text = _tokens_of(sum(map(len, message.texts)))
    return TOKENS_PER_MESSAGE + text + TOKENS_PER_IMAGE * len(message.images)


def _tokens(given: str | Sequence[int]) -> int:
    return _tokens_of(len(given)) if isinstance(given, str) else len(given)


def _tokens_of(num_characters: int) -> int:
    return -(-num_characters // CHARACTERS_PER_TOKEN)
