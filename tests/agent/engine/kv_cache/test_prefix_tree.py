"""Who holds which prefix."""

from itertools import takewhile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arriero.agent.engine.kv_cache.prefix_tree import Found, PrefixTree


def make(**holders: list[int]) -> PrefixTree:
    cache = PrefixTree()
    for name, tokens in holders.items():
        cache.insert(int(name[1:]), tokens)
    return cache


def find(cache: PrefixTree, tokens: list[int], computed: dict[int, int]) -> Found:
    used_at = {holder: holder for holder in computed}
    return cache.find(tokens, most=len(tokens), computed=computed.__getitem__, used_at=used_at)


def test_how_much_of_its_end_a_holder_has_alone() -> None:
    cache = make(h1=[1, 2, 3, 4], h2=[1, 2, 5], h3=[1, 2, 3])
    assert [cache.num_alone(holder, range(9)) for holder in (1, 2, 3)] == [1, 1, 0]
    cache.remove(2)
    cache.remove(3)
    assert cache.num_alone(1, range(9)) == 4


def test_the_longest_prefix_wins() -> None:
    cache = make(h1=[1, 2, 3], h2=[1, 2, 4, 5])
    assert find(cache, [1, 2, 4, 9], {1: 3, 2: 4}) == Found(3, 2)
    assert find(cache, [1, 2, 3, 9], {1: 3, 2: 4}) == Found(3, 1)
    assert find(cache, [7], {1: 3, 2: 4}) == Found()


def test_of_equals_the_one_used_last() -> None:
    cache = make(h1=[1, 2, 3], h2=[1, 2, 3])
    found = cache.find([1, 2, 3], most=2, computed={1: 3, 2: 3}.__getitem__, used_at={1: 5, 2: 4})
    assert found == Found(2, 1)


def test_what_is_not_computed_is_promised() -> None:
    cache = make(h1=[1, 2, 3, 4], h2=[1, 9])
    assert find(cache, [1, 2, 3, 5], {1: 1, 2: 2}) == Found(1, 2, 3, 1)
    assert find(cache, [1, 2, 3, 5], {1: 3, 2: 2}) == Found(3, 1)
    assert find(cache, [1, 2, 3, 5], {1: 0, 2: 0}).promised == 3


def test_holders_within_and_around_another() -> None:
    cache = make(h1=[1, 2], h2=[1, 2, 3], h3=[1, 5])
    assert cache.others_with_all_of(1) == {2}
    assert cache.others_within(2) == {1}
    assert cache.others_with_all_of(3) == set()


def test_a_holder_enters_once() -> None:
    with pytest.raises(ValueError, match="holder 1"):
        make(h1=[1]).insert(1, [2])


def num_common(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


TOKENS = st.lists(st.integers(0, 2), max_size=8)


def key_of(tokens: list[int]) -> int:
    """The name of a prefix."""
    return int("1" + "".join(map(str, tokens)))


class Machine(RuleBasedStateMachine):
    """Against plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = PrefixTree()
        self.model: dict[int, list[int]] = {}
        self.marked: set[int] = set()
        self.told: set[int] = set()
        """Keys that a balancer believes to be here."""

    @rule(holder=st.integers(0, 5), data=st.data())
    def mark(self, holder: int, data: st.DataObject) -> None:
        if (own := self.model.get(holder)) is None:
            return
        most = len(own) + 2
        positions = sorted(data.draw(st.sets(st.integers(1, most), max_size=most)))
        marks = [(at, key_of([*own, 8, 9][:at])) for at in positions]
        self.cache.mark(holder, marks)
        self.told |= {key for _, key in marks}
        self.marked |= {key for at, key in marks if at <= len(own)}

    @rule(holder=st.integers(0, 5), data=st.data())
    def shorten(self, holder: int, data: st.DataObject) -> None:
        if own := self.model.get(holder):
            length = data.draw(st.integers(1, len(own)))
            self.cache.shorten(holder, length)
            self.model[holder] = own[:length]

    @rule()
    def report(self) -> None:
        while gone := self.cache.marks.take_gone(3):
            self.told -= set(gone.keys)
        assert self.told == self.marked

    @invariant()
    def marks_are_here_as_long_as_their_prefix_is(self) -> None:
        here = {key_of(own[:at]) for own in self.model.values() for at in range(1, len(own) + 1)}
        self.marked &= here
        assert set(self.cache.marks.counts) == self.marked

    @rule(holder=st.integers(0, 5), tokens=TOKENS)
    def insert_or_extend(self, holder: int, tokens: list[int]) -> None:
        if holder in self.model:
            self.cache.extend(holder, tokens)
        else:
            self.cache.insert(holder, tokens)
        self.model[holder] = self.model.get(holder, []) + tokens

    @rule(holder=st.integers(0, 5))
    def remove(self, holder: int) -> None:
        if self.model.pop(holder, None) is not None:
            self.cache.remove(holder)
        assert holder not in self.cache

    @rule(tokens=TOKENS.filter(bool), data=st.data())
    def find(self, tokens: list[int], data: st.DataObject) -> None:
        most = data.draw(st.integers(1, len(tokens)))
        computed = {
            holder: data.draw(st.integers(0, len(own))) for holder, own in self.model.items()
        }
        found = self.cache.find(tokens, most=most, computed=computed.__getitem__, used_at=computed)
        reach = {holder: min(most, num_common(own, tokens)) for holder, own in self.model.items()}
        done = {holder: min(reach[holder], computed[holder]) for holder in self.model}
        assert found.length == max(done.values(), default=0)
        if found.source is not None:
            assert done[found.source] == found.length > 0
        promised = max((reach[h] for h in self.model if computed[h] < reach[h]), default=0)
        assert found.promised == (promised if promised > found.length else 0)
        if found.promised_by is not None:
            assert reach[found.promised_by] == found.promised

    @invariant()
    def same_tokens(self) -> None:
        self.cache.check_integrity()
        for holder, own in self.model.items():
            assert self.cache.keys(holder) == own
            assert self.cache.length(holder) == len(own)
            others = {other: its for other, its in self.model.items() if other != holder}
            assert self.cache.others_with_all_of(holder) == {
                other for other, its in others.items() if its[: len(own)] == own
            }
            assert self.cache.others_within(holder) == {
                other for other, its in others.items() if own[: len(its)] == its
            }


TestAnyHistory = Machine.TestCase
TestAnyHistory.settings = settings(stateful_step_count=30)
