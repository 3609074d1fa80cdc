"""Tallies become sums, and sums add up."""

from arriero.balancer.history import sums as sums_module
from arriero.balancer.history.latencies import histogram
from arriero.balancer.history.sums import MAX_DURATIONS, Sums, Tally, add
from tests.balancer.history.builders import ending


def test_a_tally_counts_what_happened() -> None:
    tally = Tally()
    tally.tokens(3)
    tally.tokens(2)
    tally.first_token(0.5)
    tally.between_tokens((0.01, 0.02))
    tally.between_tokens((0.01,))
    tally.ended(ending("a"))
    tally.ended(ending("b", "engine_failed"))
    tally.ended(ending("c"))
    assert tally.sums() == Sums(
        completion_tokens=5,
        prompt_tokens=30,
        cached_tokens=12,
        ended={"stop": 2, "engine_failed": 1},
        first_token=histogram([0.5]),
        between_tokens=histogram([0.01, 0.01, 0.02]),
    )


def test_durations_are_held_one_by_one_up_to_a_limit() -> None:
    tally = Tally()
    frame = (0.01,) * (MAX_DURATIONS // 4)
    for _ in range(9):
        tally.between_tokens(frame)
        assert sum(map(len, tally._gaps)) <= MAX_DURATIONS
    assert tally.sums().between_tokens == histogram(frame * 9)


def test_sums_add_up() -> None:
    one = Sums(completion_tokens=1, prompt_tokens=2, ended={"stop": 1}, first_token=(3, 1))
    two = Sums(completion_tokens=4, cached_tokens=1, ended={"stop": 1, "length": 2})
    assert add([one, two]) == Sums(
        completion_tokens=5,
        prompt_tokens=2,
        cached_tokens=1,
        ended={"stop": 2, "length": 2},
        first_token=(3, 1),
    )
    assert add([one]) is one
    assert sums_module.add([]) == Sums(ended={})
