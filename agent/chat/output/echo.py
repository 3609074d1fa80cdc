"""Echoes a prompt to the client, with the log-probabilities of its tokens.

Invariant: every token of the prompt is sent once, in order, and the texts joined are the prompt.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....shared.inference import LogProb, TokenLogProbs
from ...engine.sampling.log_probs import LogProbs
from .attribution import with_bytes
from .detokenizer import Detokenizer


@dataclass(frozen=True, slots=True)
class EchoPart:
    """A part of the prompt."""

    text: str
    log_probs: tuple[TokenLogProbs, ...]


class EchoWriter:
    """For one `prompt`. If the client gave `text`, it is echoed unchanged.

    `piece` gives a token's bytes.
    """

    def __init__(
        self, prompt: Sequence[int], text: str | None, piece: Callable[[int], bytes]
    ) -> None:
        self._first: int | None = prompt[0]
        self._text = text
        self._piece = piece
        self._detokenizer = Detokenizer(piece)

    def push(self, log_probs: Sequence[LogProbs]) -> EchoPart | None:
        """The next part, given log-probabilities of the next tokens; the first token has none.

        `None` if there is nothing to send.
        """
        told = [with_bytes(each, self._piece) for each in log_probs]
        if self._first is not None:
            told.insert(0, TokenLogProbs(LogProb(self._first, self._piece(self._first))))
            self._first = None
        if not told:
            return None
        return EchoPart(self._next_text([each.chosen.token for each in told]), tuple(told))

    def _next_text(self, tokens: Sequence[int]) -> str:
        if self._text is None:
            return self._detokenizer.push(tokens)
        text, self._text = self._text, ""
        return text
