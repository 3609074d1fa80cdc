from bench.simulation.arrivals import Arrival
from bench.simulation.prompts import messages_of


def test_a_longer_prompt_of_a_session_begins_as_the_shorter_one() -> None:
    first = messages_of(Arrival(0.0, 0, 5, 3600, 10, 2, 1000))
    later = messages_of(Arrival(9.0, 0, 5, 5000, 10, 2, 1000))
    assert later[: len(first) - 1] == first[:-1]
    assert sum(len(each.text) for each in later) == 5000 * 4
    assert first[0] == messages_of(Arrival(0.0, 1, 9, 1200, 10, 2, 1000))[0]
