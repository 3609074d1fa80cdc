"""Who holds which beginnings."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing.prefix_index import MAX_HOLDERS, PrefixIndex

A, B = LinkId(1), LinkId(2)


def test_the_longest_beginnings_come_first() -> None:
    beliefs = PrefixIndex()
    beliefs.computes(A, [1, 2], [10, 30])
    beliefs.computes(B, [1, 2, 3], [10, 30, 60])
    assert beliefs.holders([1, 2, 3], most=4) == {B: 2, A: 1}
    assert beliefs.holders([1, 2, 3], most=1) == {B: 2}
    assert beliefs.holders([1, 9], most=4) == {A: 0, B: 0}
    assert beliefs.last_held(A, [1, 2, 3]) == 1
    assert beliefs.last_held(A, [9]) is None
    beliefs.check_integrity()


def test_what_was_not_used_for_longest_goes_from_its_end() -> None:
    beliefs = PrefixIndex()
    beliefs.computes(A, [1, 2], [10, 30])
    beliefs.computes(A, [1, 3], [10, 50])
    assert beliefs.tokens_of(A) == 10 + 20 + 40
    beliefs.trim(A, 50)
    assert beliefs.last_held(A, [1, 2]) == 0
    assert beliefs.last_held(A, [1, 3]) == 1
    beliefs.trim(A, 49)
    assert beliefs.last_held(A, [1, 3]) == 0
    beliefs.trim(A, 0)
    assert (len(beliefs), beliefs.tokens_of(A)) == (0, 0)
    beliefs.check_integrity()


def test_an_answer_makes_its_prompt_longer() -> None:
    beliefs = PrefixIndex()
    beliefs.computes(A, [1], [10])
    beliefs.grows(A, 1, 5)
    beliefs.grows(A, 7, 5)
    beliefs.grows(B, 1, 5)
    assert beliefs.tokens_of(A) == 15
    beliefs.check_integrity()


def test_what_an_agent_does_not_hold_is_dropped_there() -> None:
    beliefs = PrefixIndex()
    for link in (A, B):
        beliefs.computes(link, [1, 2, 3], [10, 20, 40])
    assert beliefs.drop(A, [3, 2, 9]) == 2
    assert beliefs.holders([1, 2, 3], most=4) == {B: 2, A: 0}
    assert beliefs.tokens_of(A) == 10
    assert beliefs.drop(A, [1]) == 1
    assert beliefs.drop(A, [1]) == beliefs.drop(LinkId(9), [1]) == 0
    beliefs.check_integrity()


def test_an_agent_that_left_holds_nothing() -> None:
    beliefs = PrefixIndex()
    for link in (A, B):
        beliefs.computes(link, [1, 2], [10, 20])
    beliefs.forget(A)
    beliefs.forget(A)
    assert beliefs.holders([1, 2], most=4) == {B: 1}
    assert len(beliefs) == 2
    beliefs.check_integrity()


def test_a_beginning_that_all_hold_is_remembered_of_some() -> None:
    beliefs = PrefixIndex()
    for number in range(MAX_HOLDERS + 5):
        beliefs.computes(LinkId(number), [1], [10])
    assert len(beliefs.holders([1], most=1000)) == len(beliefs) == MAX_HOLDERS
    beliefs.check_integrity()


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4),
            st.lists(st.integers(0, 30), max_size=5, unique=True),
            st.sampled_from(["computes", "computes", "trim", "forget", "grows"]),
        ),
        max_size=60,
    )
)
def test_beliefs_are_bounded_and_agree(steps: list[tuple[int, list[int], str]]) -> None:
    beliefs = PrefixIndex(max_entries=20)
    for number, keys, what in steps:
        link = LinkId(number)
        match what:
            case "computes":
                beliefs.computes(link, keys, [10 * (i + 1) for i in range(len(keys))])
                assert len(beliefs) <= 20
            case "trim":
                beliefs.trim(link, 30)
                assert beliefs.tokens_of(link) <= 30
            case "forget":
                beliefs.forget(link)
                assert link not in beliefs.holders(keys, most=99)
            case _:
                beliefs.grows(link, keys[0] if keys else 0, 3)
        beliefs.check_integrity()


def test_what_is_on_an_agents_disk_is_there_when_it_comes_back() -> None:
    beliefs = PrefixIndex()
    home = ("agent", "disk")
    beliefs.computes(A, [1, 2], [10, 30])
    beliefs.computes(B, [1], [10])
    beliefs.set_aside(A, home)
    assert beliefs.holders([1, 2], most=4) == {B: 0}
    assert len(beliefs) == 3, "what is set aside counts"
    beliefs.check_integrity()
    back = LinkId(3)
    beliefs.computes(back, [9], [5])
    beliefs.take_back(back, home)
    beliefs.take_back(LinkId(4), home)
    assert beliefs.holders([1, 2], most=4) == {back: 1, B: 0}
    assert beliefs.tokens_of(back) == 35
    beliefs.trim(back, 30)
    assert beliefs.last_held(back, [9]) is None or beliefs.last_held(back, [1, 2]) == 0
    beliefs.check_integrity()


def test_what_is_set_aside_again_takes_the_place_of_what_was() -> None:
    beliefs = PrefixIndex()
    home = ("agent", "disk")
    for keys in ([1, 2], [3]):
        beliefs.computes(A, keys, [10, 30][: len(keys)])
        beliefs.set_aside(A, home)
        assert len(beliefs) == len(keys)
        beliefs.check_integrity()


def test_what_is_set_aside_is_bounded() -> None:
    beliefs = PrefixIndex(max_entries=8)
    for number in range(9):
        beliefs.computes(A, [2 * number, 2 * number + 1], [1, 2])
        beliefs.set_aside(A, (f"agent {number}", "disk"))
        beliefs.check_integrity()
    beliefs.set_aside(B, ("agent with nothing", "disk"))
    assert len(beliefs) == 4
    beliefs.take_back(A, ("agent 6", "disk"))
    assert beliefs.tokens_of(A) == 0, "the oldest are forgotten"
    beliefs.take_back(A, ("agent 8", "disk"))
    assert beliefs.tokens_of(A) == 2
