from typing import Any

from arriero.cli.fleet_state import FleetState

SNAPSHOT: dict[str, Any] = {
    "queue": {"depth": 1, "limit": 9},
    "agents": [{"id": "a", "name": "one", "state": "ready"}],
    "requests": [{"id": "r", "state": "queued"}],
}


def test_deltas_change_what_the_snapshot_said() -> None:
    state = FleetState()
    state.apply("snapshot", SNAPSHOT)
    state.apply("delta", {"queue": {"depth": 0}, "agents": [{"id": "a", "state": "draining"}]})
    state.apply("delta", {"agents": [{"id": "b", "name": "two"}], "requests_ended": ["r", "x"]})
    assert state.agents == {
        "a": {"id": "a", "name": "one", "state": "draining"},
        "b": {"id": "b", "name": "two"},
    }
    assert (state.requests, state.totals) == ({}, {})
    assert SNAPSHOT["agents"][0]["state"] == "ready"


def test_another_snapshot_takes_the_place_of_everything() -> None:
    state = FleetState()
    state.apply("snapshot", SNAPSHOT)
    state.apply("snapshot", {"agents": [], "requests": [], "queue": {"depth": 4}})
    assert (state.agents, state.requests, state.totals) == ({}, {}, {"queue": {"depth": 4}})


def test_throughput_is_of_the_last_second() -> None:
    state = FleetState()
    state.apply("throughput", {"tokens_per_second": 9.5, "agents": {"a": 9.5}})
    assert (state.rate, state.rates) == (9.5, {"a": 9.5})
    state.apply("something_new", {})
