"""What the engine did, counted by the scheduler's clock.

llama.cpp's own counters count every step of more than one token as prefill, so they are no use.
"""

from bisect import bisect_left
from dataclasses import dataclass

from ...shared.inference import rate_of
from ...shared.reports.statistics import Fetches

STALL_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the stalls' histogram, in seconds; one more bucket holds what is longer."""


@dataclass(frozen=True, slots=True)
class Gone:
    """What left the cache: the prefixes with these `keys`, or `everything`, as far as is known."""

    keys: tuple[int, ...] = ()
    everything: bool = False

    def __bool__(self) -> bool:
        return self.everything or bool(self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatistics:
    """Totals since the model was loaded, and how things stand. Times in seconds.

    `num_commands` wait for the step that is computed to end. `num_cells_parked` counts the cells'
    worth of prefixes that is in host memory. `decode_*` count steps that generate, `prefill_*`
    steps of prefill alone. `busy_seconds` is the time with anything to do;
    `sequence_seconds` adds up, over it, the sequences that ran. `stalls` counts, by `STALL_BOUNDS`,
    the pauses of running sequences that were caused by others: time between two tokens beyond the
    sequence's own decode step. Of the `num_drafted` tokens that were guessed and computed ahead,
    `num_accepted` were right. `num_grammars` are cached, compiled, where sequences are prepared;
    `num_embedding_cells` have the contexts that embed and rank, and `num_draft_cells` that of the
    draft model, if there is one, beside the `num_cells` of the one that generates. Encoded pictures
    take `num_media_bytes`, where there is a projector. Prefixes came from other agents in
    `fetches`, where there may be some.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_commands: int = 0
    num_cells: int = 0
    num_cells_used: int = 0
    num_cells_kept: int = 0
    num_cells_parked: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    prompt_tokens_cached: int = 0
    prompt_tokens_computed: int = 0
    completion_tokens: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    decode_tokens: int = 0
    decode_seconds: float = 0.0
    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    busy_seconds: float = 0.0
    sequence_seconds: float = 0.0
    stalls: tuple[int, ...] = (0,) * (len(STALL_BOUNDS) + 1)
    stall_seconds: float = 0.0
    num_grammars: int = 0
    num_embedding_cells: int = 0
    num_draft_cells: int | None = None
    num_media_bytes: int | None = None
    fetches: Fetches | None = None

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Generated tokens a second of the steps that generate; `None`: there was none."""
        return rate_of(self.decode_tokens, self.decode_seconds)

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Prompt tokens a second of the steps of prefill alone; `None`: there was none."""
        return rate_of(self.prefill_tokens, self.prefill_seconds)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens given out a second by the wall clock, idle times left out."""
        return rate_of(self.completion_tokens, self.busy_seconds)

    @property
    def average_running(self) -> float | None:
        """Sequences that ran at once, on average over the busy time."""
        return rate_of(self.sequence_seconds, self.busy_seconds)


class Tally:
    """Counts as things happen; `summary` makes `EngineStatistics` of it."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds with anything to do, which is the scheduler's clock."""
        self._num_steps = 0
        self._num_preemptions = 0
        self._prompt_tokens_cached = 0
        self._prompt_tokens_computed = 0
        self._completion_tokens = 0
        self._num_drafted = 0
        self._num_accepted = 0
        self._decode_tokens = 0
        self._decode_seconds = 0.0
        self._prefill_tokens = 0
        self._prefill_seconds = 0.0
        self._sequence_seconds = 0.0
        self._stalls = [0] * (len(STALL_BOUNDS) + 1)
        self._stall_seconds = 0.0

    def passed(self, seconds: float, num_running: int) -> None:
        """A step took `seconds`, counted from the end of the last one."""
        self._num_steps += 1
        self.now += seconds
        self._sequence_seconds += seconds * num_running

    def computed(self, *, num_generating: int, num_prompt_tokens: int, seconds: float) -> None:
        """A step of so many tokens worked."""
        self._prompt_tokens_computed += num_prompt_tokens
        if num_generating:
            self._decode_tokens += num_generating
            self._decode_seconds += seconds
        elif num_prompt_tokens:
            self._prefill_tokens += num_prompt_tokens
            self._prefill_seconds += seconds

    def gave(self, num_tokens: int) -> None:
        """Count tokens that were given out."""
        self._completion_tokens += num_tokens

    def drafted(self, num_drafted: int, num_accepted: int) -> None:
        """Count tokens that were drafted for a step, and those of them that were given out."""
        self._num_drafted += num_drafted
        self._num_accepted += num_accepted
        self._decode_tokens += num_accepted

    def shared(self, num_tokens: int) -> None:
        """Count tokens of a prompt that needed no computing."""
        self._prompt_tokens_cached += num_tokens

    def preempted(self) -> None:
        """A sequence gave up its cells."""
        self._num_preemptions += 1

    def stalled(self, seconds: float) -> None:
        """A running sequence waited for others."""
        self._stalls[bisect_left(STALL_BOUNDS, seconds)] += 1
        self._stall_seconds += seconds

    def summary(
        self,
        *,
        num_running: int,
        num_waiting: int,
        num_cells: int,
        used: int,
        kept: int,
        parked: int,
    ) -> EngineStatistics:
        """All counts so far."""
        return EngineStatistics(
            num_running=num_running,
            num_waiting=num_waiting,
            num_cells=num_cells,
            num_cells_used=used,
            num_cells_kept=kept,
            num_cells_parked=parked,
            num_steps=self._num_steps,
            num_preemptions=self._num_preemptions,
            prompt_tokens_cached=self._prompt_tokens_cached,
            prompt_tokens_computed=self._prompt_tokens_computed,
            completion_tokens=self._completion_tokens,
            num_drafted=self._num_drafted,
            num_accepted=self._num_accepted,
            decode_tokens=self._decode_tokens,
            decode_seconds=self._decode_seconds,
            prefill_tokens=self._prefill_tokens,
            prefill_seconds=self._prefill_seconds,
            busy_seconds=self.now,
            sequence_seconds=self._sequence_seconds,
            stalls=tuple(self._stalls),
            stall_seconds=self._stall_seconds,
        )
