"""What one caller has used in the last minute, and what its running requests hold.

The tokens that a request may take are held from its admission to its end; then what it took
counts at that moment, and the rest is free again.

Invariants: each request is admitted once and ended once; what is held is the sum of what the
requests that have not ended hold.
"""

from dataclasses import dataclass

from ....shared.errors import InvalidRequest, RateLimited, RequestError
from ....shared.inference import RequestId
from ..identity import CallerLimits
from .sliding_window import SlidingWindow

SOON = 1.0
"""Seconds after which to try again what a running request's end will make room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one request asks of its caller's limits.

    `num_prompt_tokens` and `num_answer_tokens` are estimates from above; without `max_tokens` the
    answer may take more. What does not count as a request (`num_requests` of 0) is only counted
    among those that run at once. `num_copies` of it come together, and all are let in or none.
    """

    num_requests: int = 1
    num_prompt_tokens: int = 0
    num_answer_tokens: int = 0
    has_max_tokens: bool = False
    num_copies: int = 1

    @property
    def num_tokens(self) -> int:
        """Those of prompt and answer, of one copy."""
        return self.num_prompt_tokens + self.num_answer_tokens


@dataclass(frozen=True, slots=True)
class Level:
    """How much of a minute's limit is left; all of it after `reset_after` seconds."""

    limit: int
    remaining: int
    reset_after: float


@dataclass(frozen=True, slots=True)
class Standing:
    """How a caller stands; `None` where it has no limit."""

    requests: Level | None = None
    tokens: Level | None = None


NO_STANDING = Standing()


class UsageAccount:
    """Limits are given with each call, since they may change."""

    __slots__ = ("_held", "_requests", "_tokens")

    def __init__(self) -> None:
        self._requests = SlidingWindow()
        self._tokens = SlidingWindow()
        self._held: dict[RequestId, int] = {}

    @property
    def live(self) -> list[RequestId]:
        """Requests that have not ended."""
        return list(self._held)

    @property
    def num_live(self) -> int:
        """How many requests have not ended."""
        return len(self._held)

    def refusal(self, limits: CallerLimits, demand: Demand, now: float) -> RequestError | None:
        """Why a request would be over its limits; for how long, as far as that is known."""
        return (
            _too_many_together(limits, demand)
            or self._too_many_at_once(limits, demand)
            or self._too_many_requests(limits, demand, now)
            or self._too_many_tokens(limits, demand, now)
        )

    def admitted(self, id: RequestId, limits: CallerLimits, demand: Demand, now: float) -> None:
        """`id` was let in: what it asks for is taken."""
        if id in self._held:
            raise ValueError(f"{id} was let in before")
        self._requests.add(demand.num_requests, now)
        most = limits.tokens_per_minute
        self._held[id] = 0 if most is None else min(demand.num_tokens, most)

    def ended(self, id: RequestId, num_tokens: int, now: float) -> None:
        """`id` ended, having taken `num_tokens`: what it held is free again."""
        del self._held[id]
        self._tokens.add(num_tokens, now)

    def standing(self, limits: CallerLimits, now: float) -> Standing:
        """How much is left."""
        held = sum(self._held.values())
        return Standing(
            requests=_level(limits.requests_per_minute, self._requests, 0, now),
            tokens=_level(limits.tokens_per_minute, self._tokens, held, now),
        )

    def _too_many_at_once(self, limits: CallerLimits, demand: Demand) -> RateLimited | None:
        most = limits.max_concurrent
        if most is None or self.num_live + demand.num_copies <= most:
            return None
        return RateLimited(
            f"the limit is {_requests(most)} at once; try again when one has ended",
            retry_after=SOON,
        )

    def _too_many_requests(
        self, limits: CallerLimits, demand: Demand, now: float
    ) -> RateLimited | None:
        most = limits.requests_per_minute
        if most is None or not demand.num_requests:
            return None
        needed = demand.num_requests * demand.num_copies
        if self._requests.used(now) + needed <= most:
            return None
        seconds = self._requests.seconds_until(most - needed, now)
        return RateLimited(
            f"the limit of {_requests(most)} a minute is used up; "
            f"the next is free in {_told(seconds)}",
            retry_after=seconds,
        )

    def _too_many_tokens(
        self, limits: CallerLimits, demand: Demand, now: float
    ) -> RequestError | None:
        most = limits.tokens_per_minute
        if most is None or not demand.num_tokens:
            return None
        if (error := _never_fits(most, demand)) is not None:
            return error
        needed = min(demand.num_tokens * demand.num_copies, most)
        room = most - sum(self._held.values()) - needed
        if self._tokens.used(now) <= room:
            return None
        seconds = SOON if room < 0 else self._tokens.seconds_until(room, now)
        left = max(0, room + needed - self._tokens.used(now))
        return RateLimited(
            f"the limit is {most} tokens a minute, of which {left} are left; this request may take "
            f"{needed}. Try again in {_told(seconds)}",
            retry_after=seconds,
        )

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        if any(held < 0 for held in self._held.values()):
            raise RuntimeError("a request holds less than nothing")


def _too_many_together(limits: CallerLimits, demand: Demand) -> InvalidRequest | None:
    """The error for more copies than any waiting makes room for."""
    num = demand.num_copies
    for most, what in (
        (limits.max_concurrent, "at once"),
        (limits.requests_per_minute, "a minute"),
    ):
        if most is not None and num > max(most, 1):
            return InvalidRequest(
                f"{num} prompts or choices come together, each of which is a request, and the "
                f"limit is {_requests(most)} {what}; ask for at most {most} at a time"
            )
    return None


def _never_fits(most: int, demand: Demand) -> InvalidRequest | None:
    """The error for what no waiting helps. Without `max_tokens` the prompt alone has to fit."""
    prompt = demand.num_prompt_tokens
    if prompt >= most:
        return InvalidRequest(
            f"the prompt has about {prompt} tokens, and the limit is {most} tokens a minute "
            "for prompt and answer together"
        )
    if demand.num_copies > 1 and prompt * demand.num_copies >= most:
        return InvalidRequest(
            f"{demand.num_copies} prompts of about {prompt} tokens come together, and the limit is "
            f"{most} tokens a minute; ask for fewer at a time"
        )
    if demand.has_max_tokens and demand.num_tokens * demand.num_copies > most:
        return InvalidRequest(
            f"`max_tokens`: the limit is {most} tokens a minute, and the prompt has about {prompt} "
            f"of them; ask for at most {most // demand.num_copies - prompt}",
            field="max_tokens",
        )
    return None


def _level(limit: int | None, window: SlidingWindow, held: int, now: float) -> Level | None:
    if limit is None:
        return None
    return Level(limit, max(0, limit - held - window.used(now)), window.seconds_until_empty(now))


def _requests(number: int) -> str:
    return f"{number} request{'s' * (number != 1)}"


def _told(seconds: float) -> str:
    return f"{max(seconds, 0.1):.1f} s"
