from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.requests.dispatch.load_shedding import LoadShedding
from arriero.balancer.fleet.requests.request import Request
from arriero.shared.inference import PRIORITY_CLASSES, PriorityClass
from tests.balancer.fleet.builders import asking

A, B, C = "abc"
Place = tuple[str, int | None, PriorityClass]
"""A caller, one of its connections, and a class."""


def at(place: Place, id: str = "new") -> Request:
    caller, connection, kind = place
    named = Caller(caller) if connection is None else Caller(address=caller, connection=connection)
    return asking(id, caller=named, kind=kind)


def queued(*places: Place) -> tuple[LoadShedding, list[Request]]:
    shedding = LoadShedding()
    waiting = [at(place, str(number)) for number, place in enumerate(places, 1)]
    for request in waiting:
        shedding.waits(request)
    shedding.check_integrity(waiting)
    return shedding, waiting


def test_the_newest_of_the_caller_with_most_goes() -> None:
    shedding, waiting = queued(
        (A, None, "default"), (B, None, "default"), *[(A, None, "default")] * 3
    )
    assert shedding.yields_to(at((C, None, "default"))) == "5"
    assert shedding.yields_to(at((B, None, "default"))) == "5"
    assert shedding.yields_to(at((A, None, "default"))) is None, "its own is not worth more"
    shedding.leaves(waiting[4])
    shedding.leaves(waiting[4])
    assert shedding.yields_to(at((C, None, "default"))) == "4"


def test_nobody_goes_for_a_caller_that_would_have_as_many() -> None:
    shedding, _ = queued((A, None, "default"), (A, None, "default"), (B, None, "default"))
    assert shedding.yields_to(at((B, None, "default"))) is None
    assert shedding.yields_to(at((C, None, "default"))) == "2"
    shedding, _ = queued((A, None, "default"))
    assert shedding.yields_to(at((B, None, "default"))) is None
    assert LoadShedding().yields_to(at((A, None, "default"))) is None


def test_the_connections_of_one_address_are_told_apart() -> None:
    shedding, _ = queued(*[(A, 1, "default")] * 3, (A, 2, "default"))
    assert shedding.yields_to(at((A, 3, "default"))) == "3"
    assert shedding.yields_to(at((A, 1, "default"))) is None
    assert shedding.yields_to(at((B, 9, "default"))) == "3"


def test_of_one_caller_the_lower_class_goes_first() -> None:
    shedding, _ = queued((A, None, "batch"), (A, None, "default"), (B, None, "batch"))
    assert shedding.yields_to(at((A, None, "interactive"))) == "1"
    assert shedding.yields_to(at((A, None, "batch"))) is None
    assert shedding.yields_to(at((C, None, "default"))) == "1"


PLACES = st.tuples(
    st.sampled_from([A, B, C]), st.sampled_from([1, 2]), st.sampled_from(PRIORITY_CLASSES)
)


@given(st.lists(PLACES, min_size=1, max_size=20), PLACES)
def test_who_goes_has_more_than_the_newcomer_would_have(places: list[Place], new: Place) -> None:
    shedding, waiting = queued(*places)
    gone = shedding.yields_to(at(new))
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
    for request in waiting:
        shedding.leaves(request)
    assert shedding.num_callers == 0
    shedding.check_integrity(waiting)
