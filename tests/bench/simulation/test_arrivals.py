from collections import Counter
from itertools import islice
from random import Random
from statistics import mean, median, pstdev

import pytest

from bench.simulation.arrivals import GREEDY, TRACES, Arrival, Lengths, Waves, bursty

COUNT = 4000


def drawn(trace: str, rate: float = 10.0) -> list[Arrival]:
    return list(islice(TRACES[trace](Random(7), rate), COUNT))


@pytest.mark.parametrize("trace", TRACES)
def test_arrivals_are_in_order_at_the_rate_that_was_asked_for(trace: str) -> None:
    times = [each.at for each in drawn(trace)]
    assert times == sorted(times)
    # Sessions begin cold: their later turns come after pauses.
    begun = times[COUNT // 2]
    assert COUNT / 2 / (times[-1] - begun) == pytest.approx(10.0, rel=0.15)


def test_the_medians_are_the_published_ones() -> None:
    chat, code = drawn("azure-chat"), drawn("azure-code")
    assert median(each.num_prompt for each in chat) == pytest.approx(1020, rel=0.1)
    assert median(each.num_answer for each in chat) == pytest.approx(129, rel=0.1)
    assert median(each.num_prompt for each in code) == pytest.approx(1500, rel=0.1)
    assert median(each.num_answer for each in code) == pytest.approx(13, rel=0.1)


def test_mooncakes_prompts_are_long_and_half_of_them_was_seen_before() -> None:
    arrivals = drawn("mooncake")[COUNT // 2 :]
    assert mean(each.num_prompt for each in arrivals) == pytest.approx(7590, rel=0.2)
    assert mean(each.num_answer for each in arrivals) == pytest.approx(182, rel=0.2)
    longest: dict[int, int] = {}
    documents: set[int] = set()
    seen = 0
    for each in drawn("mooncake"):
        before = longest.get(each.session, each.num_shared if each.document in documents else 0)
        seen += min(before, each.num_prompt)
        longest[each.session] = each.num_prompt
        documents.add(each.document)
    assert seen / sum(each.num_prompt for each in drawn("mooncake")) == pytest.approx(0.6, abs=0.15)


def test_a_third_comes_from_one_caller() -> None:
    counts = Counter(each.caller for each in drawn("poisson"))
    assert counts[0] / COUNT == pytest.approx(GREEDY, abs=0.03)
    assert max(counts[caller] for caller in range(1, 100)) < COUNT / 50


def test_gaps_that_come_in_bursts_vary_twice_as_much_as_their_mean() -> None:
    random = Random(3)
    gaps = [bursty(random) for _ in range(20_000)]
    assert mean(gaps) == pytest.approx(1.0, rel=0.1)
    assert pstdev(gaps) == pytest.approx(2.0, rel=0.1)


def test_waves_pass_and_come_again() -> None:
    waves, random = Waves(10.0), Random(5)
    at, times = 0.0, []
    for _ in range(2000):
        at += waves(random) / 10.0
        times.append(at)
    assert all(each % 30 <= 10.0 + 1e-6 for each in times)
    assert len({each // 30 for each in times}) > 5


def test_lengths_are_at_least_one_and_at_most_the_bound() -> None:
    lengths = Lengths(prompt=2, answer=900, spread=3.0, most=1000)
    pairs = [lengths.draw(Random(seed)) for seed in range(200)]
    assert {min(min(pair) for pair in pairs), max(max(pair) for pair in pairs)} == {1, 1000}
