"""What the comparison of fetched and computed prefixes makes of its measurements."""

import random

from bench.prefix_peers import TOKENS, Stream, prompt


def test_gaps_count_from_when_a_request_was_sent() -> None:
    stream = Stream([0.0, 5.0, 6.0, 6.5, 9.0])
    assert stream.longest_gap(0.0) == 5.0
    assert stream.longest_gap(5.5) == 2.5
    assert stream.longest_gap(9.0) == 0.0
    assert Stream().longest_gap(0.0) == 0.0


def test_prompts_are_drawn_anew() -> None:
    first, second = (prompt(random.Random(seed), 70) for seed in ("a", "b"))
    assert first != second
    assert len(first) == 70 and {*first} <= {*TOKENS}
