import pytest

from bench.figures import (
    BETWEEN_TOKENS,
    FIRST_TOKEN,
    TOKENS_PER_SECOND,
    Ratio,
    RequestsFailed,
    check,
    longest_gap,
    of_burst,
    percentile,
    ratio,
    shown,
    spread,
)
from bench.sample import Sample


def sample(*times: float, num_tokens: int = 10, sent_at: float = 0.0) -> Sample:
    return Sample(sent_at, times[-1], token_times=times, num_tokens=num_tokens)


def test_figures_of_a_burst() -> None:
    figures = of_burst([sample(1.0, 2.0, 4.0), sample(3.0, 5.0, sent_at=1.0)])
    assert figures[TOKENS_PER_SECOND] == 20 / 5
    assert figures[FIRST_TOKEN] == 1.5
    assert figures[BETWEEN_TOKENS] == 2.0


def test_a_single_token_has_nothing_between() -> None:
    assert BETWEEN_TOKENS not in of_burst([sample(1.0)])


def test_a_failure_has_no_speed() -> None:
    failed = Sample(0.0, 1.0, failure="503")
    with pytest.raises(RequestsFailed, match="1 of 2 requests failed: 503"):
        of_burst([sample(1.0), failed])
    with pytest.raises(RequestsFailed):
        check([failed])


def test_a_ratio_is_taken_within_rounds() -> None:
    own = [{"x": 1.0}, {"x": 20.0}, {"x": 300.0}]
    baseline = [{"x": 2.0}, {"x": 10.0}, {"x": 100.0}]
    assert ratio(own, baseline, "x") == Ratio(median=2.0, least=0.5, most=3.0)
    with pytest.raises(ValueError, match="argument 2"):
        ratio(own, baseline[:2], "x")


@pytest.mark.parametrize(("percent", "value"), [(1, 1.04), (50, 3.0), (99, 4.96)])
def test_a_percentile_stays_within_the_values(percent: int, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], percent) == pytest.approx(value)


def test_the_percentile_of_one_value() -> None:
    assert percentile([7.0], 99) == 7.0


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (TOKENS_PER_SECOND, 2749.6, "2,750"),
        (TOKENS_PER_SECOND, 67.04, "67.0"),
        (FIRST_TOKEN, 8.7, "8.70 s"),
        (FIRST_TOKEN, 0.0334, "33.4 ms"),
        (FIRST_TOKEN, 0.00512, "5.12 ms"),
    ],
)
def test_figures_are_shown_in_fitting_units(name: str, value: float, text: str) -> None:
    assert shown(name, value) == text


def test_the_longest_gap_overlaps_the_time_in_question() -> None:
    times = (0.0, 50.0, 51.0, 53.0, 90.0)
    assert longest_gap(times) == 50.0
    assert longest_gap(times, since=50.5) == 37.0
    assert longest_gap(times, since=50.5, until=52.0) == 2.0
    assert longest_gap(times, since=90.0) == longest_gap(()) == 0.0


def test_a_spread_is_that_of_several_values() -> None:
    assert spread([2.0], "{:.0f}".format) == "2"
    assert spread([1.0, 2.0, 4.0], "{:.0f}".format) == "2 (1 to 4)"
