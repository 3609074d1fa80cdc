"""Which records of the history wait, and how many of them."""

import pytest

from arriero.balancer.store import history_backlog
from arriero.balancer.store.history_backlog import HistoryBacklog, HistoryBatch, Record, batch_of
from arriero.balancer.store.records import EndedRequest, SavedStep, UsageRow


def step(at: int) -> SavedStep:
    return SavedStep(1, at, "{}")


def ending(id: str) -> EndedRequest:
    return EndedRequest(id=id, ended_at=0, kind="generate", code="stop", caller="anonymous")


def usage(day: int, requests: int = 1, caller: str = "alice") -> UsageRow:
    return UsageRow(run="run", day=day, caller=caller, model="tiny", requests=requests)


def taken(backlog: HistoryBacklog) -> list[Record]:
    """All that waits; it is written."""
    batch = backlog.next_batch()
    backlog.written(batch, None)
    return list(batch)


def test_records_are_written_by_their_kinds() -> None:
    backlog = HistoryBacklog()
    assert not backlog.has_any
    assert backlog.append([step(1)], [ending("r")], [usage(1)]) == 0
    assert backlog.has_any and len(backlog) == 3
    assert backlog.unwritten == HistoryBatch((step(1),), (ending("r"),)), "no usage"
    assert batch_of(backlog.next_batch()) == HistoryBatch((step(1),), (ending("r"),), (usage(1),))
    assert len(taken(backlog)) == 3
    assert not backlog.has_any and backlog.unwritten == HistoryBatch()


def test_what_comes_during_a_try_is_not_lost_and_not_written_twice() -> None:
    backlog = HistoryBacklog()
    backlog.append([step(1)], [])
    tried = backlog.next_batch()
    backlog.append([step(2)], [])
    backlog.written(tried, None)
    assert taken(backlog) == [step(2)]


def test_a_part_may_be_written_and_one_lost() -> None:
    backlog = HistoryBacklog()
    backlog.append([step(at) for at in range(4)], [ending("r")])
    batch = backlog.next_batch()
    backlog.written(batch[:2], None)
    backlog.lost(batch[2])
    assert backlog.unwritten == HistoryBatch((step(3),), (ending("r"),))


def test_the_oldest_of_the_history_are_dropped_and_counted() -> None:
    backlog, room = HistoryBacklog(), history_backlog.MAX_STEPS
    assert backlog.append([step(at) for at in range(room)], [ending("r")]) == 0
    assert backlog.append([step(room)], []) == 1
    found = batch_of(backlog.next_batch())
    assert (found.steps[0], found.steps[-1], len(found.steps)) == (step(1), step(room), room)
    assert found.endings == (ending("r"),)


def test_of_usage_the_newest_is_written() -> None:
    backlog = HistoryBacklog()
    backlog.append([], [], [usage(1), usage(1, caller="bob")])
    tried = backlog.next_batch()
    backlog.append([], [], [usage(1, requests=2)])
    assert list(backlog.next_batch()) == [usage(1, 2), usage(1, caller="bob")]
    backlog.written(tried, None)
    assert taken(backlog) == [usage(1, 2)], "what was written is not that"


def test_usage_that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_backlog, "MAX_USAGE", 2)
    backlog = HistoryBacklog()
    assert backlog.append([], [], [usage(day) for day in (1, 2, 3)]) == 1
    assert taken(backlog) == [usage(2), usage(3)]
