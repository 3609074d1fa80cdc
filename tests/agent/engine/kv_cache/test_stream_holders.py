"""Who has which stream, and where kept prefixes are."""

import pytest

from arriero.agent.engine.kv_cache.stream_holders import StreamHolders
from arriero.agent.engine.step import Clear, Edit, HandOver

SLOTS = 2


def make(edits: list[Edit]) -> StreamHolders:
    return StreamHolders(slots=SLOTS, holders=5, num_streams=2, most_parked=100, edits=edits)


def run(holders: StreamHolders, slot: int, keys: list[int]) -> None:
    """A sequence that has computed `keys` in a stream of its own."""
    holders.streams.put(slot, beside=holders.running)
    holders.lengths[slot] = len(keys)
    holders.announce(slot, keys, None)


def end(holders: StreamHolders, slot: int, keys: list[int]) -> None:
    """It ends, and what it computed is kept."""
    assert holders.make_number()
    holders.keep(slot, keys)
    holders.forget(slot)
    holders.check_integrity()


def test_a_kept_prefix_has_the_stream_it_was_computed_in() -> None:
    edits: list[Edit] = []
    holders = make(edits)
    run(holders, 0, [1, 2, 3])
    assert (holders.num_in_use, holders.running, holders.idle) == (3, [0], [])
    end(holders, 0, [1, 2, 3])
    [kept] = holders.idle
    assert edits == [HandOver(0, kept)]
    assert (holders.num_in_use, holders.running, holders.num_computed(kept)) == (0, [], 3)
    assert holders.begins_with(kept, [1, 2]) and not holders.begins_with(kept, [2])


def test_who_begins_with_a_part_gets_the_stream_without_the_rest() -> None:
    edits: list[Edit] = []
    holders = make(edits)
    run(holders, 0, [1, 2, 3])
    end(holders, 0, [1, 2, 3])
    [kept] = holders.idle
    edits.clear()
    holders.hand_over(kept, 1, 2)
    assert edits == [HandOver(kept, 1), Clear(1, 2)]
    assert (holders.lengths, holders.idle) == ({1: 2}, [])
    assert kept not in holders.tree


def test_one_that_is_the_beginning_of_another_is_not_kept_twice() -> None:
    edits: list[Edit] = []
    holders = make(edits)
    run(holders, 0, [1, 2, 3])
    end(holders, 0, [1, 2, 3])
    [longer] = holders.idle
    run(holders, 1, [1, 2])
    end(holders, 1, [1, 2])
    assert holders.idle == [longer]
    run(holders, 1, [1, 2, 3, 4])
    end(holders, 1, [1, 2, 3, 4])
    [longest] = holders.idle
    assert holders.num_computed(longest) == 4, "and the shorter one goes"


def test_the_oldest_gives_its_number_up() -> None:
    edits: list[Edit] = []
    holders = make(edits)
    for first in range(3):
        holder = holders.residency.put()
        holders.tree.insert(holder, [first])
        holders.use(holder)
        holders.residency.park(holder, 1)
    assert not holders.residency.has_free
    oldest = holders.residency.oldest
    assert holders.make_number()
    assert edits == [Clear(oldest)] if oldest is not None else False


def test_a_prefix_in_two_places() -> None:
    holders = make([])
    run(holders, 0, [1, 2])
    end(holders, 0, [1, 2])
    [kept] = holders.idle
    holders.residency.park(kept, 2)
    with pytest.raises(RuntimeError, match="not in one place"):
        holders.check_integrity()
