"""Log-probabilities as JSON: OpenAI's words for chat, which the native API uses too."""

from collections.abc import Iterable

from ....shared.inference import LogProb, TokenLogProbs


def entries(log_probs: Iterable[TokenLogProbs]) -> list[dict[str, object]]:
    """A token each: `token`, `logprob`, `bytes`, and the likeliest as `top_logprobs`."""
    return [
        {**_one(each.chosen), "top_logprobs": [_one(top) for top in each.top]} for each in log_probs
    ]


def text_of(log_prob: LogProb) -> str:
    """The token as text; bytes that are no text on their own stand as `\\xe2`."""
    return log_prob.piece.decode("utf-8", "backslashreplace")


def _one(log_prob: LogProb) -> dict[str, object]:
    return {
        "token": text_of(log_prob),
        "logprob": log_prob.log_prob,
        "bytes": list(log_prob.piece),
    }
