"""Gives other requests precedence over requests of the class `batch` in the engine.

While the prompt of another request waits, batch prompts are not read. On CPUs each additional
sequence makes a step longer. So there batch requests do not generate while such a prompt is read,
for at most `max_stall` seconds. A step that computes only batch requests may be stopped if another
request comes, as long as batch requests lose no more time than they get. While there are other
requests, and for a while after, a step reads fewer tokens of batch prompts (`prefill`).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ..step import Step
from .progress import Progress

RECENT = 60.0
"""Seconds for which other requests count as present after the last of them ended."""

MOST_LOST = 0.5
"""Seconds of stopped steps in a row; after that, as many seconds as batch steps took since."""


@dataclass(slots=True)
class Background:
    """Decides when batch requests pause, and whether their steps may be stopped.

    `may_pause`: steps are much shorter without some sequences. `may_stop`: the engine can undo a
    stopped step at once.
    """

    max_stall: float
    may_pause: bool
    may_stop: bool
    _others_until: float = float("-inf")
    _may_lose: float = MOST_LOST

    def look(self, everybody: Iterable[Progress], now: float) -> None:
        """Record whether there are other requests; call it before each step."""
        if any(not one.is_background for one in everybody):
            self._others_until = now + RECENT

    def are_others_here(self, now: float) -> bool:
        """Return whether there are requests other than batch requests, or were recently."""
        return now < self._others_until

    def staying(
        self, generating: dict[int, Progress], readers: Collection[Progress], now: float
    ) -> dict[int, Progress]:
        """Return the sequences that generate in the next step, which may read prompts of
        `readers`.
        """
        if not self.may_pause or not readers or any(one.is_background for one in readers):
            return generating
        return {
            slot: one
            for slot, one in generating.items()
            if not one.is_background or now - one.last_token_at >= self.max_stall
        }

    def may_be_stopped(self, step: Step, running: Mapping[int, Progress]) -> bool:
        """Return whether `step` may be aborted for a new request, with all its work lost."""
        return (
            self.may_stop
            and self._may_lose > 0.0
            and bool(step.runs)
            and all(running[run.slot].is_background and run.media is None for run in step.runs)
        )

    def ended(
        self, step: Step, running: Mapping[int, Progress], seconds: float, *, was_stopped: bool
    ) -> None:
        """Record the time that the step took or lost. Call it before a sequence leaves."""
        if was_stopped:
            self._may_lose -= seconds
        elif self._may_lose < MOST_LOST and any(
            running[run.slot].is_background for run in step.runs
        ):
            self._may_lose = min(MOST_LOST, self._may_lose + seconds)
