"""Which kept prefix gives up its stream, where it goes, and what that copies."""

from arriero.agent.engine.kv_cache.allowance import LEAST_IN_PIECE, Allowance
from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.kv_cache.stream_eviction import StreamEviction
from arriero.agent.engine.kv_cache.stream_holders import StreamHolders
from arriero.agent.engine.step import Clear, Edit, Park

LONG = LEAST_IN_PIECE * 4
"""Cells that are worth parking."""


class Cache:
    """Two streams, both of which kept prefixes have; the first one was used longer ago."""

    def __init__(self, *lengths: int, most_parked: int = 10 * LONG) -> None:
        self.edits: list[Edit] = []
        self.holders = StreamHolders(
            slots=2, holders=6, num_streams=2, most_parked=most_parked, edits=self.edits
        )
        self.allowance = Allowance()
        self.allowance.renew(10 * LONG)
        self.eviction = StreamEviction(self.holders, self.allowance, self.edits)
        for slot, length in enumerate(lengths):
            keys = [slot] * length
            self.holders.streams.put(slot, beside=())
            self.holders.lengths[slot] = length
            assert self.holders.make_number()
            self.holders.keep(slot, keys)
        self.edits.clear()
        self.first, *_ = self.holders.idle


def test_the_least_recently_used_is_parked() -> None:
    cache = Cache(LONG, LONG)
    cache.eviction.make_room(sparing=None)
    assert cache.edits == [Park(cache.first, 0, LONG)]
    assert cache.holders.residency.parked(cache.first) == LONG
    assert cache.holders.streams.has_free
    cache.eviction.make_room(sparing=None)
    assert len(cache.edits) == 1, "there is room already"


def test_what_is_shared_with_a_newcomer_is_spared() -> None:
    cache = Cache(LONG, LONG)
    cache.eviction.make_room(sparing=cache.first)
    assert cache.first in cache.holders.streams


def test_a_short_one_is_dropped() -> None:
    cache = Cache(LEAST_IN_PIECE - 1, LONG)
    cache.eviction.make_room(sparing=None)
    assert cache.edits == [Clear(cache.first)]


def test_without_host_memory_nothing_is_parked() -> None:
    cache = Cache(LONG, LONG, most_parked=0)
    cache.eviction.make_room(sparing=None)
    assert cache.edits == [Clear(cache.first)]


def test_who_begins_with_all_of_it_copies_nothing() -> None:
    cache = Cache(LONG, LONG)
    assert cache.eviction.goes_with_its_stream(cache.first, LONG)
    assert cache.eviction.num_copied(Found(LONG, cache.first)) == 0
    assert not cache.eviction.goes_with_its_stream(cache.first, LONG - 1), "the rest is worth it"


def test_who_begins_with_a_part_copies_it_and_what_has_to_go() -> None:
    cache = Cache(LONG, 2 * LONG)
    first, second = cache.holders.idle
    assert cache.eviction.num_copied(Found(5, second)) == 2 * LONG + LONG
    assert cache.eviction.num_copied(Found()) == LONG
    assert first == cache.first


def test_among_equals_one_that_gives_its_stream() -> None:
    cache = Cache(LONG, LONG)
    assert cache.eviction.cheapest(1, [0] * LONG) == cache.first
    assert cache.eviction.cheapest(1, [0] * 5) == 1, "nobody gives that away"
