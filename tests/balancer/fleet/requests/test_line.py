import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.requests.line import Line
from arriero.balancer.fleet.requests.routing import Engine, Wanted
from arriero.shared.inference import RequestId

ENGINES = [Engine("m", "f"), Engine("m", "g"), Engine("n", "f")]
WANTED = st.sampled_from([None, "m", "n", "o", *ENGINES])


def line_of(*models: Wanted) -> Line:
    line = Line()
    for number, model in enumerate(models):
        line.put(RequestId(str(number)), model, number)
    return line


def test_those_before_are_those_whom_the_same_agents_could_start() -> None:
    line = line_of("m", "n", None, "m", "n")
    places = [line.place(RequestId(str(number)), {None, "m"}) for number in range(5)]
    assert places == [1, 1, 2, 3, 3]


def test_a_request_for_any_model_counts_the_models_that_are_served() -> None:
    line = line_of("m", "n", "n", None)
    assert line.place(RequestId("3"), {None, "m"}) == 2
    assert line.place(RequestId("3"), {None, "n", "other"}) == 3
    assert line.place(RequestId("3"), ()) == 1


def test_the_place_of_a_newcomer() -> None:
    line = line_of("m", "n", None)
    assert line.next_place("m", {None, "m"}) == 3
    assert line.next_place(None, {None, "m"}) == 3
    assert line.next_place("x", ()) == 2


def test_nobody_waits_twice() -> None:
    line = line_of("m")
    with pytest.raises(ValueError, match="waits already"):
        line.put(RequestId("0"), "m", 9)
    line.remove(RequestId("0"))
    with pytest.raises(KeyError):
        line.remove(RequestId("0"))


def test_those_who_want_an_engine_wait_with_those_who_want_its_model() -> None:
    line = line_of("m", ENGINES[0], ENGINES[1], ENGINES[2], "m")
    served = {None, "m", ENGINES[0]}
    assert [line.place(RequestId(str(n)), served) for n in range(5)] == [1, 2, 2, 1, 4]
    line.check_integrity()


@given(st.lists(WANTED), st.sets(st.integers(0, 20)), st.sets(WANTED))
def test_places_by_counting(models: list[Wanted], removed: set[int], served: set[Wanted]) -> None:
    line = line_of(*models)
    for number in removed & set(range(len(models))):
        line.remove(RequestId(str(number)))
        line.check_integrity()
    here = [number for number in range(len(models)) if number not in removed]
    for number in here:
        model = models[number]
        rivals = {None, *served} if model is None else {None, model}
        if isinstance(model, Engine):
            rivals.add(model.model)
        rivals |= {each for each in ENGINES if each.model == model}
        ahead = sum(models[each] in rivals for each in here if each < number)
        assert line.place(RequestId(str(number)), served) == 1 + ahead
