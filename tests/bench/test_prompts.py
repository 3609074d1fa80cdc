from bench import prompts
from bench.prompts import LONGEST, SHORTEST


def test_the_same_seed_asks_the_same() -> None:
    assert prompts.mixed(3, 5, num_words=64, lengths_seed=1) == prompts.mixed(
        3, 5, num_words=64, lengths_seed=1
    )


def test_another_seed_asks_something_else_of_the_same_lengths() -> None:
    one, other = (prompts.mixed(seed, 20, num_words=64, lengths_seed=1) for seed in (3, 4))
    assert {request.prompt for request in one}.isdisjoint(request.prompt for request in other)
    assert [request.num_tokens for request in one] == [request.num_tokens for request in other]
    assert all(SHORTEST <= request.num_tokens <= LONGEST for request in one)


def test_a_shared_prefix_is_shared_and_the_rest_is_not() -> None:
    requests = prompts.sharing_prefix(1, 4, num_common=40, num_own=16, num_tokens=2)
    words = [request.prompt.split() for request in requests]
    assert {tuple(each[:40]) for each in words} == {tuple(words[0][:40])}
    assert len({tuple(each[40:]) for each in words}) == 4
    assert {len(each) for each in words} == {56}


def test_lengths_are_as_told() -> None:
    (request,) = prompts.uniform(1, 1, num_words=12, num_tokens=8)
    assert len(request.prompt.split()) == 12
    assert request.num_tokens == 8
