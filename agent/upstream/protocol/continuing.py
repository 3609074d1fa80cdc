"""Continues an answer by its text, since servers do not accept token ids.

The server gets the delivered part as the beginning of the assistant's message, or after the raw
prompt, and answers with the rest. Usage and `max_tokens` count both parts as one answer.
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
"""Samplers that take earlier tokens into account."""


def fingerprint_of(server: Server, model: ListedModel) -> str | None:
    """Return a fingerprint; servers with equal ones can continue each other's answers.

    Returns `None` if no server can. Two servers with the same model name are trusted to serve the
    same model: the operator named them.
    """
    needed = "continue_final_message" if "messages" in server.abilities else "prompt"
    if needed not in server.abilities:
        return None
    named = (model.id, model.root or "", str(model.context_size))
    parts = (server.dialect.kind, *named, *sorted(server.abilities))
    digest = blake2b("\n".join(parts).encode(), digest_size=_DIGEST_BYTES)
    return BY_TEXT + digest.hexdigest()


def notice_of(request: GenerateRequest, dialect: Dialect) -> Notice | None:
    """Return a notice if the server's penalties ignore the part generated before."""
    values = {
        name: getattr(request, name) for name in _COUNTING if name not in dialect.prompt_penalties
    }
    anew = [name for name, value in values.items() if value not in (None, SAMPLERS[name].off)]
    if not anew:
        return None
    names = ", ".join(f"`{name}`" for name in anew)
    message = f"another server continues the answer; {names} do not count the text before"
    return Notice("resumed_anew", message)


class Rest:
    """The rest of the answer to `request`, after `continuation`.

    A chat template may drop trailing spaces of a message, so they are not sent. If the server's
    text begins with these spaces, they are removed there.
    """

    def __init__(self, request: GenerateRequest, continuation: Continuation) -> None:
        text = continuation.text
        sent = text if request.messages is None else text.rstrip()
        self._spaces = text[len(sent) :]
        self._num_tokens = continuation.num_tokens
        self._num_sent = continuation.num_tokens if sent else 0
        self.is_empty = request.max_tokens is not None and request.max_tokens <= self._num_tokens
        """True if the answer already has its maximum tokens."""
        self.request = request if self.is_empty else self._shortened(_after(request, sent))
        """The request to send for the rest."""

    def _shortened(self, request: GenerateRequest) -> GenerateRequest:
        most, least = request.max_tokens, request.min_tokens
        return replace(
            request,
            max_tokens=None if most is None else most - self._num_tokens,
            min_tokens=None if least is None else max(0, least - self._num_tokens),
        )

    def joined(self, text: str) -> str:
        """Return the new part of the server's next `text`."""
        while text and self._spaces and text[0] == self._spaces[0]:
            text, self._spaces = text[1:], self._spaces[1:]
        if text:
            self._spaces = ""
        return text

    def whole(self, usage: Usage) -> Usage:
        """Return the counts of the whole answer, from the server's counts of the rest."""
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
