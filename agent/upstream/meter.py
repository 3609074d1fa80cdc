"""Measures an upstream server's speed by this agent's clock, the only information for routing.

Time until the first token counts as prefill, and time after it as decoding. So a server's own
queue looks like a slow prefill, as it does to a client.
"""

from dataclasses import dataclass, replace

from ...shared.inference import Rates, Usage, rate_of
from ...shared.reports.statistics import Statistics
from ..engine.statistics import NOTHING_DONE, with_rates
from ..sequence_id import SequenceId


@dataclass(slots=True)
class _Run:
    """One request, with times in seconds."""

    started: float
    first: float | None = None
    last: float = 0.0
    num_tokens: int = 0


class Meter:
    """Measures running requests. Every method takes the time `now`, in seconds."""

    def __init__(self) -> None:
        self._runs: dict[SequenceId, _Run] = {}
        self._num_generating = 0
        self._now = 0.0
        self._busy = self._sequence = self._prefill = self._decode = 0.0
        self._cached = self._computed = self._completed = 0

    def started(self, id: SequenceId, now: float) -> None:
        """Note that a request was sent to the server."""
        self._advance(now)
        self._runs[id] = _Run(now)

    def gained(self, id: SequenceId, num_tokens: int, now: float) -> None:
        """Note that a part of an answer arrived; `num_tokens` counts the answer so far."""
        self._advance(now)
        run = self._runs[id]
        if run.first is None:
            run.first = now
            self._num_generating += 1
        self._completed += max(0, num_tokens - run.num_tokens)
        run.num_tokens, run.last = max(run.num_tokens, num_tokens), now

    def rates(self, id: SequenceId, usage: Usage) -> Rates:
        """Return the rates of a running request, which has `usage` so far."""
        run = self._runs[id]
        if run.first is None:
            return Rates()
        computed = usage.prompt_tokens - usage.cached_tokens
        return Rates(
            prefill_tokens_per_second=rate_of(computed, run.first - run.started),
            decode_tokens_per_second=rate_of(usage.completion_tokens - 1, run.last - run.first),
        )

    def ended(self, id: SequenceId, usage: Usage, now: float) -> None:
        """Note the end of a request, whether it succeeded or failed."""
        self._advance(now)
        run = self._runs.pop(id)
        self._num_generating -= run.first is not None
        computed = max(0, usage.prompt_tokens - usage.cached_tokens)
        self._cached += usage.cached_tokens
        self._computed += computed
        self._completed += max(0, usage.completion_tokens - run.num_tokens)

    def statistics(self, now: float) -> Statistics:
        """Return all counts so far."""
        self._advance(now)
        done = replace(
            NOTHING_DONE,
            num_running=len(self._runs),
            cached_tokens=self._cached,
            computed_tokens=self._computed,
            completion_tokens=self._completed,
            decode_tokens=self._completed,
            decode_seconds=self._decode,
            prefill_tokens=self._computed,
            prefill_seconds=self._prefill,
            busy_seconds=self._busy,
        )
        return with_rates(done, self._sequence)

    def _advance(self, now: float) -> None:
        passed, self._now = max(0.0, now - self._now), now
        if not self._runs:
            return
        self._busy += passed
        self._sequence += passed * len(self._runs)
        if self._num_generating:
            self._decode += passed
        else:
            self._prefill += passed
