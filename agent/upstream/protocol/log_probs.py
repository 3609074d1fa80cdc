"""Log-probabilities as OpenAI's API tells them, in the form of chats or in that of completions."""

from collections.abc import Iterator
from typing import Any

from ....shared.inference import MAX_COUNT, MAX_TOP_LOGPROBS, LogProb, TokenLogProbs
from ....shared.inference.events import MAX_TOKEN_BYTES

Json = dict[str, Any]

LEAST = -9999.0
"""What servers tell in place of minus infinity, which JSON does not have."""


def log_probs_of(told: Json | None) -> Iterator[TokenLogProbs]:
    """Those of each token of a chunk. Token ids are 0 where the server does not tell them.

    Raises `KeyError`, `TypeError`, `IndexError` or `AttributeError` for what is in neither form.
    """
    if not told:
        return
    for entry in told.get("content") or ():
        top = entry.get("top_logprobs") or ()
        yield TokenLogProbs(_of_chat(entry), tuple(map(_of_chat, top[:MAX_TOP_LOGPROBS])))
    tops = told.get("top_logprobs") or ()
    for place, token in enumerate(told.get("tokens") or ()):
        top = (tops[place] if place < len(tops) else None) or {}
        likely = [_of_text(text, value) for text, value in top.items()]
        chosen = _of_text(token, told["token_logprobs"][place])
        yield TokenLogProbs(chosen, tuple(likely[:MAX_TOP_LOGPROBS]))


def _of_chat(entry: Json) -> LogProb:
    told, id = entry.get("bytes"), entry.get("id")
    piece = bytes(told) if isinstance(told, list) else entry["token"].encode()
    token = id if isinstance(id, int) and 0 <= id <= MAX_COUNT else 0
    return LogProb(token, piece[:MAX_TOKEN_BYTES], _bounded(entry["logprob"]))


def _of_text(token: str, value: float | None) -> LogProb:
    return LogProb(0, token.encode()[:MAX_TOKEN_BYTES], _bounded(value))


def _bounded(value: float | None) -> float | None:
    return None if value is None else min(0.0, max(LEAST, float(value)))
