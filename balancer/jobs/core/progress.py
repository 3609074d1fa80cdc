"""How fast a batch goes, and how long it takes: lines ended within the last minute."""

from collections import deque

WINDOW = 60.0
MAX_SAMPLES = 120


class Progress:
    """Times are those of one clock, in seconds."""

    def __init__(self, now: float) -> None:
        self._samples: deque[tuple[float, int]] = deque([(now, 0)], maxlen=MAX_SAMPLES)
        self.num_ended = 0
        """Lines since this was made."""

    def ended(self, now: float) -> None:
        """One more line has its result."""
        self.num_ended += 1
        if now - self._samples[-1][0] >= WINDOW / MAX_SAMPLES:
            self._samples.append((now, self.num_ended))

    def rate(self, now: float) -> float | None:
        """Lines a second; `None` until some have ended."""
        while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW:
            self._samples.popleft()
        since, num_before = self._samples[0]
        num = self.num_ended - num_before
        return num / (now - since) if num and now > since else None
