"""Counts of the engine's work, by the scheduler's clock.

llama.cpp's own counters count every step of more than one token as prefill, so they are not used.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace

from ...shared.inference import rate_of
from ...shared.reports.statistics import Cells, Histogram, Statistics

STALL_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the stalls' histogram, in seconds; one more bucket has longer stalls."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Prefixes that left the cache: the prefixes with these `keys`, or `everything`.

    `sequence_seconds` is the integral of running sequences over the busy time. Tokens per second
    are output tokens by wall-clock time, without idle times.
    """

    keys: tuple[int, ...] = ()
    everything: bool = False

    def __bool__(self) -> bool:
        return self.everything or bool(self.keys)


NOTHING_DONE = Statistics(
    num_commands=0,
    stalls=Histogram(bounds=STALL_BOUNDS, counts=(0,) * (len(STALL_BOUNDS) + 1)),
)
"""The statistics of an engine that has done nothing yet."""


def with_rates(done: Statistics, sequence_seconds: float) -> Statistics:
    """Return `done` with its rates; a rate is `None` if there was no such step.

    `sequence_seconds` is the integral of running sequences over the busy time. Tokens per second
    are output tokens by wall-clock time, without idle times.
    """
    return replace(
        done,
        decode_tokens_per_second=rate_of(done.decode_tokens, done.decode_seconds),
        prefill_tokens_per_second=rate_of(done.prefill_tokens, done.prefill_seconds),
        tokens_per_second=rate_of(done.completion_tokens, done.busy_seconds),
        average_running=rate_of(sequence_seconds, done.busy_seconds),
    )


class Tally:
    """Counts events; `summary` makes `Statistics` of the counts.

    Steps that generate are decode steps, steps of prompts alone are prefill. If other sequences
    delay a running sequence, the delay is a stall: the time between two of its tokens beyond its
    own decode step.
    """

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds with any work to do, which is the scheduler's clock."""
        self._num_preemptions = 0
        self._cached_tokens = 0
        self._computed_tokens = 0
        self._completion_tokens = 0
        self._drafted_tokens = 0
        self._accepted_tokens = 0
        self._decode_tokens = 0
        self._decode_seconds = 0.0
        self._prefill_tokens = 0
        self._prefill_seconds = 0.0
        self._sequence_seconds = 0.0
        self._stalls = [0] * (len(STALL_BOUNDS) + 1)
        self._stall_seconds = 0.0

    def passed(self, seconds: float, num_running: int) -> None:
        """Count a step of `seconds`, from the end of the previous one."""
        self.now += seconds
        self._sequence_seconds += seconds * num_running

    def computed(self, *, num_generating: int, num_prompt_tokens: int, seconds: float) -> None:
        """Count the tokens of a successful step."""
        self._computed_tokens += num_prompt_tokens
        if num_generating:
            self._decode_tokens += num_generating
            self._decode_seconds += seconds
        elif num_prompt_tokens:
            self._prefill_tokens += num_prompt_tokens
            self._prefill_seconds += seconds

    def gave(self, num_tokens: int) -> None:
        """Count output tokens."""
        self._completion_tokens += num_tokens

    def drafted(self, num_drafted: int, num_accepted: int) -> None:
        """Count the tokens drafted for a step, and the accepted tokens among them."""
        self._drafted_tokens += num_drafted
        self._accepted_tokens += num_accepted
        self._decode_tokens += num_accepted

    def shared(self, num_tokens: int) -> None:
        """Count tokens of a prompt that needed no computing."""
        self._cached_tokens += num_tokens

    def preempted(self) -> None:
        """Count a sequence that gave up its cells."""
        self._num_preemptions += 1

    def stalled(self, seconds: float) -> None:
        """Count the time that a running sequence waited for other sequences."""
        self._stalls[bisect_left(STALL_BOUNDS, seconds)] += 1
        self._stall_seconds += seconds

    def summary(self, *, num_running: int, num_waiting: int, cells: Cells) -> Statistics:
        """Return all counts so far, and the current state."""
        done = Statistics(
            num_running=num_running,
            num_waiting=num_waiting,
            num_commands=0,
            cells=cells,
            num_preemptions=self._num_preemptions,
            cached_tokens=self._cached_tokens,
            computed_tokens=self._computed_tokens,
            completion_tokens=self._completion_tokens,
            drafted_tokens=self._drafted_tokens,
            accepted_tokens=self._accepted_tokens,
            decode_tokens=self._decode_tokens,
            decode_seconds=self._decode_seconds,
            prefill_tokens=self._prefill_tokens,
            prefill_seconds=self._prefill_seconds,
            busy_seconds=self.now,
            stalls=Histogram(
                bounds=STALL_BOUNDS, counts=tuple(self._stalls), seconds=self._stall_seconds
            ),
        )
        return with_rates(done, self._sequence_seconds)
