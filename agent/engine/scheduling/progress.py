"""One sequence's progress: its tokens, and how many of them are computed.

Invariant: `num_computed < len(history)` while the sequence runs. At least the last token remains
to be computed, because the next token is chosen from its logits. A sequence whose cells were given
up (`rewind`) reads its own tokens again like a prompt, and continues at its end.
"""

from typing import Literal

from ....shared.errors import RequestError
from ....shared.inference import is_background
from ..prompt import History
from ..prompt_store.stored_prompt import StoredPrompt
from ..sequence import NewSequence, SequenceEnd, SequenceId, SequenceStats
from .context_shift import Window

_ENDLESS = 2**62


class Progress:
    """The state of a sequence; `history` is its prompt and generated tokens, less discarded ones.

    `rank` orders waiting sequences; other sequences come before those that are `is_background`
    (`background`). `ceiling` is the maximum number of tokens in the slot; there the sequence ends,
    unless it has a `window`. A sequence that `is_finishing` ends with its next token. `stored` is
    the stored prompt to begin with. It is released once it is in the cells, or in the kept prefix
    with the number `adopted_as`. The prefix `on_disk` may be read while the sequence waits.
    """

    __slots__ = (
        "_most_generated",
        "_num_prefilled",
        "_num_said",
        "_num_scored",
        "_prefill_seconds",
        "_prompt_length",
        "_was_started",
        "adopted_as",
        "borders",
        "ceiling",
        "decode_seconds",
        "history",
        "id",
        "is_background",
        "last_token_at",
        "marks",
        "num_cached",
        "num_computed",
        "num_generated",
        "num_read_from_disk",
        "on_disk",
        "place",
        "prefill_only",
        "rank",
        "stored",
        "told_at",
        "window",
    )

    def __init__(
        self, sequence: NewSequence, *, arrival: int, ceiling: int, window: Window | None = None
    ) -> None:
        self.id: SequenceId = sequence.id
        self.rank = (-sequence.priority, arrival)
        self.is_background = is_background(sequence.priority)
        self.ceiling = ceiling
        self.window = window
        prompt = sequence.prompt if window is None else window.fit(sequence.prompt)
        self.place = 0
        """The place of the sequence's slot in a batch."""
        self.history = History(prompt)
        self.history.extend(sequence.said)
        if window is not None:
            self.history.discard(window.num_kept, window.num_gone(len(self.history)))
        self.marks = sequence.marks if window is None else ()
        self.borders = sequence.borders if window is None else ()
        self.prefill_only = sequence.prefill_only
        self.stored: StoredPrompt | None = sequence.stored if window is None else None
        self.adopted_as: int | None = None
        self.on_disk = sequence.on_disk if window is None else None
        self.num_read_from_disk = 0
        """The parts of the sequence that were read for saving, after the sequence has ended."""
        self.num_cached = 0
        self.num_computed = 0
        self.num_generated = self._num_said = len(sequence.said)
        self.last_token_at = 0.0
        self.told_at = 0.0
        """The time of the sequence's arrival, or of the last progress report to its client."""
        self._prompt_length = len(sequence.prompt)
        # Nothing comes before the first token, so nothing says how likely it was.
        self._num_scored = 1 if sequence.scores_prompt and window is None else self._prompt_length
        self._most_generated = self._limit(sequence)
        self._was_started = False
        self._num_prefilled = 0
        self._prefill_seconds: float | None = None
        self.decode_seconds: float | None = None
        """The seconds of the sequence's decode steps; `None` before the first step."""

    @property
    def adapter(self) -> str | None:
        """The adapter of the sequence's tokens; see `Prompt.adapter`."""
        return self.history.adapter

    @property
    def num_stored(self) -> int:
        """The number of tokens whose states are stored for the sequence."""
        return 0 if self.stored is None else len(self.stored.prompt) - self.stored.start

    @property
    def num_pending(self) -> int:
        """The number of tokens that are not computed yet."""
        return len(self.history.keys) - self.num_computed

    @property
    def num_in_span(self) -> int:
        """The number of next positions that are all tokens, or belong to the same media."""
        return self.history.span_left(self.num_computed)

    @property
    def reads_media(self) -> bool:
        """Return whether the next position belongs to media."""
        return self.history.media_part(self.num_computed, 1) is not None

    @property
    def num_at_once(self) -> int:
        """The media positions that the next step has to read at once; 0 for any number."""
        return self.history.whole_left(self.num_computed)

    @property
    def num_left(self) -> int:
        """The maximum number of tokens that the sequence may still gain."""
        return self._most_generated - self.num_generated

    @property
    def num_to_gain(self) -> int:
        """The maximum number of tokens to gain before the sequence's slot is full."""
        return min(self.num_left, self.ceiling - len(self.history))

    @property
    def most_ahead(self) -> int:
        """The maximum number of tokens to draft, with room for the drafted tokens and one more."""
        return self.num_to_gain - 1

    @property
    def most_shared(self) -> int | None:
        """The number of first tokens that other sequences may share; `None` for all.

        Cells that may move later are not shared: they would move for the other sequences, too.
        """
        return None if self.window is None else self.window.num_kept

    @property
    def most_reused(self) -> int:
        """The number of first tokens that the sequence may take from the cache.

        The last token is excluded, because its logits are needed. Tokens whose logits give a
        log-probability of the prompt are excluded too.
        """
        most = len(self.history) - 1
        if self.window is not None:
            most = min(most, self.window.num_kept)
        return min(most, self._num_scored - 1) if self.is_scoring else most

    @property
    def is_scoring(self) -> bool:
        """Return whether log-probabilities of the prompt are still missing."""
        return self._num_scored < self._prompt_length

    @property
    def is_generating(self) -> bool:
        """Return whether a step needs exactly the last token; otherwise the sequence reads."""
        has_begun = self.num_generated > self._num_said
        return has_begun and self.num_computed + 1 == len(self.history.keys)

    @property
    def heard_at(self) -> float:
        """The time of the sequence's arrival, its last token or its last progress report."""
        return max(self.told_at, self.last_token_at)

    @property
    def is_full(self) -> bool:
        """Return whether the sequence has reached its maximum number of tokens, or the slot's."""
        return self.num_left <= 0

    @property
    def must_shift(self) -> bool:
        """Return whether the sequence's window is full."""
        return self.window is not None and len(self.history) >= self.ceiling

    def next_tokens(self, count: int) -> tuple[int, ...]:
        """Return the next `count` tokens to compute."""
        return self.history.token_ids(self.num_computed, self.num_computed + count)

    def to_score(self, count: int) -> range:
        """Return the prompt positions whose log-probabilities the next `count` tokens give."""
        first = max(self._num_scored, self.num_computed + 1)
        return range(first, min(self._prompt_length, self.num_computed + count + 1))

    def num_readable(self, most_scored: int) -> int:
        """Return how many tokens can be computed with at most `most_scored` log-probabilities."""
        return max(0, self._num_scored - 1 - self.num_computed) + most_scored

    def start(self, num_shared: int) -> int:
        """Begin in a slot in which the first `num_shared` tokens are computed already.

        Returns how many tokens of the prompt were cached; 0 if the sequence returns after a
        preemption.
        """
        self.num_computed = num_shared
        if self._was_started:
            return 0
        self._was_started = True
        self.num_cached = min(num_shared, self._prompt_length)
        return self.num_cached

    def take_from_disk(self, prefix: StoredPrompt) -> None:
        """Store a prefix that was read from disk while the sequence waits."""
        self.stored = prefix
        self.num_read_from_disk = len(prefix.prompt)

    def begin_anew(self) -> int:
        """Begin again from nothing, because the prefix is lost. Returns the number of lost cached
        tokens.
        """
        self.stored = self.on_disk = None
        num_cached, self.num_cached = self.num_cached, 0
        self._was_started = False
        return num_cached

    def read(self, count: int, pure_seconds: float | None) -> None:
        """Record that `count` tokens of the prompt were computed.

        `pure_seconds` is the time of the step if it only read prompts; only such steps measure how
        fast prompts are read.
        """
        self._advance(count)
        if pure_seconds is not None and self.num_generated == self._num_said:
            self._num_prefilled += count
            self._prefill_seconds = (self._prefill_seconds or 0.0) + pure_seconds

    def scored(self, count: int) -> None:
        """Record that `count` more tokens of the prompt have log-probabilities."""
        self._num_scored += count

    def decode(self, seconds: float) -> None:
        """Record that the last token was computed in a step of `seconds`."""
        self._advance(1)
        self.decode_seconds = (self.decode_seconds or 0.0) + seconds

    def confirm(self) -> None:
        """Record that the last token was drafted, and is computed already."""
        self._advance(1)

    def extend(self, token: int, now: float) -> None:
        """Append the chosen `token`."""
        self.history.append(token)
        self.num_generated += 1
        self.last_token_at = now

    def shift(self, window: Window, *, is_moved: bool) -> None:
        """Discard the oldest tokens after the head.

        If `is_moved`, later tokens have moved; otherwise they are read again.
        """
        start = window.num_kept
        self.history.discard(start, window.num_discarded)
        self.num_computed = self.num_computed - window.num_discarded if is_moved else start

    def rewind(self) -> None:
        """Mark all tokens as not computed, because the sequence's cells are lost."""
        self.num_computed = 0

    def end(self, reason: Literal["stop", "length"] | RequestError) -> SequenceEnd:
        """Return the sequence's end, with the counts so far."""
        return SequenceEnd(reason, self.stats())

    def stats(self) -> SequenceStats:
        """Return the sequence's counts so far."""
        return SequenceStats(
            prompt_tokens=self._prompt_length,
            cached_tokens=self.num_cached,
            completion_tokens=self.num_generated - self._num_said,
            prefill_tokens=self._num_prefilled,
            prefill_seconds=self._prefill_seconds,
            decode_seconds=self.decode_seconds,
        )

    def _limit(self, sequence: NewSequence) -> int:
        own = _ENDLESS if sequence.max_tokens is None else sequence.max_tokens
        return own if self.window is not None else min(own, self.ceiling - self._prompt_length)

    def _advance(self, count: int) -> None:
        if self.num_computed + count > len(self.history.keys):
            raise ValueError(f"{count} tokens computed of {self.num_pending} pending")
        self.adopted_as = None
        self.num_computed += count
