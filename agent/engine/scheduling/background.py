"""Requests of the class `batch` give way to all others, within an engine too.

While the prompt of another one waits, theirs are not read. On CPUs, where each further sequence
makes a step longer, they do not generate meanwhile either, for `max_stall` seconds at most. A step
that computes nothing else may be stopped when another one comes, as long as they lose no more time
by that than they get. While others are here, and for a while after, a step reads less of their
prompts (`prefill`).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ..step import Step
from .progress import Progress

RECENT = 60.0
"""Seconds for which others count as here after they have gone, by the scheduler's clock."""

MOST_LOST = 0.5
"""Seconds that may be lost in a row; after that, as many as steps with them have taken since."""


@dataclass(slots=True)
class Background:
    """`may_pause`: whether steps are much shorter without some sequences. `may_stop`: whether what
    a stopped step computed can be taken back at once."""

    max_stall: float
    may_pause: bool
    may_stop: bool
    _others_until: float = float("-inf")
    _may_lose: float = MOST_LOST

    def look(self, everybody: Iterable[Progress], now: float) -> None:
        """See who is here, before each step."""
        if any(not one.is_background for one in everybody):
            self._others_until = now + RECENT

    def are_others_here(self, now: float) -> bool:
        """Whether others are here, or were lately."""
        return now < self._others_until

    def staying(
        self, generating: dict[int, Progress], readers: Collection[Progress], now: float
    ) -> dict[int, Progress]:
        """Those who generate in a step that reads prompts of `readers`, if any."""
        if not self.may_pause or not readers or any(one.is_background for one in readers):
            return generating
        return {
            slot: one
            for slot, one in generating.items()
            if not one.is_background or now - one.last_token_at >= self.max_stall
        }

    def may_be_stopped(self, step: Step, running: Mapping[int, Progress]) -> bool:
        """Whether `step` may end early, with nothing computed, for somebody who comes."""
        return (
            self.may_stop
            and self._may_lose > 0.0
            and bool(step.runs)
            and all(running[run.slot].is_background and run.media is None for run in step.runs)
        )

    def ended(
        self, step: Step, running: Mapping[int, Progress], seconds: float, *, was_stopped: bool
    ) -> None:
        """What became of the step. Call it before anybody leaves."""
        if was_stopped:
            self._may_lose -= seconds
        elif any(running[run.slot].is_background for run in step.runs):
            self._may_lose = min(MOST_LOST, self._may_lose + seconds)
