"""Counts while answers are streamed."""

from arriero.balancer.api.openai.completions.running_usage import RunningUsage
from arriero.shared.inference import Begun, Token
from tests.balancer.api.fake_runtime import done


def test_it_grows_with_each_choice_and_ends_with_the_counts_of_the_end() -> None:
    usage = RunningUsage(num_choices=2)
    usage.take(0, Begun(7, 3))
    usage.take(1, Begun(7, 7))
    usage.take(0, Token("hm", "reasoning", (1, 2)))
    usage.take(1, Token("", tokens=(3,)))
    assert usage.total == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    end = done("stop")
    usage.take(0, end)
    assert usage.total["completion_tokens"] == end.usage.completion_tokens + 1


def test_each_prompt_counts_once() -> None:
    usage = RunningUsage(num_choices=2)
    for number in range(4):
        usage.take(number, Begun(5, 0))
    assert usage.total["prompt_tokens"] == 10
