from bench.simulation.arrivals import Arrival
from bench.simulation.prompts import completion_of, messages_of


def test_a_longer_prompt_of_a_session_begins_as_the_shorter_one() -> None:
    first = messages_of(Arrival(0.0, 0, 5, 3600, 10, 2, 1000))
    later = messages_of(Arrival(9.0, 0, 5, 5000, 10, 2, 1000))
    assert later[: len(first) - 1] == first[:-1]
    assert sum(len(each.text) for each in later) == 5000 * 4
    assert first[0] == messages_of(Arrival(0.0, 1, 9, 1200, 10, 2, 1000))[0]


def test_in_tokens_only_what_is_shared_is_the_same() -> None:
    one = completion_of(Arrival(0.0, 0, 5, 300, 10, 2, 100)).prompt
    other = completion_of(Arrival(0.0, 0, 6, 200, 10, 2, 100)).prompt
    elsewhere = completion_of(Arrival(0.0, 0, 5, 300, 10, 3, 100)).prompt
    assert isinstance(one, tuple) and isinstance(other, tuple) and isinstance(elsewhere, tuple)
    assert len(one) == 300 and len(other) == 200
    assert one[:100] == other[:100] and one[100] != other[100]
    assert one[0] != elsewhere[0]
