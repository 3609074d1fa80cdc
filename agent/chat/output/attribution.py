"""Assigns tokens to the parts of an answer's text, for log-probabilities and counts.

Text is sent later than its tokens are generated. Characters may be incomplete, and a possible stop
string or marker is held back. Markers are never sent. A token belongs to the first text sent that
contains one of its characters. A token that completes no character (part of one, or a control
token) belongs to the character that follows.
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
    """Assigns log-probabilities to one answer's text. `piece` returns a token's bytes.

    Invariant: every token is returned once, in order, unless none of its text is sent.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._waiting: deque[_Waiting] = deque()
        self._num_written = 0
        self._num_left = 0

    def push(self, ends: Iterable[int], log_probs: Iterable[LogProbs]) -> None:
        """Add tokens whose texts end at positions `ends`. Surplus `log_probs` are ignored."""
        for end, each in zip(ends, log_probs, strict=False):
            start, self._num_written = self._num_written, end
            entry = with_bytes(each, self._piece)
            self._waiting.append(_Waiting(entry, start, max(end, start + 1)))

    @property
    def is_settled(self) -> bool:
        """Return whether no token waits for its text to be sent or dropped."""
        return not self._waiting

    def leave(self, num_characters: int, *, is_shown: bool) -> tuple[TokenLogProbs, ...]:
        """Advance by `num_characters`, which are sent or dropped.

        Returns the log-probabilities to send with them.
        """
        self._num_left += num_characters
        found = []
        while self._waiting and self._waiting[0].start < self._num_left:
            if not is_shown and self._waiting[0].end > self._num_left:
                break
            found.append(self._waiting.popleft().log_probs)
        return tuple(found) if is_shown else ()

    def rest(self) -> tuple[TokenLogProbs, ...]:
        """Return the log-probabilities of tokens after the last character; the answer is over."""
        rest = tuple(each.log_probs for each in self._waiting if each.start >= self._num_left)
        self._waiting.clear()
        return rest


class ReasoningCount:
    """Counts the reasoning tokens of one answer, including the markers.

    Positions are characters from the beginning of the answer's text. Tokens wait until their text
    is classified.
    """

    def __init__(self) -> None:
        self._ends: deque[int] = deque()
        self._start = 0
        self._num_left = 0
        self._count = 0

    def push(self, ends: Iterable[int]) -> None:
        """Add tokens; `ends` are the positions where their texts end."""
        self._ends.extend(ends)

    def leave(self, num_characters: int, *, is_reasoning: bool) -> None:
        """Advance by `num_characters`, whose kind is now known."""
        self._num_left += num_characters
        while self._ends and self._start < self._num_left:
            self._start = self._ends.popleft()
            self._count += is_reasoning

    def total(self, *, is_reasoning: bool) -> int:
        """Return the count over all tokens; text still held back counts if `is_reasoning`."""
        return self._count + (len(self._ends) if is_reasoning else 0)


def with_bytes(log_probs: LogProbs, piece: Callable[[int], bytes]) -> TokenLogProbs:
    """Return `log_probs` with the bytes of each token."""
    return TokenLogProbs(
        LogProb(log_probs.token, piece(log_probs.token), log_probs.log_prob),
        tuple(LogProb(token, piece(token), log_prob) for token, log_prob in log_probs.top),
    )
