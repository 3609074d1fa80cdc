"""Log-probabilities as JSON, in OpenAI's format for chat; the native API uses it too."""

from collections.abc import Iterable

from typing_extensions import TypedDict

from ....shared.inference import LogProb, TokenLogProbs


class TopLogProb(TypedDict):
    """A possible token. `bytes` may be a part of a character."""

    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogProb(TopLogProb):
    """The chosen token, and the most likely ones in its place."""

    top_logprobs: list[TopLogProb]


def entries(log_probs: Iterable[TokenLogProbs]) -> list[TokenLogProb]:
    """One entry per token: `token`, `logprob`, `bytes`, and the most likely as `top_logprobs`."""
    return [
        {**_one(each.chosen), "top_logprobs": [_one(top) for top in each.top]} for each in log_probs
    ]


def text_of(log_prob: LogProb) -> str:
    """The token as text; bytes that are no text on their own stand as `\\xe2`."""
    return log_prob.piece.decode("utf-8", "backslashreplace")


def _one(log_prob: LogProb) -> TopLogProb:
    return {
        "token": text_of(log_prob),
        "logprob": log_prob.log_prob,
        "bytes": list(log_prob.piece),
    }
