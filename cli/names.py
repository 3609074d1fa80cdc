"""Which agent a person means: by id, or by name."""

from collections.abc import Iterable
from typing import Any

from .arguments import UsageError


def agent_named(agents: Iterable[dict[str, Any]], word: str) -> dict[str, Any]:
    """The agent with this id or name. Raises `UsageError` where there is none, or several."""
    agents = list(agents)
    found = [agent for agent in agents if word in (agent["id"], agent["name"])]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(agent["id"] for agent in found)
        raise UsageError(f"several agents are called {word!r}; give the id of one: {ids}")
    names = ", ".join(sorted({agent["name"] for agent in agents})) or "none"
    raise UsageError(f"no agent is called {word!r}; connected: {names}")
