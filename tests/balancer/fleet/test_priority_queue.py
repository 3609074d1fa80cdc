"""Rankings against a plain dictionary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.priority_queue import Groups, PriorityQueue

KEYS = st.sampled_from("abcde")
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 5)), max_size=300)


@given(CHANGES)
def test_ranking_keeps_the_order_of_the_latest_ranks(changes: list[tuple[str, int | None]]) -> None:
    ranking: PriorityQueue[str, float] = PriorityQueue()
    ranks: dict[str, float] = {}
    for key, rank in changes:
        if rank is not None:
            ranking.set(key, rank)
            ranks[key] = rank
        elif key in ranks:
            ranking.remove(key)
            del ranks[key]
        ranking.check_integrity()
        expected = min(((rank, key) for key, rank in ranks.items()), default=None)
        assert ranking.first() == expected
        assert set(ranking) == set(ranks)
        assert len(ranking) == len(ranks)
    in_order = [key for _, key in sorted((rank, key) for key, rank in ranks.items())]
    assert ranking.pop_until(5) == in_order
    assert ranking.first() is None


def test_pop_until_takes_what_is_due_and_leaves_the_rest() -> None:
    ranking: PriorityQueue[str, float] = PriorityQueue()
    for key, rank in (("late", 3.0), ("now", 2.0), ("early", 1.0)):
        ranking.set(key, rank)
    assert ranking.pop_until(2.0) == ["early", "now"]
    assert list(ranking) == ["late"]
    assert ranking.get("early") is None


def test_outdated_entries_do_not_pile_up() -> None:
    ranking: PriorityQueue[int, float] = PriorityQueue()
    ranking.set(0, 0.0)
    for i in range(1, 10_000):
        ranking.set(i, float(i))
        ranking.remove(i)
        ranking.check_integrity()
    assert ranking.first() == (0.0, 0)


def test_removing_what_is_not_there_is_a_mistake() -> None:
    ranking: PriorityQueue[str, float] = PriorityQueue()
    with pytest.raises(KeyError):
        ranking.remove("a")


def test_groups_come_and_go_with_their_keys() -> None:
    groups: Groups[str | None, str, float] = Groups()
    groups.set("llama", "a", 2.0)
    groups.set("llama", "b", 1.0)
    groups.set(None, "c", 3.0)
    assert groups.first("llama") == (1.0, "b")
    assert groups.first("other") is None
    assert sorted(groups.keys("llama")) == ["a", "b"]
    groups.remove(None, "c")
    assert list(groups) == ["llama"]
    groups.check_integrity()
    with pytest.raises(KeyError):
        groups.remove("other", "a")
