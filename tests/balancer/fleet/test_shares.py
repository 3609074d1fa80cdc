"""Pools against plain dictionaries, and what their rules promise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.shares import EVERYBODY, Amounts, FairEviction, Holding, Shares

HOLDERS = st.sampled_from("abcd")
CHANGES = st.lists(st.tuples(HOLDERS, st.integers(-6, 9)), max_size=200)


@given(CHANGES)
def test_amounts_add_up_and_the_largest_is_known(changes: list[tuple[str, int]]) -> None:
    amounts: Amounts[str] = Amounts()
    plain: dict[str, int] = {}
    for holder, change in changes:
        has = plain.get(holder, 0)
        if has + change < 0:
            with pytest.raises(ValueError, match=f"given back by {holder}"):
                amounts.add(holder, change)
            continue
        amounts.add(holder, change)
        plain[holder] = has + change
        amounts.check_integrity()
        assert {each: amounts[each] for each in plain} == plain
        assert amounts.total == sum(plain.values())
        assert len(amounts) == sum(has > 0 for has in plain.values())
        largest = amounts.largest()
        assert amounts[largest] == max(plain.values()) if largest else not any(plain.values())


@given(st.integers(1, 1000), CHANGES)
def test_whoever_gets_more_has_at_most_what_stays_free(
    bound: int, changes: list[tuple[str, int]]
) -> None:
    shares: Shares[str] = Shares(bound, caps={"d": bound // 8})
    for holder, amount in changes:
        if amount < 0:
            shares.give_back(holder, min(-amount, shares.held(holder)))
            continue
        may, before = shares.may_take(holder, amount), shares.held(holder)
        assert shares.claim(holder, amount) is may
        assert shares.held(holder) == before + amount * may
        if may and amount:
            assert shares.held(holder) <= shares.free
        assert shares.held("d") <= bound // 8
        shares.check_integrity()


@given(st.integers(1, 8), st.integers(1, 4))
def test_a_newcomer_finds_as_much_as_those_who_take_all_they_can(num: int, piece: int) -> None:
    shares: Shares[int] = Shares(1000)
    hungry = set(range(num))
    while hungry:
        hungry = {each for each in hungry if shares.claim(each, piece)}
    each_has = shares.held(0)
    assert abs(each_has - 1000 / (num + 1)) <= (num + 1) * piece
    assert shares.free >= each_has
    while shares.claim(num, piece):
        pass
    assert shares.held(num) >= each_has / 2 - piece


def test_one_holder_alone_gets_half() -> None:
    shares: Shares[str] = Shares(100)
    assert shares.claim("a", 50)
    assert shares.refusal("a", 1) == "share"
    assert shares.refusal("b", 51) == "full"
    assert not shares.claim("a", 1)
    assert not shares.claim("b", 51)
    assert shares.num_refused == {"share": 1, "full": 1, "evicted": 0}
    assert (shares.num_holders, shares.largest(), shares.total) == (1, "a", 50)


def test_what_must_be_held_is_and_leaves_others_less() -> None:
    shares: Shares[str] = Shares(100)
    shares.take("a", 120)
    assert (shares.free, shares.refusal("b", 1)) == (0, "full")
    assert shares.may_take("b", 0) is False, "it is over its bound"
    shares.give_back("a", 120)
    assert (shares.num_holders, shares.largest()) == (0, None)


def test_everybody_together_leaves_room_for_nobody_else() -> None:
    shares: Shares[str] = Shares(100, everybody=EVERYBODY)
    assert shares.claim(EVERYBODY, 90)
    assert shares.refusal(EVERYBODY, 11) == "full"
    assert (shares.refusal("a", 6), shares.refusal("a", 5)) == ("share", None)


def test_what_others_add_to_is_counted_anew() -> None:
    shares: Shares[str] = Shares(100)
    assert shares.claim("a", 10)
    shares.recount({"a": 30, "b": 20, "c": 0})
    assert (shares.total, shares.held("a"), shares.num_holders) == (50, 30, 2)
    assert shares.refusal("a", 11) == "share"
    shares.check_integrity()


def test_the_oldest_of_whoever_has_most_goes() -> None:
    pool: FairEviction[str, str] = FairEviction(10, 100)
    for item, size in (("a1", 3), ("b1", 2), ("a2", 3)):
        pool.add(item, item[0], size)
    assert pool.evict() is None
    pool.use("a1")
    pool.grow("b1", 3)
    assert pool.evict() == "a2"
    pool.add("b2", "b", 4)
    assert pool.evict() == "b1", "b has more now, and its oldest goes although a's is older"
    assert pool.evict() is None
    assert "b1" not in pool
    assert pool.sizes.num_refused["evicted"] == 2
    with pytest.raises(ValueError, match="here already"):
        pool.add("b2", "b", 1)
    pool.check_integrity()


def test_a_pool_is_full_by_number_too() -> None:
    pool: FairEviction[str, int] = FairEviction(1000, 3)
    for item, holder in enumerate("aabb"):
        pool.add(item, holder, 100 if holder == "b" else 0)
    assert pool.evict() == 0
    assert pool.counts.num_refused["evicted"] == 1


def test_what_is_larger_than_its_fair_share_costs_nobody_anything() -> None:
    pool: FairEviction[str, str] = FairEviction(100, 100)
    for item, size in (("a1", 30), ("b1", 30), ("c1", 10)):
        assert pool.claim(item, item[0], size)
    assert not pool.claim("c2", "c", 41), "a and b have 30 each"
    assert pool.sizes.num_refused["share"] == 1
    assert pool.evict() is None
    assert pool.claim("c2", "c", 40)
    assert (pool.evict(), pool.evict()) == ("c1", None)
    assert pool.claim("c2", "c", 5), "in place of the larger one"
    assert pool.sizes.held("c") == 5


@given(
    st.lists(st.tuples(HOLDERS, st.integers(0, 120), st.integers(0, 5)), max_size=60),
)
def test_what_was_claimed_stays(steps: list[tuple[str, int, int]]) -> None:
    pool: FairEviction[str, tuple[str, int]] = FairEviction(100, 8)
    for holder, size, number in steps:
        item = (holder, number)
        was_there = item in pool
        is_held = pool.claim(item, holder, size)
        assert is_held or (item in pool) is was_there
        while pool.evict() is not None:
            assert not is_held or item in pool
        assert not is_held or item in pool
        pool.check_integrity()


STEPS = st.lists(st.tuples(HOLDERS, st.integers(0, 30), st.booleans()), max_size=60)


@given(STEPS)
def test_who_has_less_than_its_part_loses_nothing(steps: list[tuple[str, int, bool]]) -> None:
    pool: FairEviction[str, int] = FairEviction(100, 10)
    holders: list[str] = []
    order: list[int] = []
    for holder, size, is_used in steps:
        item = len(holders)
        holders.append(holder)
        pool.add(item, holder, size)
        order.append(item)
        if is_used and order[0] in pool:
            pool.use(order[0])
            order.append(order.pop(0))
        while True:
            held = {each: pool.sizes.held(each) for each in "abcd"}
            counts = {each: pool.counts.held(each) for each in "abcd"}
            if (gone := pool.evict()) is None:
                break
            owner = holders[gone]
            assert held[owner] == max(held.values()) or counts[owner] == max(counts.values())
            assert gone == next(each for each in order if holders[each] == owner)
            order.remove(gone)
        pool.check_integrity()
        assert pool.sizes.total <= 100
        assert len(pool) == len(order) <= 10
    for item in order:
        pool.remove(item)
    assert not pool.sizes.num_holders


def test_a_holding_gives_back_what_it_holds() -> None:
    shares: Shares[str] = Shares(100)
    holding = Holding(shares, "a")
    assert holding.claim(40)
    assert not holding.claim(11)
    assert (holding.amount, shares.held("a")) == (40, 40)
    holding.move_to("b")
    assert (shares.held("a"), shares.held("b")) == (0, 40)
    holding.give_back(10)
    with pytest.raises(ValueError, match="given back of 30"):
        holding.give_back(31)
    holding.give_back()
    assert shares.total == 0
