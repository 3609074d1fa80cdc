"""Which addresses of a name are dialled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.discovery.addresses import (
    DIALS_PER_WORKER,
    MOST_ADDRESSES,
    MOST_WORKERS,
    Addresses,
    Connect,
    ConnectionPlan,
    Decision,
    Disconnect,
    Workers,
    of_one_kind,
    plan_connections,
)


def test_a_name_with_one_address_is_dialled_as_it_is() -> None:
    addresses = Addresses()
    assert addresses.resolved(["10.0.0.1"]) == [Connect(None)]
    assert addresses.resolved(["10.0.0.2"]) == []


def test_each_of_several_is_dialled() -> None:
    addresses = Addresses()
    assert addresses.resolved(["b", "a", "b"]) == [Connect("a"), Connect("b")]
    assert addresses.resolved(["a", "b", "c"]) == [Connect("c")]


def test_an_address_that_is_gone_is_left_once_its_connection_is_lost() -> None:
    addresses = Addresses()
    addresses.resolved(["a", "b", "c"])
    addresses.joined("a")
    assert addresses.resolved(["b", "d"]) == [Connect("d"), Disconnect("c")]
    assert addresses.lost("b") == [], "it may come back"
    assert addresses.lost("a") == [Disconnect("a")]
    assert addresses.dialled == {"b", "d"}


def test_a_name_that_cannot_be_looked_up_stands_for_what_it_was() -> None:
    addresses = Addresses()
    assert addresses.resolved([]) == [Connect(None)], "so that somebody says that nobody answers"
    assert addresses.resolved(["a", "b"]) == [Connect("a"), Connect("b"), Disconnect(None)]
    assert addresses.resolved([]) == []


def test_addresses_are_bounded() -> None:
    addresses = Addresses()
    addresses.resolved([f"a{n}" for n in range(MOST_ADDRESSES + 5)])
    assert len(addresses.dialled) == MOST_ADDRESSES


def test_a_host_with_an_address_of_each_kind_is_one() -> None:
    assert of_one_kind([(True, "127.0.0.1"), (False, "::1")]) == ["127.0.0.1"]
    assert of_one_kind([(False, "::1"), (False, "::2")]) == ["::1", "::2"]
    assert of_one_kind([]) == []


NAMES = ["a", "b", "c"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("resolved"), st.lists(st.sampled_from(NAMES))),
            st.tuples(st.sampled_from(["joined", "lost"]), st.sampled_from([None, *NAMES])),
        )
    )
)
def test_what_is_dialled_is_what_was_decided(events: list[tuple[str, object]]) -> None:
    addresses, dialled = Addresses(), set[str | None]()
    last: list[str] | None = None
    for event, about in events:
        decisions: list[Decision] = []
        if event == "resolved":
            assert isinstance(about, list)
            last = about or last or []
            decisions = addresses.resolved(about)
        elif event == "joined":
            addresses.joined(about)  # type: ignore[arg-type]
        else:
            decisions = addresses.lost(about)  # type: ignore[arg-type]
        for decision in decisions:
            if isinstance(decision, Connect):
                assert decision.address not in dialled
                dialled.add(decision.address)
            else:
                dialled.remove(decision.address)
        assert dialled == addresses.dialled
        addresses.check_integrity()
        if last is not None:
            assert dialled >= (set(last) if len(set(last)) > 1 else {None})


TWO = Workers(2, frozenset("ab"))


@pytest.mark.parametrize("header", [None, "", "a,b", "-1;a", "²;a", "9999;a"])
def test_who_says_nothing_of_workers_is_one(header: str | None) -> None:
    assert Workers.parse(header) == Workers()


def test_what_is_told() -> None:
    assert Workers.parse("2;a,b") == TWO
    assert Workers.parse("3;") == Workers(3)
    many = Workers.parse("999;" + ",".join(map(str, range(999))))
    assert (many.num, len(many.living)) == (MOST_WORKERS, MOST_WORKERS)


def test_there_is_a_connection_for_each() -> None:
    assert plan_connections(Workers(), {0: "a"}) == ConnectionPlan()
    assert plan_connections(TWO, {0: "a"}) == ConnectionPlan(
        opened=(1,), num_dials=2 * DIALS_PER_WORKER
    )
    assert plan_connections(TWO, {0: "a", 1: None}).num_dials == 2 * DIALS_PER_WORKER
    assert plan_connections(TWO, {0: "a", 1: "b"}) == ConnectionPlan()


def test_one_that_starts_again_is_waited_for_patiently() -> None:
    assert plan_connections(Workers(2, frozenset("a")), {0: "a", 1: None}) == ConnectionPlan()


def test_who_is_gone_for_good_is_dialled_no_more() -> None:
    met = {0: "a", 1: None, 2: "b", 3: None}
    assert plan_connections(TWO, met) == ConnectionPlan(left=(3,))
    assert plan_connections(Workers(), {0: "a", 1: None}) == ConnectionPlan(left=(1,))
