"""The state of the fleet from its events: a snapshot, and deltas applied to it."""

from collections.abc import Iterable
from typing import Any


class FleetState:
    """The agents and requests by id, and the totals."""

    def __init__(self) -> None:
        self.totals: dict[str, Any] = {}
        self.agents: dict[str, dict[str, Any]] = {}
        self.requests: dict[str, dict[str, Any]] = {}
        self.rates: dict[str, float] = {}
        self.rate: float | None = None

    def apply(self, name: str, data: dict[str, Any]) -> None:
        """Apply an event; unknown events are ignored."""
        match name:
            case "snapshot":
                self.agents = {each["id"]: dict(each) for each in data["agents"]}
                self.requests = {each["id"]: dict(each) for each in data["requests"]}
                self._take_totals(data)
            case "delta":
                self._merge(self.agents, data.get("agents", ()), data.get("agents_left", ()))
                requests, ended = data.get("requests", ()), data.get("requests_ended", ())
                self._merge(self.requests, requests, ended)
                self._take_totals(data)
            case "throughput":
                self.rate, self.rates = data["tokens_per_second"], data["agents"]
            case _:
                pass

    def _take_totals(self, data: dict[str, Any]) -> None:
        others = ("agents", "requests", "agents_left", "requests_ended", "clocks")
        self.totals = {key: value for key, value in data.items() if key not in others}

    def _merge(
        self,
        known: dict[str, dict[str, Any]],
        changed: Iterable[dict[str, Any]],
        gone: Iterable[str],
    ) -> None:
        for each in changed:
            known.setdefault(each["id"], {}).update(each)
        for id in gone:
            known.pop(id, None)
