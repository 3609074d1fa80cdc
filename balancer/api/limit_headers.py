"""Headers of every answer that say how much of a caller's limits is left.

The headers have OpenAI's names, with times such as `1m30s`. Under `/v1/messages` they have
Anthropic's names, with times of day. A streamed answer has the values at its beginning.
"""

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta

from aiohttp import web

from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..fleet.view import NO_STANDING, Level, Standing
from .transport.callers import known_caller

ANTHROPIC = "/v1/messages"

Signal = Callable[[web.Request, web.StreamResponse], Awaitable[None]]


def limit_headers(runtime: FleetRuntime) -> Signal:
    """Return a handler for `on_response_prepare` that adds the headers."""

    async def add(request: web.Request, response: web.StreamResponse) -> None:
        standing = runtime.views.standing(known_caller(request))
        if standing is NO_STANDING:
            return
        if request.path.startswith(ANTHROPIC):
            response.headers.update(anthropic_headers(standing, datetime.now(UTC)))
        else:
            response.headers.update(openai_headers(standing))

    return add


def openai_headers(standing: Standing) -> dict[str, str]:
    """Return `x-ratelimit-limit-requests` and so on, for each limit that the caller has."""
    headers = {}
    for name, level in _levels(standing):
        headers[f"x-ratelimit-limit-{name}"] = str(level.limit)
        headers[f"x-ratelimit-remaining-{name}"] = str(level.remaining)
        headers[f"x-ratelimit-reset-{name}"] = duration(level.reset_after)
    return headers


def anthropic_headers(standing: Standing, now: datetime) -> dict[str, str]:
    """Return `anthropic-ratelimit-requests-limit` and so on; `now` must have a time zone."""
    headers = {}
    for name, level in _levels(standing):
        reset = now + timedelta(seconds=level.reset_after)
        headers[f"anthropic-ratelimit-{name}-limit"] = str(level.limit)
        headers[f"anthropic-ratelimit-{name}-remaining"] = str(level.remaining)
        headers[f"anthropic-ratelimit-{name}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
    return headers


def duration(seconds: float) -> str:
    """Return a duration in OpenAI's form: `0s`, `120ms`, `1.5s`, `1m0s`."""
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{minutes:.0f}m{rest:.12g}s" if minutes else f"{round(rest, 3):.12g}s"


def _levels(standing: Standing) -> Iterator[tuple[str, Level]]:
    if standing.requests is not None:
        yield "requests", standing.requests
    if standing.tokens is not None:
        yield "tokens", standing.tokens
