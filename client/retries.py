"""Decides whether to repeat a call, and after which pause.

A call is repeated only if that is safe: it was not accepted, or it was lost before any part of its
answer came. An answer that has begun is never repeated.
"""

from dataclasses import dataclass

from .errors import ArrieroError, RequestFailed, Unreachable

FIRST_PAUSE = 0.2
LAST_PAUSE = 10.0

_REFUSED = {
    *("queue_full", "queue_timeout", "rate_limited", "overloaded", "shutting_down"),
    "model_failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """At most `limit` more attempts. Pauses double from `first_pause` to `last_pause`, in seconds.

    A balancer's `Retry-After` replaces the pause, up to `last_pause`. `patience` is the limit for
    requests that the balancer did not begin, because it had no room or no connection; by default
    it equals `limit`.
    """

    limit: int = 4
    patience: int | None = None
    first_pause: float = FIRST_PAUSE
    last_pause: float = LAST_PAUSE

    def pause(self, attempt: int, error: ArrieroError, jitter: float) -> float | None:
        """Return the seconds until the next attempt after `attempt` (from 0); `None`: give up.

        Failures for which `is_untouched` is true are counted separately. `jitter` from 0 to 1
        spreads clients that failed together: pauses vary by half.
        """
        limit = self.limit if self.patience is None or not is_untouched(error) else self.patience
        if attempt >= limit or not _may_help(error) or self._is_too_soon(error):
            return None
        pause: float = self.first_pause * 2 ** min(attempt, 32)
        if isinstance(error, RequestFailed) and error.retry_after is not None:
            pause = max(pause, error.retry_after)
        return min(pause, self.last_pause) * (0.75 + jitter / 2)

    def _is_too_soon(self, error: ArrieroError) -> bool:
        """Return whether all attempts would come before the failed model is loaded again."""
        if not isinstance(error, RequestFailed) or error.code != "model_failed":
            return False
        return error.retry_after is not None and error.retry_after > self.last_pause


NEVER = Retries(limit=0)


def is_untouched(error: ArrieroError) -> bool:
    """Return whether the balancer has not begun the request."""
    if isinstance(error, RequestFailed):
        return error.code in _REFUSED
    return isinstance(error, Unreachable) and not error.was_sent


def _may_help(error: ArrieroError) -> bool:
    if isinstance(error, RequestFailed):
        return error.is_retryable
    return isinstance(error, Unreachable)
