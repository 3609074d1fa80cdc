"""Going on with an answer by its text, since servers take no token ids of it.

They get what was delivered as the beginning of the assistant's message, or behind the raw prompt,
and answer with the rest. Usage and `max_tokens` count both parts as one answer.
"""

from dataclasses import replace
from hashlib import blake2b

from ....shared.continuation import BY_TEXT, Continuation
from ....shared.inference import MAX_COUNT, ChatMessage, GenerateRequest, Notice, Usage
from ....shared.sampling import SAMPLERS
from .bodies import Server
from .dialects import Dialect
from .listing import ListedModel

_DIGEST_BYTES = 16
_COUNTING = ("frequency_penalty", "mirostat", "presence_penalty", "repeat_penalty")
"""The samplers that count what was said before."""


def fingerprint_of(server: Server, model: ListedModel) -> str | None:
    """What servers have in common that go on with each other's answers; `None`: this one cannot.

    That it is the same model is the claim of the operator, who gave both the same name.
    """
    needed = "continue_final_message" if "messages" in server.abilities else "prompt"
    if needed not in server.abilities:
        return None
    named = (model.id, model.root or "", str(model.context_size))
    parts = (server.dialect.kind, *named, *sorted(server.abilities))
    digest = blake2b("\n".join(parts).encode(), digest_size=_DIGEST_BYTES)
    return BY_TEXT + digest.hexdigest()


def notice_of(request: GenerateRequest, dialect: Dialect) -> Notice | None:
    """What the client hears where the server's sampling does not know what came before the seam."""
    values = {
        name: getattr(request, name) for name in _COUNTING if name not in dialect.prompt_penalties
    }
    anew = [name for name, value in values.items() if value not in (None, SAMPLERS[name].off)]
    if not anew:
        return None
    names = ", ".join(f"`{name}`" for name in anew)
    message = f"another server goes on with the answer; {names} do not count what came before"
    return Notice("resumed_anew", message)


class Rest:
    """The rest of the answer to `request`, after `continuation`.

    A chat template may drop the spaces at the end of a message, so they are not sent; where the
    server's text begins with them, they are left out.
    """

    def __init__(self, request: GenerateRequest, continuation: Continuation) -> None:
        text = continuation.text
        sent = text if request.messages is None else text.rstrip()
        self._spaces = text[len(sent) :]
        self._num_tokens = continuation.num_tokens
        self._num_sent = continuation.num_tokens if sent else 0
        self.is_empty = request.max_tokens is not None and request.max_tokens <= self._num_tokens
        """Whether the answer has all the tokens that it may have."""
        self.request = request if self.is_empty else self._shortened(_after(request, sent))
        """What asks for it."""

    def _shortened(self, request: GenerateRequest) -> GenerateRequest:
        most, least = request.max_tokens, request.min_tokens
        return replace(
            request,
            max_tokens=None if most is None else most - self._num_tokens,
            min_tokens=None if least is None else max(0, least - self._num_tokens),
        )

    def joined(self, text: str) -> str:
        """What is new of the server's next `text`."""
        while text and self._spaces and text[0] == self._spaces[0]:
            text, self._spaces = text[1:], self._spaces[1:]
        if text:
            self._spaces = ""
        return text

    def whole(self, usage: Usage) -> Usage:
        """The counts of the whole answer, where the server counts the rest alone."""
        prompt = max(0, usage.prompt_tokens - self._num_sent)
        return replace(
            usage,
            prompt_tokens=prompt,
            cached_tokens=min(usage.cached_tokens, prompt),
            completion_tokens=min(usage.completion_tokens + self._num_tokens, MAX_COUNT),
        )


def _after(request: GenerateRequest, text: str) -> GenerateRequest:
    if not text:
        return request
    if request.messages is None:
        return replace(request, prompt=f"{request.prompt}{text}")
    *before, last = request.messages
    if request.continue_final_message:
        messages = (*before, replace(last, content=last.text + text))
    else:
        messages = (*before, last, ChatMessage(role="assistant", content=text))
    return replace(request, messages=messages, continue_final_message=True)
