"""Simulated prompts as messages: of one session, a longer one begins as a shorter one."""

from arriero.shared.inference import ChatMessage, GenerateRequest
from bench.simulation.arrivals import Arrival
from bench.simulation.fluid_host import TOKEN_BYTES

PART = 512
"""Tokens of a message; so what a session had before is a chain of whole ones."""

_FILLER = "the llama goes on over the pass with salt and wool " * 4000


def chat_of(arrival: Arrival, part: int = PART) -> GenerateRequest:
    """The request, in messages of `part` tokens."""
    return GenerateRequest(messages=messages_of(arrival, part), max_tokens=arrival.num_answer)


def messages_of(arrival: Arrival, part: int = PART) -> tuple[ChatMessage, ...]:
    """A document, then the session's text."""
    messages = []
    if arrival.num_shared:
        messages.append(_message("system", f"document {arrival.document}", arrival.num_shared))
    left = arrival.num_prompt - arrival.num_shared
    while left > 0:
        size = min(left, part)
        messages.append(_message("user", f"{arrival.session} {len(messages)}", size))
        left -= size
    return tuple(messages)


def _message(role: str, name: str, num_tokens: int) -> ChatMessage:
    text = f"{name} " + _FILLER[: max(0, num_tokens * TOKEN_BYTES - len(name) - 1)]
    return ChatMessage(role=role, content=text)  # type: ignore[arg-type]
