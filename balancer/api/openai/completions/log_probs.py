"""Log-probabilities in the formats of chat and completions."""

from codecs import getincrementaldecoder
from collections.abc import Sequence

from .....shared.inference import TokenLogProbs
from ...common.log_probs import entries, text_of
from ..answer_types import ChatLogProbs, CompletionLogProbs

_Utf8Decoder = getincrementaldecoder("utf-8")


def chat_log_probs(log_probs: Sequence[TokenLogProbs]) -> ChatLogProbs:
    """Log-probabilities of a message's content, or of a part of it."""
    return {"content": entries(log_probs), "refusal": None}


class LogProbsWriter:
    """Log-probabilities of one choice's text, part by part, with the offset of each token."""

    def __init__(self, offset: int = 0) -> None:
        """The first token stands at `offset`, in characters."""
        self._offset = offset
        self._decoder = _Utf8Decoder(errors="replace")

    def render(self, log_probs: Sequence[TokenLogProbs]) -> CompletionLogProbs:
        """Of the next tokens."""
        return {
            "tokens": [text_of(each.chosen) for each in log_probs],
            "token_logprobs": [each.chosen.log_prob for each in log_probs],
            "top_logprobs": [_by_text(each) for each in log_probs],
            "text_offset": [self._place(each.chosen.piece) for each in log_probs],
        }

    def _place(self, piece: bytes) -> int:
        place = self._offset
        self._offset += len(self._decoder.decode(piece))
        return place


def _by_text(log_probs: TokenLogProbs) -> dict[str, float | None] | None:
    """The most likely tokens and the chosen one; this may be one more than requested.

    `None` for a prompt's first token, which has no log-probability.
    """
    if log_probs.chosen.log_prob is None:
        return None
    found: dict[str, float | None] = {}
    for each in (*log_probs.top, log_probs.chosen):
        found.setdefault(text_of(each), each.log_prob)
    return found
