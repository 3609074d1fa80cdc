"""One sequence's progress: its tokens, and how many of them are computed.

Invariant: `num_computed < len(history)` as long as it runs. There is always a token to compute, the
last one at the least, because the next token is chosen from its logits. A sequence whose cells were
given up (`rewind`) reads its own tokens again like a prompt, and goes on where it was.
"""

from typing import Literal

from ....shared.errors import RequestError
from ....shared.inference import is_background
from ..kv_cache.handed import HandOut
from ..prompt import History
from ..prompt_store.stored_prompt import StoredPrompt
from ..sequence import NewSequence, SequenceEnd, SequenceId, SequenceStats
from .context_shift import Window

_ENDLESS = 2**62


class Progress:
    """`history` is what is left of the prompt and of what was generated since.

    `rank` orders those who wait; those that are `is_background` give way (`background`). `ceiling`
    is the most tokens that its slot holds; at that it ends, unless it has a `window`. One that
    `is_finishing` takes its next token for the end. What is `stored` for it is released as soon as
    it is in the cells or a kept prefix, the one with the number `adopted_as`. What is `on_disk` may
    be read for it while it waits.
    """

    __slots__ = (
        "_decode_seconds",
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
        "history",
        "id",
        "is_background",
        "is_finishing",
        "last_token_at",
        "marks",
        "num_cached",
        "num_computed",
        "num_generated",
        "num_read_from_disk",
        "on_disk",
        "prefill_only",
        "rank",
        "save_as",
        "saving",
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
        self.history = History(prompt)
        self.history.extend(sequence.said)
        if window is not None:
            self.history.discard(window.num_kept, window.num_gone(len(self.history)))
        self.marks = sequence.marks if window is None else ()
        self.borders = sequence.borders if window is None else ()
        self.prefill_only = sequence.prefill_only
        self.stored: StoredPrompt | None = sequence.stored if window is None else None
        self.save_as = sequence.save_as if window is None else None
        self.adopted_as: int | None = None
        self.on_disk = sequence.on_disk if window is None else None
        self.num_read_from_disk = 0
        self.saving: HandOut | None = None
        """What was handed out of it, once it has ended and is saved."""
        self.is_finishing = False
        self.num_cached = 0
        self.num_computed = 0
        self.num_generated = self._num_said = len(sequence.said)
        self.last_token_at = 0.0
        self.told_at = 0.0
        """When it arrived, or its client last heard how much of it is read."""
        self._prompt_length = len(sequence.prompt)
        # Nothing comes before the first token, so nothing says how likely it was.
        self._num_scored = 1 if sequence.scores_prompt and window is None else self._prompt_length
        self._most_generated = self._limit(sequence)
        self._was_started = False
        self._num_prefilled = 0
        self._prefill_seconds: float | None = None
        self._decode_seconds: float | None = None

    @property
    def adapter(self) -> str | None:
        """Under which its tokens are computed; see `Prompt.adapter`."""
        return self.history.adapter

    @property
    def num_stored(self) -> int:
        """Tokens whose states are held for it."""
        return 0 if self.stored is None else len(self.stored.prompt) - self.stored.start

    @property
    def num_pending(self) -> int:
        """Tokens that are not computed yet."""
        return len(self.history.keys) - self.num_computed

    @property
    def num_in_span(self) -> int:
        """How many of them, from the next one on, are tokens, or are of the same media."""
        return self.history.span_left(self.num_computed)

    @property
    def reads_media(self) -> bool:
        """Whether the next position is one of media."""
        return self.history.media_part(self.num_computed, 1) is not None

    @property
    def num_at_once(self) -> int:
        """How many positions of media the next step that reads it has to read; 0 for any number."""
        return self.history.whole_left(self.num_computed)

    @property
    def num_left(self) -> int:
        """Most tokens that it may still gain."""
        return self._most_generated - self.num_generated

    @property
    def num_to_gain(self) -> int:
        """Most tokens that it may still gain before its slot is full."""
        return min(self.num_left, self.ceiling - len(self.history))

    @property
    def most_ahead(self) -> int:
        """Most tokens that can be drafted beside the last one, all of them and one more gained."""
        return 0 if self.is_finishing else self.num_to_gain - 1

    @property
    def most_shared(self) -> int | None:
        """How many of its first tokens others may share, if not all.

        Cells that may have to move are its own: they would move under whoever shares them.
        """
        return None if self.window is None else self.window.num_kept

    @property
    def most_reused(self) -> int:
        """How many of its first tokens it can begin with if others have computed them.

        Not the last one, which is computed for its logits, and none whose logits say how likely a
        token of the prompt was.
        """
        most = len(self.history) - 1
        if self.window is not None:
            most = min(most, self.window.num_kept)
        return min(most, self._num_scored - 1) if self.is_scoring else most

    @property
    def is_scoring(self) -> bool:
        """Whether tokens of the prompt still have to be explained."""
        return self._num_scored < self._prompt_length

    @property
    def is_generating(self) -> bool:
        """Whether a step needs exactly its last token; otherwise it is reading."""
        has_begun = self.num_generated > self._num_said
        return has_begun and self.num_computed + 1 == len(self.history.keys)

    @property
    def is_saving(self) -> bool:
        """Whether it has ended, and only waits for the state of what it computed."""
        return self.saving is not None

    @property
    def is_full(self) -> bool:
        """Whether it may have no further token: its own limit, or the slot's ceiling."""
        return self.num_left <= 0

    @property
    def must_shift(self) -> bool:
        """Whether its window is full."""
        return self.window is not None and len(self.history) >= self.ceiling

    def next_tokens(self, count: int) -> tuple[int, ...]:
        """The next `count` tokens to compute."""
        return self.history.token_ids(self.num_computed, self.num_computed + count)

    def to_score(self, count: int) -> range:
        """Which tokens of the prompt the next `count` tokens to compute explain, by position."""
        first = max(self._num_scored, self.num_computed + 1)
        return range(first, min(self._prompt_length, self.num_computed + count + 1))

    def num_readable(self, most_scored: int) -> int:
        """How many tokens can be computed without explaining more than `most_scored`."""
        return max(0, self._num_scored - 1 - self.num_computed) + most_scored

    def start(self, num_shared: int) -> int:
        """It gets a slot, in which its first `num_shared` tokens are computed already.

        How many of them its prompt did not have to compute: none when it only comes back.
        """
        self.num_computed = num_shared
        if self._was_started:
            return 0
        self._was_started = True
        self.num_cached = min(num_shared, self._prompt_length)
        return self.num_cached

    def take_from_disk(self, prefix: StoredPrompt) -> None:
        """A part of it was read from disk, while it waits."""
        self.stored = prefix
        self.num_read_from_disk = len(prefix.prompt)

    def begin_anew(self) -> int:
        """The prefix that it was to begin with is lost: it begins again from nothing.

        How many tokens it thought cached.
        """
        self.stored = self.on_disk = None
        num_cached, self.num_cached = self.num_cached, 0
        self._was_started = False
        return num_cached

    def read(self, count: int, pure_seconds: float | None) -> None:
        """`count` tokens of the prompt were computed.

        `pure_seconds` is what the step took if it read nothing but prompts; only such steps tell
        how fast prompts are read.
        """
        self._advance(count)
        if pure_seconds is not None and self.num_generated == self._num_said:
            self._num_prefilled += count
            self._prefill_seconds = (self._prefill_seconds or 0.0) + pure_seconds

    def scored(self, count: int) -> None:
        """`count` further tokens of the prompt were explained."""
        self._num_scored += count

    def decode(self, seconds: float) -> None:
        """Its last token was computed in a step of `seconds`."""
        self._advance(1)
        self._decode_seconds = (self._decode_seconds or 0.0) + seconds

    def confirm(self) -> None:
        """Its last token was drafted, and is computed already."""
        self._advance(1)

    def extend(self, token: int, now: float) -> None:
        """`token` was chosen."""
        self.history.append(token)
        self.num_generated += 1
        self.last_token_at = now

    def shift(self, window: Window, *, is_moved: bool) -> None:
        """The oldest tokens after the head go; what comes after them moved, or is read again."""
        start = window.num_kept
        self.history.discard(start, window.num_discarded)
        self.num_computed = self.num_computed - window.num_discarded if is_moved else start

    def rewind(self) -> None:
        """Its cells are lost: everything is computed again."""
        self.num_computed = 0

    @property
    def saved(self) -> StoredPrompt | None:
        """All that it computed, if that was handed out."""
        if self.saving is None or not self.saving.has_all(self.num_computed):
            return None
        return self.saving.stored(self.history.part(0, self.num_computed))

    def end(self, reason: Literal["stop", "length"] | RequestError) -> SequenceEnd:
        """The end of it, with its counts so far."""
        return SequenceEnd(reason, self.stats())

    def stats(self) -> SequenceStats:
        """Its counts so far."""
        return SequenceStats(
            prompt_tokens=self._prompt_length,
            cached_tokens=self.num_cached,
            completion_tokens=self.num_generated - self._num_said,
            prefill_tokens=self._num_prefilled,
            prefill_seconds=self._prefill_seconds,
            decode_seconds=self._decode_seconds,
        )

    def _limit(self, sequence: NewSequence) -> int:
        own = _ENDLESS if sequence.max_tokens is None else sequence.max_tokens
        return own if self.window is not None else min(own, self.ceiling - self._prompt_length)

    def _advance(self, count: int) -> None:
        if self.num_computed + count > len(self.history.keys):
            raise ValueError(f"{count} tokens computed of {self.num_pending} pending")
        self.adopted_as = None
        self.num_computed += count
