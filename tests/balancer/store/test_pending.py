"""Writes in their order, with their time and their number."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.store import pending
from arriero.balancer.store.health import LOST
from arriero.balancer.store.pending import HistoryBatch, PendingWrites
from arriero.balancer.store.records import (
    Conflicted,
    EndedRequest,
    NotPersisted,
    Persist,
    Persisted,
    SavedState,
    SavedStep,
    StoreStatus,
    UsageRow,
)


def step(at: int) -> SavedStep:
    return SavedStep(1, at, "{}")


def ending(id: str) -> EndedRequest:
    return EndedRequest(id=id, ended_at=0, kind="generate", code="stop", caller="anonymous")


FIRST, SECOND = Persist(0, "a"), Persist(1, "b")


def test_saves_go_in_their_order_and_before_the_history() -> None:
    writes = PendingWrites()
    writes.append([step(1)], [ending("r")])
    assert writes.save(FIRST, 0) is writes.save(SECOND, 0) is None
    assert len(writes) == 4
    assert writes.next_write() == FIRST
    assert writes.saved() == Persisted(FIRST)
    assert writes.next_write() == SECOND
    assert writes.conflicted(SavedState(5, "x")) == Conflicted(SECOND, SavedState(5, "x"))
    assert writes.next_write() == HistoryBatch((step(1),), (ending("r"),))
    writes.appended()
    assert writes.next_write() is None
    assert writes.status() == StoreStatus()


def test_what_comes_during_a_try_is_not_lost_and_not_written_twice() -> None:
    writes = PendingWrites()
    writes.append([step(1)], [])
    assert writes.next_write() == HistoryBatch((step(1),))
    writes.append([step(2)], [])
    assert writes.is_away("gone", 0) == []
    assert writes.next_write() == HistoryBatch((step(1), step(2)))
    writes.append([step(3)], [])
    writes.appended()
    assert writes.next_write() == HistoryBatch((step(3),))


def test_pauses_double_until_the_store_is_back() -> None:
    writes = PendingWrites()
    writes.append([step(1)], [])
    pauses, now = [], 100.0
    for _ in range(8):
        writes.is_away("gone", now)
        retry_at = writes.retry_at()
        assert retry_at is not None
        pauses.append(retry_at - now)
        now = retry_at
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5])
    assert writes.status() == StoreStatus(100, "gone", num_pending=1)
    writes.next_write()
    writes.appended()
    assert writes.retry_at() is None
    assert writes.status() == StoreStatus()


def test_a_save_is_tried_at_once_and_given_up_in_its_time() -> None:
    writes = PendingWrites()
    for now in range(20):
        writes.is_away("gone", now)
    writes.save(FIRST, 20)
    assert writes.retry_at() is None
    assert writes.is_away("gone", 20) == []
    writes.save(SECOND, 25)
    assert writes.is_away("gone", 29) == []
    assert writes.retry_at() == 30, "its last try is at its deadline"
    assert writes.is_away("gone", 30) == [NotPersisted(FIRST, "the store is away: gone")]
    assert writes.next_write() == SECOND


def test_more_saves_than_there_is_room_for_are_refused() -> None:
    writes = PendingWrites()
    for number in range(pending.MAX_SAVES):
        assert writes.save(Persist(number, ""), 0) is None
    [last] = {writes.save(Persist(99, ""), 0)}
    assert last == NotPersisted(Persist(99, ""), "16 saves wait already; try again later")
    assert len(writes) == pending.MAX_SAVES


def test_the_oldest_of_the_history_are_dropped_and_counted() -> None:
    writes = PendingWrites()
    room = pending.MAX_HISTORY // 2
    writes.append([step(at) for at in range(room)], [ending("r")])
    writes.next_write()
    writes.append([step(room)], [])
    batch = writes.next_write()
    assert isinstance(batch, HistoryBatch)
    assert (batch.steps[0], batch.steps[-1], len(batch.steps)) == (step(1), step(room), room)
    assert batch.endings == (ending("r"),)
    assert writes.status().num_dropped == 1


def test_what_can_never_be_written_is_given_up_alone() -> None:
    writes = PendingWrites()
    writes.save(FIRST, 0)
    writes.append([step(1)], [])
    assert writes.broke(FIRST, "a fault") == [NotPersisted(FIRST, "a fault")]
    batch = writes.next_write()
    assert isinstance(batch, HistoryBatch)
    assert writes.broke(batch, "a fault") == []
    assert writes.status() == StoreStatus(num_dropped=1, fault=LOST)


def usage(day: int, requests: int = 1, caller: str = "alice") -> UsageRow:
    return UsageRow(run="run", day=day, caller=caller, model="tiny", requests=requests)


def test_of_usage_the_newest_is_written() -> None:
    writes = PendingWrites()
    writes.append([], [], [usage(1), usage(1, caller="bob")])
    assert len(writes) == 2
    writes.next_write()
    writes.append([], [], [usage(1, requests=2)])
    writes.is_away("gone", 0)
    assert writes.next_write() == HistoryBatch(usage=(usage(1, 2), usage(1, caller="bob")))
    writes.appended()
    assert writes.next_write() is None


def test_usage_that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "MAX_USAGE", 2)
    writes = PendingWrites()
    writes.append([], [], [usage(day) for day in (1, 2, 3)])
    assert writes.next_write() == HistoryBatch(usage=(usage(2), usage(3)))
    assert writes.status().num_dropped == 1


def tried(writes: PendingWrites, unwritable: set[str]) -> list[HistoryBatch]:
    """Write all that waits into a store that does not take these records; what it took."""
    written = []
    while (batch := writes.next_write()) is not None:
        assert isinstance(batch, HistoryBatch)
        if unwritable & set(names(batch)):
            writes.broke(batch, "a fault")
        else:
            written.append(batch)
            writes.appended()
    return written


def names(batch: HistoryBatch) -> list[str]:
    steps = [str(step.at) for step in batch.steps]
    return [*steps, *(each.id for each in batch.endings), *(row.caller for row in batch.usage)]


NUM = 8
ALL = [
    *(str(at) for at in range(NUM)),
    *(f"r{number}" for number in range(NUM)),
    *(f"caller {number}" for number in range(NUM)),
]


@given(st.sets(st.sampled_from(ALL)))
def test_records_that_cannot_be_written_cost_themselves(unwritable: set[str]) -> None:
    writes = PendingWrites()
    writes.append(
        [step(at) for at in range(NUM)],
        [ending(f"r{number}") for number in range(NUM)],
        [usage(1, caller=f"caller {number}") for number in range(NUM)],
    )
    written = [name for batch in tried(writes, unwritable) for name in names(batch)]
    assert written == [name for name in ALL if name not in unwritable]
    status = writes.status()
    assert (status.num_dropped, status.num_pending) == (len(unwritable), 0)
    assert status.fault == (LOST if unwritable else None)
    writes.append([step(99)], [])
    assert tried(writes, unwritable) == [HistoryBatch((step(99),))]
    assert writes.status().fault is None, "all was written again"


def test_one_bad_record_of_many_is_found_in_few_tries() -> None:
    writes = PendingWrites()
    writes.append([step(at) for at in range(1024)], [])
    num_tries = 0
    while (batch := writes.next_write()) is not None:
        num_tries += 1
        writes.broke(batch, "a fault") if "700" in names(cast("HistoryBatch", batch)) else (
            writes.appended()
        )
    assert num_tries == 21, "each of ten halvings is two tries"


def test_a_store_that_goes_away_during_the_search_gets_the_rest_later() -> None:
    writes = PendingWrites()
    writes.append([step(at) for at in range(4)], [])
    writes.broke(whole := cast("HistoryBatch", writes.next_write()), "a fault")
    assert writes.next_write() == whole.halves()[0]
    writes.append([step(4)], [])
    writes.appended()
    assert len(writes.unwritten) == len(writes) == 3
    writes.is_away("gone", 0)
    assert writes.status() == StoreStatus(0, "gone", num_pending=3)
    assert writes.next_write() == HistoryBatch((step(2), step(3), step(4)))
    writes.appended()
    assert writes.status() == StoreStatus()


def test_a_save_does_not_wait_for_the_search() -> None:
    writes = PendingWrites()
    writes.append([step(1), step(2)], [])
    writes.broke(cast("HistoryBatch", writes.next_write()), "a fault")
    writes.save(FIRST, 0)
    assert writes.next_write() == FIRST
