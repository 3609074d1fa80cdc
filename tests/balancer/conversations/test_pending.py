"""What waits to be written, and how much of it."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arriero.balancer.conversations import pending
from arriero.balancer.conversations.pending import (
    MOST_USED,
    MOST_WAITING,
    MOST_WRITTEN,
    PendingConversations,
    Waiting,
)


def waiting(id: str, num_bytes: int = 1) -> Waiting:
    return Waiting(id, "response", "ana@1", object(), num_bytes)


def ids(found: PendingConversations) -> list[str]:
    return [each.id for each in found.next_batch()[0]]


def test_the_oldest_are_written_first_and_so_many_at_once() -> None:
    found = PendingConversations(1000)
    for number in range(MOST_WRITTEN + 2):
        assert found.add(waiting(str(number))) == 0
    assert ids(found) == [str(number) for number in range(MOST_WRITTEN)]
    assert (len(found), "0" in found, found.is_being_written("0")) == (MOST_WRITTEN + 2, True, True)
    found.written()
    assert ("0" in found, found.get("0")) == (False, None)
    assert ids(found) == [str(MOST_WRITTEN), str(MOST_WRITTEN + 1)]
    found.written()
    assert not found.has_any


def test_a_large_one_is_written_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "MOST_BYTES_WRITTEN", 10)
    found = PendingConversations(1000)
    for id, num_bytes in (("a", 50), ("b", 6), ("c", 4), ("d", 1)):
        found.add(waiting(id, num_bytes))
    batches = []
    while found.has_any:
        batches.append(ids(found))
        found.written()
    assert batches == [["a"], ["b", "c"], ["d"]]


def test_what_could_not_be_written_is_next_again() -> None:
    found = PendingConversations(10)
    found.add(waiting("a", 6))
    assert ids(found) == ["a"]
    found.add(waiting("b", 3))
    assert found.back() == 0
    found.add(waiting("c"))
    assert ids(found) == ["a", "b", "c"]


def test_of_more_than_may_wait_the_oldest_are_given_up() -> None:
    found = PendingConversations(10)
    assert [found.add(waiting(id, 4)) for id in "abc"] == [0, 0, 1]
    assert "a" not in found
    assert found.add(waiting("d", 11)) == 3, "itself, too"
    few = PendingConversations(MOST_WAITING * 2)
    assert sum(few.add(waiting(str(number))) for number in range(MOST_WAITING + 3)) == 3


def test_what_is_dropped_is_not_written() -> None:
    found = PendingConversations(10)
    found.add(waiting("a"))
    found.use("x")
    found.drop("a")
    found.drop("x")
    assert found.next_batch() == ((), ())


def test_uses_are_noted_once_and_are_bounded() -> None:
    found = PendingConversations(10)
    found.add(waiting("a"))
    for id in ("a", "x", "x"):
        found.use(id)
    batch, used = found.next_batch()
    assert ([each.id for each in batch], used) == (["a"], ("x",)), "what is written is used"
    found.written()
    for number in range(MOST_USED + 5):
        found.use(str(number))
    assert len(found.next_batch()[1]) == MOST_USED


class Machine(RuleBasedStateMachine):
    """Nothing that was added is lost, but what was dropped or given up."""

    ids = st.sampled_from("abcdef")

    def __init__(self) -> None:
        super().__init__()
        self.pending = PendingConversations(20)
        self.is_writing = False

    @rule(id=ids, num_bytes=st.integers(0, 25))
    def add(self, id: str, num_bytes: int) -> None:
        num_given_up = self.pending.add(waiting(id, num_bytes))
        assert num_given_up or self.pending.get(id) is not None

    @rule(id=ids)
    def drop(self, id: str) -> None:
        self.pending.drop(id)
        assert id not in self.pending or self.pending.is_being_written(id)

    @rule(id=ids)
    def use(self, id: str) -> None:
        self.pending.use(id)

    @rule()
    def take(self) -> None:
        if not self.is_writing:
            self.pending.next_batch()
            self.is_writing = True

    @rule(is_well=st.booleans())
    def end(self, is_well: bool) -> None:
        if self.is_writing:
            self.is_writing = False
            if is_well:
                self.pending.written()
            else:
                self.pending.back()

    @invariant()
    def holds(self) -> None:
        self.pending.check_integrity()


TestMachine = Machine.TestCase
