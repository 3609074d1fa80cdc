"""What a bad network does to a packet: nothing, late delivery, or loss."""

from dataclasses import dataclass, field
from random import Random

BACKLOG = 0.5
"""Seconds' worth of packets that wait for a narrow line; what comes on top is dropped."""


@dataclass(frozen=True, slots=True)
class Weather:
    """`delay` in seconds, `loss` from 0 to 1, `rate` in bytes a second or 0 for any."""

    delay: float = 0.0
    loss: float = 0.0
    rate: float = 0.0
    is_cut: bool = False


FAIR = Weather()


@dataclass(slots=True)
class Line:
    """One direction of one host's connection."""

    chance: Random
    weather: Weather = FAIR
    _is_free_at: float = field(default=0.0)

    def arrival(self, now: float, size: int) -> float | None:
        """When a packet of `size` bytes arrives that is sent `now`; `None`: never."""
        weather = self.weather
        if weather.is_cut or (weather.loss and self.chance.random() < weather.loss):
            return None
        if not weather.rate:
            return now + weather.delay
        start = max(now, self._is_free_at)
        if start - now > BACKLOG:
            return None
        self._is_free_at = start + size / weather.rate
        return self._is_free_at + weather.delay
