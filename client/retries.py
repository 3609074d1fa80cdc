"""When a call may be made again, and after which pause.

A call is made again only where that is safe: it was not accepted, or it was lost before anything of
its answer came. An answer that has begun is never begun again behind its reader's back.
"""

from dataclasses import dataclass

from .errors import ArrieroError, RequestFailed, Unreachable

FIRST_PAUSE = 0.2
LAST_PAUSE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """At most `limit` more attempts. Pauses double from `first_pause` to `last_pause`, in seconds.

    A balancer's `Retry-After` counts instead, up to `last_pause`.
    """

    limit: int = 4
    first_pause: float = FIRST_PAUSE
    last_pause: float = LAST_PAUSE

    def pause(self, attempt: int, error: ArrieroError, jitter: float) -> float | None:
        """Seconds until the next attempt after `attempt` (from 0); `None`: give up.

        `jitter` from 0 to 1 spreads clients that failed together: pauses vary by half.
        """
        if attempt >= self.limit or not _may_help(error):
            return None
        pause: float = self.first_pause * 2**attempt
        if isinstance(error, RequestFailed) and error.retry_after is not None:
            pause = max(pause, error.retry_after)
        return min(pause, self.last_pause) * (0.75 + jitter / 2)


NEVER = Retries(limit=0)


def _may_help(error: ArrieroError) -> bool:
    if isinstance(error, RequestFailed):
        return error.is_retryable
    return isinstance(error, Unreachable)
