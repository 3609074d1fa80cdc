"""What an agent may have at once, by what it has shown."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.circuit_breaker import (
    FIRST_SLOTS,
    NO_LIMIT,
    PROBE_PAUSE,
    UNRESPONSIVE,
    CircuitBreaker,
    Needed,
)
from arriero.balancer.fleet.decisions import LinkId


def test_a_new_agent_gets_few_and_twice_as_many_with_each_answer_that_begins() -> None:
    breaker = CircuitBreaker()
    assert breaker.allowed == FIRST_SLOTS == 4
    allowed = []
    while breaker.answered(64):
        allowed.append(breaker.allowed)
    assert allowed == [8, 16, 32, 64]
    assert not breaker.issues


def test_an_agent_with_few_slots_has_all_of_them_at_once() -> None:
    breaker = CircuitBreaker()
    assert not breaker.answered(FIRST_SLOTS)
    assert breaker.allowed == FIRST_SLOTS


def test_what_it_leaves_unanswered_halves_it_down_to_a_probe_a_minute() -> None:
    breaker = CircuitBreaker()
    breaker.failed(10.0)
    breaker.failed(10.0)
    assert (breaker.allowed, breaker.issues, breaker.probe_at) == (1, (), inf)
    breaker.failed(10.0)
    assert breaker.allowed == 0
    [issue] = breaker.issues
    assert issue.code == UNRESPONSIVE
    assert issue.hint
    assert breaker.probe_at == 10.0 + PROBE_PAUSE
    assert not breaker.probe(10.0 + PROBE_PAUSE - 1)
    assert breaker.probe(10.0 + PROBE_PAUSE)
    assert breaker.allowed == 1
    assert not breaker.probe(1000.0), "one at a time"
    breaker.failed(80.0)
    assert (breaker.allowed, breaker.probe_at) == (0, 80.0 + PROBE_PAUSE)


def test_a_probe_that_is_answered_closes_the_circuit() -> None:
    breaker = CircuitBreaker(1)
    breaker.failed(0.0)
    assert breaker.probe(PROBE_PAUSE)
    assert breaker.answered(64)
    assert (breaker.allowed, breaker.issues, breaker.probe_at) == (2, (), inf)


def test_one_that_no_other_can_replace_may_use_all_its_slots() -> None:
    breaker = CircuitBreaker(1)
    breaker.failed(0.0)
    breaker.is_needed = True
    assert breaker.allowed == NO_LIMIT
    assert breaker.issues


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
    breaker, now = CircuitBreaker(), 0.0
    for event in events:
        now += 20.0
        if event == "answered":
            breaker.answered(slots)
        elif event == "failed":
            breaker.failed(now)
        else:
            breaker.probe(now)
        assert 0 <= breaker.earned <= max(2 * slots, FIRST_SLOTS)
        assert breaker.is_open == bool(breaker.issues)
        assert breaker.is_open or breaker.probe_at == inf
        assert breaker.allowed or breaker.probe_at < inf, "a probe comes"
