import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.caller import Account
from arriero.balancer.fleet.load_shedding import (
    ENOUGH,
    ENOUGH_FOR_DEADLINE,
    LONGEST_ADMITTED,
    RETRY_AFTER,
    LoadShedding,
    Wait,
    least_ended,
    refusal_of,
)
from arriero.shared.errors import QueueFull
from arriero.shared.inference import PRIORITY_CLASSES, PriorityClass, RequestId

A, B, C = (Account(name, None) for name in "abc")
Place = tuple[Account, int | None, PriorityClass]


def queued(*places: Place) -> LoadShedding:
    shedding = LoadShedding()
    for number, place in enumerate(places, 1):
        shedding.waits(RequestId(str(number)), *place)
    shedding.check_integrity()
    return shedding


def test_the_newest_of_the_caller_with_most_goes() -> None:
    shedding = queued((A, None, "default"), (B, None, "default"), *[(A, None, "default")] * 3)
    assert shedding.yields_to(C, None, "default") == "5"
    assert shedding.yields_to(B, None, "default") == "5"
    assert shedding.yields_to(A, None, "default") is None, "its own is not worth more"
    shedding.leaves(RequestId("5"))
    shedding.leaves(RequestId("unknown"))
    assert shedding.yields_to(C, None, "default") == "4"


def test_nobody_goes_for_a_caller_that_would_have_as_many() -> None:
    shedding = queued((A, None, "default"), (A, None, "default"), (B, None, "default"))
    assert shedding.yields_to(B, None, "default") is None
    assert shedding.yields_to(C, None, "default") == "2"
    assert queued((A, None, "default")).yields_to(B, None, "default") is None
    assert LoadShedding().yields_to(A, None, "default") is None


def test_the_connections_of_one_address_are_told_apart() -> None:
    shedding = queued(*[(A, 1, "default")] * 3, (A, 2, "default"))
    assert shedding.yields_to(A, 3, "default") == "3"
    assert shedding.yields_to(A, 1, "default") is None
    assert shedding.yields_to(B, 9, "default") == "3"


def test_of_one_caller_the_lower_class_goes_first() -> None:
    shedding = queued((A, None, "batch"), (A, None, "default"), (B, None, "batch"))
    assert shedding.yields_to(A, None, "interactive") == "1"
    assert shedding.yields_to(A, None, "batch") is None
    assert shedding.yields_to(C, None, "default") == "1"


PLACES = st.tuples(
    st.sampled_from([A, B, C]), st.sampled_from([1, 2]), st.sampled_from(PRIORITY_CLASSES)
)


@given(st.lists(PLACES, min_size=1, max_size=20), PLACES)
def test_who_goes_has_more_than_the_newcomer_would_have(places: list[Place], new: Place) -> None:
    shedding = queued(*places)
    gone = shedding.yields_to(*new)
    if gone is None:
        return
    account, connection, kind = places[int(gone) - 1]
    sizes = [place[0] for place in places]
    if account != new[0]:
        assert sizes.count(account) == max(sizes.count(each) for each in (A, B, C))
        assert sizes.count(account) > sizes.count(new[0]) + 1
    elif connection == new[1]:
        assert PRIORITY_CLASSES.index(kind) < PRIORITY_CLASSES.index(new[2])
    later = [place for place in places[int(gone) :] if place == (account, connection, kind)]
    assert not later, "not the newest"
    for number in range(1, len(places) + 1):
        shedding.leaves(RequestId(str(number)))
    assert shedding.num_callers == 0
    shedding.check_integrity()


def refusal(seconds: float, *, deadline_ms: int | None = None) -> QueueFull | None:
    return refusal_of(
        Wait(seconds=seconds, deadline_ms=deadline_ms, longest=10.0, position=4, retry_after=7.0)
    )


def test_a_deadline_needs_less_experience() -> None:
    assert (least_ended(None), least_ended(1000)) == (ENOUGH, ENOUGH_FOR_DEADLINE)
    assert ENOUGH_FOR_DEADLINE < ENOUGH


def test_a_slot_within_a_few_times_the_longest_wait_is_worth_waiting() -> None:
    assert refusal(LONGEST_ADMITTED * 10.0) is None
    error = refusal(LONGEST_ADMITTED * 10.0 + 1)
    assert error is not None
    assert (error.field, error.position, error.retry_after) == (None, 4, 7.0)
    assert error.message == (
        "a slot would be free in about 31 s, at place 4; requests wait 10 s at most"
    )


def test_a_slot_after_the_deadline_is_of_no_use() -> None:
    assert refusal(2.5, deadline_ms=2500) is None
    error = refusal(2.6, deadline_ms=2500)
    assert error is not None
    assert (error.field, error.position, error.retry_after) == ("deadline_ms", 4, 2.6)
    assert error.message == (
        "`deadline_ms`: a slot is free in about 2.6 s, at place 4; 2500 ms are too few"
    )


def test_a_long_deadline_makes_no_wait_longer() -> None:
    error = refusal(LONGEST_ADMITTED * 10.0 + 1, deadline_ms=86_400_000)
    assert error is not None
    assert error.field is None


@pytest.mark.parametrize(("num", "told"), [(1, "1 query is"), (2, "2 queries are")])
def test_one_waits_and_two_wait(num: int, told: str) -> None:
    error = refusal_of(Wait(num_before=num, most=num, one="query"))
    assert error is not None
    assert error.message == f"{told} waiting, which is the limit"
    assert error.retry_after == RETRY_AFTER
    assert refusal_of(Wait(num_before=num - 1, most=num, one="query")) is None
