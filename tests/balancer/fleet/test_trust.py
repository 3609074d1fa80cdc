"""What an agent may have at once, by what it has shown."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.trust import (
    FIRST_SLOTS,
    NO_LIMIT,
    PROBE_PAUSE,
    UNRESPONSIVE,
    Needed,
    Trust,
)


def test_a_new_agent_gets_few_and_twice_as_many_with_each_answer_that_begins() -> None:
    trust = Trust()
    assert trust.allowed == FIRST_SLOTS == 4
    allowed = []
    while trust.answered(64):
        allowed.append(trust.allowed)
    assert allowed == [8, 16, 32, 64]
    assert not trust.issues


def test_an_agent_with_few_slots_has_all_of_them_at_once() -> None:
    trust = Trust()
    assert not trust.answered(FIRST_SLOTS)
    assert trust.allowed == FIRST_SLOTS


def test_what_it_leaves_unanswered_halves_it_down_to_a_probe_a_minute() -> None:
    trust = Trust()
    trust.failed(10.0)
    trust.failed(10.0)
    assert (trust.allowed, trust.issues, trust.probe_at) == (1, (), inf)
    trust.failed(10.0)
    assert trust.allowed == 0
    [issue] = trust.issues
    assert issue.code == UNRESPONSIVE
    assert issue.hint
    assert trust.probe_at == 10.0 + PROBE_PAUSE
    assert not trust.probe(10.0 + PROBE_PAUSE - 1)
    assert trust.probe(10.0 + PROBE_PAUSE)
    assert trust.allowed == 1
    assert not trust.probe(1000.0), "one at a time"
    trust.failed(80.0)
    assert (trust.allowed, trust.probe_at) == (0, 80.0 + PROBE_PAUSE)


def test_a_probe_that_is_answered_closes_the_circuit() -> None:
    trust = Trust(1)
    trust.failed(0.0)
    assert trust.probe(PROBE_PAUSE)
    assert trust.answered(64)
    assert (trust.allowed, trust.issues, trust.probe_at) == (2, (), inf)


def test_one_that_no_other_can_replace_may_use_all_its_slots() -> None:
    trust = Trust(1)
    trust.failed(0.0)
    trust.is_needed = True
    assert trust.allowed == NO_LIMIT
    assert trust.issues


A, B, C = LinkId(1), LinkId(2), LinkId(3)


def test_needed_are_those_that_no_other_can_replace() -> None:
    needed = Needed()
    assert needed.serves(A, "m", is_open=False) == {A: True}
    assert needed.serves(C, "n", is_open=False) == {C: True}, "of another model"
    assert needed.serves(B, "m", is_open=False) == {A: False}, "either would do"
    assert needed.serves(B, "m", is_open=True) == {A: True}, "the other one does not answer"
    assert needed.serves(A, "m", is_open=True) == {B: True}, "none of them does"
    assert needed.serves(A, "m", is_open=False) == {B: False}
    assert needed.serves(A, None, is_open=False) == {A: False, B: True}, "it has left"
    assert needed.serves(B, "n", is_open=True) == {B: False}
    assert needed.serves(C, None, is_open=False) == {C: False, B: True}


@given(
    events=st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.sampled_from([None, "m", "m", "n"]), st.booleans())
    )
)
def test_who_is_needed_after_any_history(
    events: list[tuple[LinkId, str | None, bool]],
) -> None:
    needed, known = Needed(), dict.fromkeys((A, B, C), False)
    state: dict[LinkId, tuple[str, bool]] = {}
    for link, model, is_open in events:
        state.pop(link, None)
        if model is not None:
            state[link] = (model, is_open)
        known |= needed.serves(link, model, is_open=is_open)
        for each in (A, B, C):
            others = [s for other, s in state.items() if other != each]
            is_needed = each in state and (state[each][0], False) not in others
            assert known[each] == is_needed


@given(
    events=st.lists(st.sampled_from(["answered", "failed", "probe"])), slots=st.integers(0, 4096)
)
def test_it_is_never_negative_nor_without_bound(events: list[str], slots: int) -> None:
    trust, now = Trust(), 0.0
    for event in events:
        now += 20.0
        if event == "answered":
            trust.answered(slots)
        elif event == "failed":
            trust.failed(now)
        else:
            trust.probe(now)
        assert 0 <= trust.earned <= max(2 * slots, FIRST_SLOTS)
        assert trust.is_open == bool(trust.issues)
        assert trust.is_open or trust.probe_at == inf
        assert trust.allowed or trust.probe_at < inf, "a probe comes"
