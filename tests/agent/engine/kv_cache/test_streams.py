"""Which stream each holder has, and how busy ones come to lie side by side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.kv_cache.streams import Streams


def filled(count: int, *holders: int) -> Streams:
    """Streams of which the first have these holders."""
    streams = Streams(count)
    for holder in holders:
        streams.put(holder, beside=())
    return streams


def test_a_newcomer_closes_a_hole_or_comes_next_to_the_others() -> None:
    streams = filled(6, 10, 11, 12, 13)
    streams.remove(11)
    assert streams.put(14, beside=[10, 12, 13]) == 1
    streams.remove(10)
    assert streams.put(15, beside=[12, 13]) == 4
    assert not Streams(0).has_free
    assert [streams[one] for one in (14, 12, 13, 15)] == [1, 2, 3, 4]


def test_a_stream_changes_its_owner() -> None:
    streams = filled(2, 7)
    streams.hand_over(7, 8)
    assert 7 not in streams
    assert streams[8] == 0
    with pytest.raises(ValueError, match="has a stream already"):
        filled(2, 7, 8).hand_over(7, 8)


def test_as_little_as_can_be_is_copied() -> None:
    streams = filled(5, 0, 1, 2, 3, 4)
    lengths = {0: 500, 1: 90, 2: 40, 3: 10, 4: 300}
    assert streams.swaps([0, 2], lengths.__getitem__) == [(2, 1, 130)], "the short ones change"
    assert streams.swaps([1, 2, 3], lengths.__getitem__) == []
    streams.remove(1)
    assert streams.swaps([0, 2], lengths.__getitem__) == [(2, 1, 40)], "nobody has to go from there"


@given(data=st.data(), count=st.integers(1, 8))
def test_whoever_is_busy_lies_side_by_side_afterwards(data: st.DataObject, count: int) -> None:
    streams = filled(count, *data.draw(st.permutations(range(count))))
    for holder in data.draw(st.sets(st.integers(0, count - 1))):
        streams.remove(holder)
    held = [holder for holder in range(count) if holder in streams]
    busy = data.draw(st.sets(st.sampled_from(held))) if held else set()
    swaps = streams.swaps(busy, lambda holder: holder)
    for first, second, _ in swaps:
        streams.swap(first, second)
        streams.check_integrity()
    places = sorted(streams[holder] for holder in busy)
    assert places == list(range(places[0], places[0] + len(places))) if places else not swaps
    assert sorted(held) == [holder for holder in range(count) if holder in streams]
    assert streams.swaps(busy, lambda holder: holder) == []
