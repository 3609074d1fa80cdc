"""Which stream each holder has."""

from arriero.agent.engine.kv_cache.streams import StreamCells
from arriero.agent.engine.step import Clear, Copy, Place


def test_a_holder_gets_the_first_free_stream() -> None:
    streams = StreamCells(slots=2, count=2)
    assert [streams.open(7), streams.open(8)] == [Place(7, 0), Place(8, 1)]
    assert not streams.has_free
    streams.close(7)
    assert (streams.stream(7), streams.stream(8)) == (None, 1)
    assert streams.open(0) == Place(0, 0)
    streams.check_integrity()


def test_what_is_copied_counts_twice() -> None:
    streams = StreamCells(slots=1, count=2)
    streams.open(0)
    streams.grow(0, 10)
    streams.open(5)
    assert streams.copy(0, 5, 4) == Copy(0, 5, 4, count=10)
    assert (streams.num_used, streams.num_in_use, streams.num_alone(5)) == (14, 10, 4)
    streams.check_integrity()


def test_a_stream_is_handed_over_with_its_first_cells() -> None:
    streams = StreamCells(slots=1, count=1)
    streams.open(0)
    streams.grow(0, 10)
    assert streams.hand_over(0, 5, 10) == [Place(5, 0, 0)]
    assert streams.hand_over(5, 0, 8) == [Place(0, 0, 5), Clear(0, 8)]
    assert (streams.num_used, streams.num_in_use) == (8, 8)
    streams.check_integrity()
