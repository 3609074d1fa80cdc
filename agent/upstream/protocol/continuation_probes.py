"""Whether a server goes on with an answer that it is given, found out by its effect.

It answers a question without chance; then it gets the first half of its answer, and should say the
second. A server that takes the half for a finished message begins a new one. Both answers are
streamed, as those to requests are: some servers repeat the half in an answer that is not.
"""

from typing import Any

from .bodies import CHAT, Json
from .dialects import Dialect
from .probes import Probe, read

MAX_TOKENS = 32
LEAST = 8
"""Characters of the second half that have to be there, and the same."""
MOST = 24
"""Characters that are compared: later ones may differ where a server computes in other batches."""

_ASKED = {"role": "user", "content": "Count from one to thirty in words, with commas."}


def opening_probe(model: str) -> Probe:
    """The question; its answer goes to `cut`."""
    return Probe(shows="opening", path=CHAT, body=_body(model, []))


def going_on_probe(model: str, dialect: Dialect, opening: bytes) -> Probe | None:
    """Whether it goes on. `None` where the answer `opening` is not fit to tell."""
    halves = cut(opening)
    if halves is None:
        return None
    first, second = halves
    given = {"role": "assistant", "content": first}
    return Probe(
        shows="continue_final_message",
        path=CHAT,
        body=_body(model, [given]) | dict(dialect.continues),
        is_right=lambda answer: _agree(_said(answer), second),
    )


def cut(opening: bytes) -> tuple[str, str] | None:
    """The answer's halves, cut before a word; `None` if it is too short, or repeats itself."""
    try:
        text = _said(read(opening))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None
    place = text.find(" ", len(text) // 2)
    first, second = text[:place], text[place:]
    if place <= 0 or not first.strip() or len(second) < LEAST:
        return None
    if first != first.rstrip() or first.startswith(second[:LEAST].strip()):
        return None
    return first, second


def _body(model: str, given: list[Json]) -> Json:
    messages: list[Any] = [_ASKED, *given]
    few = {"max_tokens": MAX_TOKENS, "temperature": 0, "stream": True}
    return {"model": model, "messages": messages, **few}


def _said(answer: Json) -> str:
    choices = [choice for chunk in answer["chunks"] for choice in chunk["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def _agree(one: str, other: str) -> bool:
    num = min(len(one), len(other), MOST)
    return num >= LEAST and one[:num] == other[:num]
