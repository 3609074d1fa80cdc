"""What waits to be written, and how much of it."""

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arriero.balancer.durable import conversation_backlog
from arriero.balancer.durable.conversation_backlog import (
    MOST_WAITING,
    MOST_WRITTEN,
    ConversationBacklog,
    UnwrittenConversation,
)


def waiting(id: str, num_bytes: int = 1, owner: str = "ana@1") -> UnwrittenConversation:
    return UnwrittenConversation(id, "response", owner, object(), num_bytes)


def write(backlog: ConversationBacklog) -> list[str]:
    """The next batch; it is written."""
    ids = backlog.next_batch()
    backlog.written(ids, backlog.unwritten(ids))
    return list(ids)


def test_the_oldest_are_written_first_and_so_many_at_once() -> None:
    backlog = ConversationBacklog(1000)
    for number in range(MOST_WRITTEN + 2):
        assert backlog.add(waiting(str(number))) == 0
    assert list(backlog.next_batch()) == [str(number) for number in range(MOST_WRITTEN)]
    assert (len(backlog), "0" in backlog) == (MOST_WRITTEN + 2, True)
    write(backlog)
    assert ("0" in backlog, backlog.get("0")) == (False, None)
    assert write(backlog) == [str(MOST_WRITTEN), str(MOST_WRITTEN + 1)]
    assert not backlog.has_any


def test_a_large_one_is_written_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_backlog, "MOST_BYTES_WRITTEN", 10)
    backlog = ConversationBacklog(1000)
    for id, num_bytes in (("a", 50), ("b", 6), ("c", 4), ("d", 1)):
        backlog.add(waiting(id, num_bytes))
    batches = []
    while backlog.has_any:
        batches.append(write(backlog))
    assert batches == [["a"], ["b", "c"], ["d"]]


def test_what_one_owner_has_too_much_of_is_given_up_and_not_anothers() -> None:
    backlog = ConversationBacklog(10)
    assert backlog.add(waiting("ben", 4, "ben@1")) == 0
    assert [backlog.add(waiting(str(number), 3)) for number in range(4)] == [0, 0, 1, 1]
    assert "ben" in backlog and "3" in backlog
    backlog.check_integrity()


def test_one_that_is_replaced_while_it_is_written_is_written_again() -> None:
    backlog = ConversationBacklog(10)
    backlog.add(waiting("a"))
    backlog.add(waiting("b"))
    ids = backlog.next_batch()
    what = backlog.unwritten(ids)
    backlog.add(newer := waiting("a", 2))
    backlog.written(ids, what)
    assert backlog.unwritten(backlog.next_batch()) == (newer,)


def test_one_that_cannot_be_written_is_left_out() -> None:
    backlog = ConversationBacklog(10)
    for id in "ab":
        backlog.add(waiting(id))
    backlog.lost("a")
    assert write(backlog) == ["b"]
    assert list(backlog.alone) == ["a"]
    backlog.add(waiting("a"))
    assert not backlog.alone


def test_of_more_than_may_wait_the_oldest_are_given_up() -> None:
    backlog = ConversationBacklog(10)
    assert [backlog.add(waiting(id, 4)) for id in "abc"] == [0, 0, 1]
    assert "a" not in backlog and "a" in backlog.alone
    assert backlog.add(waiting("d", 11)) == 3, "itself, too"
    few = ConversationBacklog(MOST_WAITING * 2)
    assert sum(few.add(waiting(str(number))) for number in range(MOST_WAITING + 3)) == 3


def test_what_is_dropped_is_not_written() -> None:
    backlog = ConversationBacklog(10)
    backlog.add(waiting("a"))
    backlog.drop("a")
    assert not backlog.has_any and list(backlog.next_batch()) == []


class Machine(RuleBasedStateMachine):
    """Nothing that was added is lost, but what was dropped or given up."""

    ids = st.sampled_from("abcdef")

    def __init__(self) -> None:
        super().__init__()
        self.backlog = ConversationBacklog(20)
        self.writing: Sequence[UnwrittenConversation] | None = None

    @rule(id=ids, num_bytes=st.integers(0, 25))
    def add(self, id: str, num_bytes: int) -> None:
        num_given_up = self.backlog.add(waiting(id, num_bytes))
        assert num_given_up or self.backlog.get(id) is not None

    @rule(id=ids)
    def drop(self, id: str) -> None:
        self.backlog.drop(id)
        assert id not in self.backlog

    @rule()
    def take(self) -> None:
        if self.writing is None:
            self.writing = self.backlog.unwritten(self.backlog.next_batch())

    @rule(is_well=st.booleans())
    def end(self, is_well: bool) -> None:
        writing, self.writing = self.writing, None
        if writing is not None and is_well:
            self.backlog.written((), writing)
            assert all(self.backlog.get(each.id) is not each for each in writing)

    @invariant()
    def holds(self) -> None:
        self.backlog.check_integrity()


TestMachine = Machine.TestCase
