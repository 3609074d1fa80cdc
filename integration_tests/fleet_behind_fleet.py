"""Two fleets, of which one has agents that forward to the other's balancer."""

from typing import Any

from integration_tests.daemons import Daemon, Fleet


class Fleets:
    """`inner` has an engine; `outer` has an agent that forwards to `inner`."""

    def __init__(self, inner: Fleet, outer: Fleet) -> None:
        self.inner = inner
        self.outer = outer

    async def both(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The answers to the same request, directly and forwarded."""
        return [await post(fleet, path, body) for fleet in (self.inner, self.outer)]


async def post(fleet: Fleet, path: str, body: dict[str, Any]) -> Any:
    async with fleet.http.post(fleet.inference + path, json=body) as response:
        return await response.json()


async def forwarding(
    fleet: Fleet, upstream: str, *, env: dict[str, str] | None = None, **settings: object
) -> Daemon:
    """An agent of `fleet` that forwards to `upstream`."""
    no_engine = {"model": None, "context_size": None, "threads": None}
    return await fleet.start_agent(upstream=upstream, env=env, **no_engine, **settings)
