"""What each caller used, by day: totals, bounds, sums."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.history import usage as usage_module
from arriero.balancer.history.usage import COUNTS, OTHERS, UsageLedger, added_up
from arriero.balancer.store.records import UsageColumn, UsageCounts, UsageQuery, UsageRow
from arriero.shared.errors import RateLimited
from tests.balancer.history.builders import ending

ALL = UsageQuery(since=0, until=100, by=("day", "caller", "model"), limit=1000)


def end(
    ledger: UsageLedger, day: int, caller: str = "alice", model: str = "tiny", code: str = "stop"
) -> None:
    ended = replace(ending(code=code, model=model), caller=Caller(caller))
    ledger.ended(ended, day)
    ledger.check_integrity()


def keys(rows: list[UsageRow]) -> list[tuple[int, str, str, int]]:
    return [(row.day, row.caller, row.model, row.requests) for row in rows]


def test_what_counts() -> None:
    ledger = UsageLedger("run")
    end(ledger, 1)
    refused = replace(ending(code="rate_limited", agent=None, error=RateLimited("later")))
    ledger.ended(replace(refused, caller=Caller("alice")), 1)
    [row] = ledger.take_unwritten()
    assert row == UsageRow(
        run="run",
        day=1,
        caller="alice",
        model="tiny",
        requests=2,
        errors=1,
        prompt_tokens=20,
        cached_tokens=8,
        completion_tokens=14,
    )


def test_only_what_changed_is_written_and_as_a_total() -> None:
    ledger = UsageLedger("run")
    end(ledger, 1)
    end(ledger, 1, "bob")
    assert keys(ledger.take_unwritten()) == [(1, "alice", "tiny", 1), (1, "bob", "tiny", 1)]
    end(ledger, 1)
    assert keys(ledger.take_unwritten()) == [(1, "alice", "tiny", 2)]
    assert ledger.take_unwritten() == []


def test_a_model_that_a_client_made_up_has_no_name() -> None:
    ledger = UsageLedger("run")
    ledger.ended(ending(code="model_not_found", agent=None, model="made up"), 1)
    ledger.ended(ending(model=None), 1)
    assert [row.model for row in ledger.take_unwritten()] == [OTHERS]


def test_old_days_make_room_once_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_module, "MAX_ROWS", 2)
    ledger = UsageLedger("run")
    end(ledger, 1)
    end(ledger, 2)
    ledger.take_unwritten()
    end(ledger, 2, "bob")
    assert ledger.held_from == 2
    assert keys(list(ledger.rows(0, 9))) == [(2, "alice", "tiny", 1), (2, "bob", "tiny", 1)]


def test_beyond_the_bound_nothing_is_lost_but_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_module, "MAX_ROWS", 2)
    ledger = UsageLedger("run")
    end(ledger, 1, model="")
    for number in range(5):
        end(ledger, 1, f"caller-{number}")
        end(ledger, 1, "alice", f"model-{number}")
    assert len(ledger) <= 3
    assert sum(row.requests for row in ledger.rows(1, 1)) == 11


EVENTS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from("abc"), st.sampled_from("xy"), st.booleans()),
    max_size=30,
)


@given(EVENTS, st.permutations(["day", "caller", "model"]), st.integers(1, 3))
def test_sums_are_those_of_what_ended(
    events: list[tuple[int, str, str, bool]], columns: list[UsageColumn], number: int
) -> None:
    ledger, written = UsageLedger("run"), {}
    day = 0
    for pause, caller, model, is_written in events:
        day += pause
        end(ledger, day, caller, model)
        if is_written:
            written |= {(row.day, row.caller, row.model): row for row in ledger.take_unwritten()}
    written |= {(row.day, row.caller, row.model): row for row in ledger.take_unwritten()}
    query = replace(ALL, by=tuple(columns[:number]))
    sums = added_up(ledger.rows(0, 100), query)
    assert sums == added_up(written.values(), query), "a store that has all of it agrees"
    assert sum(each.requests for each in sums) == len(events)
    found = [tuple(getattr(each, name) for name in query.by) for each in sums]
    assert found == sorted(set(found))


def test_no_more_sums_than_are_wanted() -> None:
    ledger = UsageLedger("run")
    for caller in "abc":
        end(ledger, 1, caller)
    found = added_up(ledger.rows(1, 1), replace(ALL, limit=2))
    assert [each.caller for each in found] == ["a", "b"]


def test_counts_are_those_of_the_records() -> None:
    assert UsageCounts(**dict.fromkeys(COUNTS, 3)).errors == 3
