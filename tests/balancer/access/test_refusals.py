"""When a refusal is worth a line in the log, and when an entry in the diary."""

from arriero.balancer.access.refusals import (
    GOES_ON,
    HOUR,
    MAX_CALLERS,
    MAX_ENTRIES,
    MINUTE,
    STOPPED,
    Outcome,
    Refusals,
)


def test_a_line_is_one_a_second_for_each_caller_door_and_kind() -> None:
    refusals = Refusals()
    assert refusals.refused("log_in", "unknown_key", "a", 0.0).is_logged
    assert not refusals.refused("log_in", "unknown_key", "a", 0.9).is_logged
    assert refusals.refused("log_in", "role", "a", 0.9).is_logged
    assert refusals.refused("inference", "unknown_key", "a", 0.9).is_logged
    assert refusals.refused("log_in", "unknown_key", "b", 0.9).is_logged
    assert refusals.refused("log_in", "unknown_key", "a", 1.0).is_logged


def noted(refusals: Refusals, who: str, times: int, now: float) -> list[int]:
    """How many refusals each entry tells of."""
    outcomes = [refusals.refused("log_in", "unknown_key", who, now) for _ in range(times)]
    return [each.num_noted for each in outcomes if each.num_noted]


def test_who_goes_on_has_one_entry_an_hour() -> None:
    refusals = Refusals()
    assert noted(refusals, "a", GOES_ON - 1, 0.0) == []
    assert noted(refusals, "a", GOES_ON - 1, MINUTE) == [], "another minute"
    assert noted(refusals, "a", 1000, MINUTE) == [GOES_ON]
    assert noted(refusals, "a", 1000, HOUR) == []
    assert refusals.refused("agents", "unknown_key", "a", HOUR).num_noted == 1, "another door"
    assert len(noted(refusals, "a", 1000, MINUTE + HOUR)) == 1


def test_an_agent_has_one_at_once() -> None:
    refusals = Refusals()
    assert refusals.refused("agents", "unknown_key", "a", 0.0) == Outcome(True, 1)
    assert refusals.refused("agents", "unknown_key", "a", 60.0) == Outcome(True, 0)


def test_who_goes_on_has_stopped_after_a_while() -> None:
    refusals = Refusals()
    noted(refusals, "once", 1, 0.0)
    noted(refusals, "a", GOES_ON, 0.0)
    refusals.refused("agents", "unknown_key", "rack", 0.0)
    assert refusals.going_on(0.0) == {"log_in": ["a"], "agents": ["rack"]}
    refusals.refused("agents", "unknown_key", "rack", MINUTE)
    assert refusals.going_on(STOPPED) == {"agents": ["rack"]}
    assert refusals.going_on(STOPPED + MINUTE) == {}


def test_many_callers_are_bounded_and_have_few_lines_and_entries() -> None:
    refusals = Refusals()
    outcomes = [
        refusals.refused("inference", "no_key", f"10.0.{number % 5000}", number / 1e4)
        for number in range(50_000)
    ]
    refusals.check_integrity()
    assert sum(each.is_logged for each in outcomes) <= 6 * MAX_CALLERS
    assert sum(each.num_noted > 0 for each in outcomes) <= MAX_ENTRIES
    assert len(refusals) <= MAX_CALLERS + 1
    assert refusals.refused("inference", "no_key", "late", 2 * HOUR).is_logged
    assert len(refusals) < MAX_CALLERS, "those that have stopped make room"
