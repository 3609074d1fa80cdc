"""Which part of an answer's text the log-probabilities of each token belong to.

Text leaves later than its tokens come: characters are completed, what might be a stop string or a
marker is held back, and markers never leave. A token belongs to the first text that is shown and
has a character of it. One without a character of its own (it began one, or is a control token)
goes with the character that follows.

Invariant: every token that comes is given out once, in order, unless none of its text is shown.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ....shared.inference import LogProb, TokenLogProbs
from ...engine.sampling.log_probs import LogProbs


@dataclass(frozen=True, slots=True)
class _Waiting:
    log_probs: TokenLogProbs
    start: int
    end: int


class Attribution:
    """Of one answer. `piece` gives a token's bytes."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._waiting: deque[_Waiting] = deque()
        self._num_written = 0
        self._num_left = 0

    def push(self, ends: Iterable[int], log_probs: Iterable[LogProbs]) -> None:
        """The next tokens came; the text goes up to `ends`. There may be `log_probs` too many."""
        for end, each in zip(ends, log_probs, strict=False):
            start, self._num_written = self._num_written, end
            told = with_bytes(each, self._piece)
            self._waiting.append(_Waiting(told, start, max(end, start + 1)))

    def leave(self, num_characters: int, *, is_shown: bool) -> tuple[TokenLogProbs, ...]:
        """So much more of the text leaves, or is left out: what belongs to it."""
        self._num_left += num_characters
        found = []
        while self._waiting and self._waiting[0].start < self._num_left:
            if not is_shown and self._waiting[0].end > self._num_left:
                break
            found.append(self._waiting.popleft().log_probs)
        return tuple(found) if is_shown else ()

    def rest(self) -> tuple[TokenLogProbs, ...]:
        """Of tokens after the last character, when the answer is over and all of it has left."""
        rest = tuple(each.log_probs for each in self._waiting if each.start >= self._num_left)
        self._waiting.clear()
        return rest


def with_bytes(log_probs: LogProbs, piece: Callable[[int], bytes]) -> TokenLogProbs:
    """`log_probs` for people who do not know the vocabulary."""
    return TokenLogProbs(
        LogProb(log_probs.token, piece(log_probs.token), log_probs.log_prob),
        tuple(LogProb(token, piece(token), log_prob) for token, log_prob in log_probs.top),
    )
