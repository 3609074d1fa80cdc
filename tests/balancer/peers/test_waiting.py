import pytest

from arriero.balancer.peers.waiting import MOST_MODELS, added_up, decoded, encoded


def test_what_is_told_is_read_again() -> None:
    assert decoded(encoded({"m": (3, 1.5)})) == {"m": (3, 1.5)}


@pytest.mark.parametrize("text", ["", "[]", "7", '{"m": 1}', '{"m": ["x", 2]}', '{"m": [1, 2, 3]}'])
def test_another_versions_words_are_left_out(text: str) -> None:
    assert decoded(text) == {}


def test_those_that_waited_longest_are_told() -> None:
    many = {f"m{n}": (1, float(n)) for n in range(MOST_MODELS + 1)}
    told = decoded(encoded(many))
    assert len(told) == MOST_MODELS and "m0" not in told


def test_balancers_are_added_up_and_time_goes_on() -> None:
    total = added_up([({"m": (1, 2.0), "n": (1, 0.0)}, 1.0), ({"m": (2, 4.0)}, 0.5)])
    assert total == {"m": (3, 4.5), "n": (1, 1.0)}
